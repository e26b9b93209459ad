#include "models/models.hpp"

#include "core/functions.hpp"

#include <headlane/models/checkpoint_error.hpp>

namespace headlane::python {
namespace {

/// The elements of a sequence as a list. Throws TypeError for anything else, and for text.
nb::object elements_of(const Call& call, const std::string& name, nb::handle object, const char* wanted) {
  const bool text = PyUnicode_Check(object.ptr()) || PyBytes_Check(object.ptr());
  nb::object elements = nb::steal(text ? nullptr : PySequence_List(object.ptr()));
  if (elements.is_valid()) return elements;
  PyErr_Clear();
  call.refuse_type(name, object, wanted);
}

}  // namespace

std::vector<Index> sentence_of(const Call& call, const std::string& name, nb::handle object) {
  const nb::object elements = elements_of(call, name, object, "a sequence of integers");
  std::vector<Index> sentence;
  sentence.reserve(nb::len(elements));
  for (const nb::handle element : nb::borrow<nb::list>(elements))
    sentence.push_back(call.integer(name, sentence.size(), element));
  return sentence;
}

std::vector<std::vector<Index>> sentences_of(const Call& call, const char* name, nb::handle object) {
  const nb::object outer = elements_of(call, name, object, "a sequence of sequences of integers");
  std::vector<std::vector<Index>> sentences;
  sentences.reserve(nb::len(outer));
  for (const nb::handle given : nb::borrow<nb::list>(outer))
    sentences.push_back(sentence_of(call, joined(name, "[", sentences.size(), "]"), given));
  return sentences;
}

void add_models(nb::module_& module) {
  const nb::exception<models::CheckpointError> error(module, "CheckpointError", PyExc_RuntimeError);
  add_bert(module);
  add_t5(module);
}

}  // namespace headlane::python
