// Error messages, joined from their parts. Header-only, so that the models use it, too.
#pragma once

#include <headlane/index.hpp>

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace headlane::internal {

/// Appends a part of a message. For a type of its own, declare an overload in the namespace of that
/// type.
inline void append(std::string& message, std::string_view text) { message += text; }

/// A number or an unscoped enumerator.
template <class T>
  requires std::is_convertible_v<T, Index>
void append(std::string& message, T number) {
  message += std::to_string(number);
}

/// A shape: "[2, 3]".
inline void append(std::string& message, std::span<const Index> shape) {
  message += "[";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (axis > 0) message += ", ";
    message += std::to_string(shape[axis]);
  }
  message += "]";
}

template <class... Parts>
[[gnu::cold, gnu::noinline]] std::string message_of(const Parts&... parts) {
  std::string message;
  (append(message, parts), ...);
  return message;
}

/// Throws an Error whose message is the joined parts.
template <class Error = std::invalid_argument, class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail(const Parts&... parts) {
  throw Error(message_of(parts...));
}

/// Throws std::invalid_argument unless `condition`; the message is joined only then.
template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) fail(parts...);
}

}  // namespace headlane::internal
