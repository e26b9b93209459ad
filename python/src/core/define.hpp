// How functions and methods are added to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace headlane::python {

namespace nb = nanobind;

/// Adds a function to a module, or a method to a class. Its arguments accept anything, None too:
/// the function refuses wrong ones itself, by name.
template <class Target, class F, class... Names>
void define(Target& target, const char* name, F f, Names... names) {
  target.def(name, f, nb::arg(names).none()...);
}

}  // namespace headlane::python
