// Errors with a message joined from parts.
#pragma once

#include <headlane/index.hpp>

#include <nanobind/nanobind.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace headlane::python {

namespace nb = nanobind;

inline void append(std::string& message, std::string_view text) { message += text; }

template <class T>
  requires std::is_arithmetic_v<T>
void append(std::string& message, T number) {
  message += std::to_string(number);
}

inline void append(std::string& message, const std::vector<Index>& shape) {
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    message += (axis == 0 ? "[" : ", ") + std::to_string(shape[axis]);
  message += shape.empty() ? "[]" : "]";
}

template <class... Parts>
std::string joined(const Parts&... parts) {
  std::string message;
  (append(message, parts), ...);
  return message;
}

/// Throws TypeError.
template <class... Parts>
[[noreturn]] void fail_as_type(const Parts&... parts) {
  throw nb::type_error(joined(parts...).c_str());
}

/// Throws ValueError unless `condition`.
template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) throw std::invalid_argument(joined(parts...));
}

}  // namespace headlane::python
