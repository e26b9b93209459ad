// Numbers, flags and text among the arguments of a Python call. An argument of another type is a
// TypeError that names the function and the argument.
#pragma once

#include <headlane/index.hpp>

#include <nanobind/nanobind.h>
#include <string>
#include <string_view>
#include <vector>

namespace headlane::python {

namespace nb = nanobind;

/// Throws TypeError: "function: name is VALUE; wanted: …".
[[noreturn]] void refuse_value(std::string_view function, std::string_view name, nb::handle given,
                               std::string_view wanted);
/// Throws TypeError: "function: name has type TYPE; wanted: …".
[[noreturn]] void refuse_type(std::string_view function, std::string_view name, nb::handle given,
                              std::string_view wanted);

/// Any object with __index__: integers of Python, NumPy and PyTorch. Throws ValueError beyond 64
/// bits.
Index integer_of(std::string_view function, std::string_view name, nb::handle given);

/// An element of a sequence; messages name name[index].
Index integer_of(std::string_view function, std::string_view name, std::size_t index, nb::handle given);

/// A bool of Python or NumPy.
bool flag_of(std::string_view function, std::string_view name, nb::handle given);

/// Any real number. float_of() throws ValueError for a finite one beyond the range of float32.
double double_of(std::string_view function, std::string_view name, nb::handle given);
float float_of(std::string_view function, std::string_view name, nb::handle given);

/// A str, in UTF-8. Throws ValueError if it has surrogates, which are not Unicode text.
std::string text_of(std::string_view function, std::string_view name, nb::handle given);

/// A maximum number of threads. None and 0 both mean the setting of the process.
int threads_of(std::string_view function, nb::handle num_threads, std::string_view name = "num_threads");

/// One integer, or a sequence of integers (an array, too).
std::vector<Index> integers_of(std::string_view function, std::string_view name, nb::handle given);

}  // namespace headlane::python
