// The part of the module that is headlane.models: what its classes share.
#include "models.hpp"

#include "call.hpp"
#include "functions.hpp"

#include <headlane/models/checkpoint_error.hpp>

#include <iterator>

namespace headlane::python {
namespace {

/// Its elements, or TypeError: a list or tuple, which text is not.
nb::object elements_of(const char* function, const std::string& place, nb::handle object, const char* wanted) {
  const bool text = PyUnicode_Check(object.ptr()) || PyBytes_Check(object.ptr());
  nb::object elements = nb::steal(text ? nullptr : PySequence_List(object.ptr()));
  if (elements.is_valid()) return elements;
  PyErr_Clear();
  throw nb::type_error((std::string(function) + ": " + place + " has type " + nb::type_name(object.type()).c_str() +
                        "; wanted: " + wanted)
                           .c_str());
}

}  // namespace

std::vector<std::vector<Index>> sentences_of(const char* function, const char* name, nb::handle object) {
  const nb::object outer = elements_of(function, name, object, "a sequence of sequences of integers");
  std::vector<std::vector<Index>> sentences;
  sentences.reserve(nb::len(outer));
  for (const nb::handle given : nb::borrow<nb::list>(outer)) {
    const auto place = [&] { return std::string(name) + "[" + std::to_string(sentences.size()) + "]"; };
    const nb::object inner = elements_of(function, place(), given, "a sequence of integers");
    std::vector<Index> sentence;
    sentence.reserve(nb::len(inner));
    for (const nb::handle element : nb::borrow<nb::list>(inner)) {
      if (PyIndex_Check(element.ptr()) == 0)
        throw nb::type_error((std::string(function) + ": " + place() + "[" + std::to_string(sentence.size()) +
                              "] has type " + nb::type_name(element.type()).c_str() + "; wanted: an integer")
                                 .c_str());
      sentence.push_back(integer_of(element));
    }
    sentences.push_back(std::move(sentence));
  }
  return sentences;
}

void add_models(nb::module_& module) {
  const nb::exception<models::CheckpointError> error(module, "CheckpointError", PyExc_RuntimeError);
  add_bert(module);
  add_t5(module);
}

}  // namespace headlane::python
