// The rounding of numbers of int8 and of their scales, in weights and in caches.
#pragma once

#include <bit>
#include <cstdint>

namespace headlane::internal {

/// A normal number, not negative, rounded to 16 bits, to nearest, ties to even: its product by a
/// number of int8 is exact.
constexpr float rounded_to_16_bits(float x) {
  const auto word = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((word + 0x7fu + (word >> 8 & 1u)) & ~0xffu);
}

/// rint(x) for -128 … 127; ties to even: CallScope sets the rounding. Faster than nearbyint.
inline std::int8_t nearest_integer(float x) {
  constexpr float magic = 0x1.8p23f;  // floats from here on are integers: the low bits of the sum are x
  return static_cast<std::int8_t>(std::bit_cast<std::uint32_t>(x + magic) & 0xffu);
}

}  // namespace headlane::internal
