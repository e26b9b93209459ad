// Text joined from parts, for messages.
#pragma once

#include <headlane/index.hpp>

#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace headlane::python {

/// A part as text. For a type of its own, declare an overload beside that type.
inline std::string_view shown(std::string_view text) { return text; }

template <class T>
  requires std::is_arithmetic_v<T>
std::string shown(T number) {
  return std::to_string(number);
}

/// A shape: "[2, 3]".
inline std::string shown(std::span<const Index> shape) {
  std::string text = "[";
  for (const Index size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

template <class... Parts>
[[gnu::cold, gnu::noinline]] std::string joined(const Parts&... parts) {
  std::string text;
  ((text += shown(parts)), ...);
  return text;
}

}  // namespace headlane::python
