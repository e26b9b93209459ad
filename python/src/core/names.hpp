// Attributes of Python objects that are looked up in every call. Looking one up by a C string
// creates a Python string each time; these are created once.
#pragma once

#include "core/errors.hpp"

#include <atomic>
#include <nanobind/nanobind.h>

namespace headlane::python {

namespace nb = nanobind;

/// The name of an attribute, as an interned Python string; kept for the life of the process.
class Name {
 public:
  constexpr explicit Name(const char* text) : text_(text) {}

  [[nodiscard]] PyObject* get() const {
    PyObject* object = object_.load(std::memory_order_acquire);
    if (object != nullptr) return object;
    object = PyUnicode_InternFromString(text_);
    if (object == nullptr) throw nb::python_error();
    object_.store(object, std::memory_order_release);
    return object;
  }

 private:
  const char* text_;
  mutable std::atomic<PyObject*> object_ = nullptr;
};

inline nb::object attribute(nb::handle object, const Name& name) {
  PyObject* value = PyObject_GetAttr(object.ptr(), name.get());
  if (value == nullptr) throw nb::python_error();
  return nb::steal(value);
}

/// Invalid, without an error, if there is no such attribute.
inline nb::object optional_attribute(nb::handle object, const Name& name) {
  PyObject* value = PyObject_GetAttr(object.ptr(), name.get());
  if (value == nullptr) clear_error({PyExc_AttributeError});
  return nb::steal(value);
}

/// object.name()
inline nb::object call_method(nb::handle object, const Name& name) {
  PyObject* value = PyObject_CallMethodObjArgs(object.ptr(), name.get(), nullptr);
  if (value == nullptr) throw nb::python_error();
  return nb::steal(value);
}

}  // namespace headlane::python
