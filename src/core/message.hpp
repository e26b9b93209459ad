// Error messages, joined from their parts.
#pragma once

#include <headlane/index.hpp>

#include <bit>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace headlane::internal {

/// A part of a message: a text, a number or a shape, "[2, 3]". It refers to what it is made of. For
/// a type of its own, define part_of() in the namespace of that type.
struct MessagePart {
  enum class Kind { text, shape, integer, natural, real };
  Kind kind;
  Index number;                // itself (of a real number, the bits), or of characters or axes
  const char* text = nullptr;  // of a text
  const Index* shape = nullptr;
};

inline MessagePart part_of(std::string_view text) {
  return {MessagePart::Kind::text, static_cast<Index>(text.size()), text.data()};
}
inline MessagePart part_of(double number) { return {MessagePart::Kind::real, std::bit_cast<Index>(number)}; }
/// An integer or an unscoped enumerator.
template <class T>
  requires(std::is_convertible_v<T, Index> && !std::is_floating_point_v<T>)
MessagePart part_of(T number) {
  constexpr bool is_natural = std::is_unsigned_v<T> && sizeof(T) == sizeof(Index);
  return {is_natural ? MessagePart::Kind::natural : MessagePart::Kind::integer, static_cast<Index>(number)};
}
inline MessagePart part_of(std::span<const Index> shape) {
  return {MessagePart::Kind::shape, static_cast<Index>(shape.size()), nullptr, shape.data()};
}

[[gnu::cold]] std::string message_of(std::initializer_list<MessagePart> parts);

template <class Error>
[[noreturn, gnu::cold, gnu::noinline]] void fail_with(std::initializer_list<MessagePart> parts) {
  throw Error(message_of(parts));
}

/// Throws an Error whose message is the joined parts. Inlined, as all that call it: a function for
/// each list of types would be larger than the calls.
template <class Error = std::invalid_argument, class... Parts>
[[noreturn, gnu::always_inline]] inline void fail(const Parts&... parts) {
  fail_with<Error>({part_of(parts)...});
}

/// Throws std::invalid_argument unless `condition`; the message is joined only then.
template <class... Parts>
[[gnu::always_inline]] inline void require(bool condition, const Parts&... parts) {
  if (!condition) fail(parts...);
}

}  // namespace headlane::internal
