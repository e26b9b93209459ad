#include "models/models.hpp"

#include "core/errors.hpp"
#include "core/functions.hpp"

#include <headlane/models/checkpoint_error.hpp>

#include <exception>
#include <string_view>

namespace headlane::python {
namespace {

/// The elements of a sequence as a list. Throws TypeError for anything else, and for text.
nb::object list_of(const Call& call, const std::string& name, nb::handle object, const char* wanted) {
  const bool text = PyUnicode_Check(object.ptr()) || PyBytes_Check(object.ptr());
  nb::object elements = text ? nb::object() : elements_of(object);
  if (elements.is_valid()) return elements;
  call.refuse_type(name, object, wanted);
}

/// Names of files may have bytes that are no UTF-8: the message shows them as \xff.
void translate(const std::exception_ptr& thrown, void* type) {
  try {
    std::rethrow_exception(thrown);
  } catch (const models::CheckpointError& error) {
    const std::string_view text = error.what();
    const nb::object message =
        nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
    if (message.is_valid()) PyErr_SetObject(static_cast<PyObject*>(type), message.ptr());
  }
}

}  // namespace

std::vector<Index> sentence_of(const Call& call, const std::string& name, nb::handle object) {
  const nb::object elements = list_of(call, name, object, "a sequence of integers");
  std::vector<Index> sentence;
  sentence.reserve(nb::len(elements));
  for (const nb::handle element : nb::borrow<nb::list>(elements))
    sentence.push_back(call.integer(name, sentence.size(), element));
  return sentence;
}

std::vector<std::vector<Index>> sentences_of(const Call& call, const char* name, nb::handle object) {
  const nb::object outer = list_of(call, name, object, "a sequence of sequences of integers");
  std::vector<std::vector<Index>> sentences;
  sentences.reserve(nb::len(outer));
  for (const nb::handle given : nb::borrow<nb::list>(outer))
    sentences.push_back(sentence_of(call, joined(name, "[", sentences.size(), "]"), given));
  return sentences;
}

void add_models(nb::module_& module) {
  const nb::exception<models::CheckpointError> error(module, "CheckpointError", PyExc_RuntimeError);
  nb::register_exception_translator(&translate, error.ptr());  // before nanobind's own
  add_bert(module);
  add_stored(module);
  add_t5(module);
}

}  // namespace headlane::python
