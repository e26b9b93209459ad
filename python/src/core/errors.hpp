// Errors that are set while Python's objects are asked for their values. Those of the caller's own
// code, KeyboardInterrupt too, reach the caller unchanged.
#pragma once

#include <initializer_list>
#include <nanobind/nanobind.h>

namespace headlane::python {

namespace nb = nanobind;

/// Clears the error that is set if it has one of these types, by which an object says that it is
/// not what the call wants; throws any other one.
inline void clear_error(std::initializer_list<PyObject*> types) {
  for (PyObject* const type : types)
    if (PyErr_ExceptionMatches(type) != 0) return PyErr_Clear();
  throw nb::python_error();
}

/// The elements of an iterable, as a list; invalid if the object is none, as an array without axes.
inline nb::object elements_of(nb::handle given) {
  const nb::object iterator = nb::steal(PyObject_GetIter(given.ptr()));
  if (!iterator.is_valid()) {
    clear_error({PyExc_TypeError});
    return {};
  }
  nb::object elements = nb::steal(PySequence_List(iterator.ptr()));
  if (!elements.is_valid()) throw nb::python_error();
  return elements;
}

}  // namespace headlane::python
