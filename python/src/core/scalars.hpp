// Numbers, flags and text that a Python call was given. An argument of another type is a TypeError that names function and argument.
#pragma once

#include <headlane/index.hpp>

#include <nanobind/nanobind.h>
#include <string>
#include <string_view>
#include <vector>

namespace headlane::python {

namespace nb = nanobind;

/// Throws TypeError: "function: name is …; wanted: …".
[[noreturn]] void fail_as_type(std::string_view function, std::string_view name, nb::handle given,
                               std::string_view wanted);

/// Whatever has __index__: Python's, NumPy's and PyTorch's integers. Throws ValueError beyond 64 bits.
Index integer_of(std::string_view function, std::string_view name, nb::handle given);

/// The same of an element: name[place].
Index integer_of(std::string_view function, std::string_view name, std::size_t place, nb::handle given);

/// bool, or NumPy's.
bool flag_of(std::string_view function, std::string_view name, nb::handle given);

/// Any real number. float_of() throws ValueError for one whose magnitude only binary64 has.
double double_of(std::string_view function, std::string_view name, nb::handle given);
float float_of(std::string_view function, std::string_view name, nb::handle given);

/// A str, in UTF-8. Throws ValueError for one with surrogates, which is no Unicode text.
std::string text_of(std::string_view function, std::string_view name, nb::handle given);

/// None: 0, the setting of the process.
int threads_of(std::string_view function, nb::handle num_threads, std::string_view name = "num_threads");

/// One integer, or several: an array of one element too is several.
std::vector<Index> integers_of(std::string_view function, std::string_view name, nb::handle given);

}  // namespace headlane::python
