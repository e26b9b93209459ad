#include "core/functions.hpp"
#include "core/names.hpp"

namespace headlane::python {
namespace {

/// Whether a dict has the value under the name, or is the value and has nothing there.
bool has_entry(nb::handle there, nb::handle name, nb::handle value) {
  PyObject* const found = PyDict_GetItemWithError(there.ptr(), name.ptr());
  if (found == nullptr && PyErr_Occurred()) throw nb::python_error();
  return (found != nullptr ? found : there.ptr()) == value.ptr();
}

/// The same of the namespace of a class.
bool has_in_namespace(nb::handle there, nb::handle name, nb::handle value) {
  static const Name get("get");
  PyObject* const found = PyObject_CallMethodObjArgs(there.ptr(), get.get(), name.ptr(), there.ptr(), nullptr);
  if (found == nullptr) throw nb::python_error();
  return nb::steal(found).is(value);
}

/// The same of the attribute of an object.
bool has_attribute(nb::handle there, nb::handle name, nb::handle value) {
  const nb::object found = nb::steal(PyObject_GetAttr(there.ptr(), name.ptr()));
  if (!found.is_valid()) clear_error({PyExc_AttributeError});
  return (found.is_valid() ? found.ptr() : there.ptr()) == value.ptr();
}

}  // namespace

bool are_there(const nb::list& entries) {
  for (std::size_t i = 0; i + 2 < entries.size(); i += 3) {
    const nb::handle there = PyList_GetItem(entries.ptr(), static_cast<Py_ssize_t>(i)),
                     name = PyList_GetItem(entries.ptr(), static_cast<Py_ssize_t>(i + 1)),
                     value = PyList_GetItem(entries.ptr(), static_cast<Py_ssize_t>(i + 2));
    const auto has = PyDict_Check(there.ptr())                                 ? has_entry
                     : PyObject_TypeCheck(there.ptr(), &PyDictProxy_Type) != 0 ? has_in_namespace
                                                                               : has_attribute;
    if (!has(there, name, value)) return false;
  }
  return true;
}

}  // namespace headlane::python
