// The types in which numbers are stored, and the two that C++20 lacks.
#pragma once

#include <cstdint>

namespace headlane {

/// How the elements of a PackedMatrix are stored. int8: an integer of -127 … 127, times the scale
/// of its column.
enum class DType : unsigned char { float32, bfloat16, float16, int8 };

/// The bytes of one element.
constexpr int size_of(DType type) {
  return type == DType::float32 ? 4 : type == DType::int8 ? 1 : 2;
}

/// The upper half of a float: 8 bits of exponent and 7 of fraction.
///
/// It is for storage: arithmetic is done on float. Conversions are the same whatever the rounding
/// mode and flush-to-zero.
struct bfloat16 {
  std::uint16_t bits = 0;

  constexpr bfloat16() = default;
  /// Rounds to nearest, ties to even. NaN stays NaN and becomes quiet; 0x1.ffp127 and more in
  /// magnitude becomes inf.
  constexpr explicit bfloat16(float x) {
    const auto word = __builtin_bit_cast(std::uint32_t, x);
    const bool is_nan = (word & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<std::uint16_t>(
        (is_nan ? word | 0x400000u : word + 0x7fffu + (word >> 16 & 1u)) >> 16);
  }
  /// Exact.
  [[gnu::always_inline]] constexpr explicit operator float() const {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
  }
};

/// binary16 of IEEE 754: 5 bits of exponent and 10 of fraction, at most 65504.
///
/// For storage, as bfloat16.
struct float16 {
  std::uint16_t bits = 0;

  constexpr float16() = default;
  /// Rounds to nearest, ties to even, to denormal numbers too. NaN stays NaN and becomes quiet;
  /// 65520 and more in magnitude becomes inf.
  constexpr explicit float16(float x);
  /// Exact, but for NaN, which becomes quiet.
  [[gnu::always_inline]] constexpr explicit operator float() const;
};

constexpr float16::float16(float x) {
  constexpr std::uint32_t inf = 0x7f800000u, least_normal = 0x38800000u;  // 2^-14
  constexpr std::uint32_t too_large = 0x477ff000u;                        // 65520
  const auto word = __builtin_bit_cast(std::uint32_t, x), size = word & 0x7fffffffu;
  std::uint32_t result = 0;
  if (size > inf) {
    result = 0x7e00u | (size >> 13 & 0x3ffu);
  } else if (size >= too_large) {
    result = 0x7c00u;
  } else if (size >= least_normal) {
    result = (size - (112u << 23) + 0xfffu + (size >> 13 & 1u)) >> 13;
  } else if (const std::uint32_t shift = 126u - (size >> 23); shift <= 24) {  // else below 2^-25
    const std::uint32_t fraction = (size & 0x7fffffu) | 0x800000u,
                        rest = fraction & ((1u << shift) - 1);
    const std::uint32_t half = 1u << (shift - 1);
    result = fraction >> shift;
    result += rest > half || (rest == half && (result & 1u) != 0) ? 1u : 0u;
  }
  bits = static_cast<std::uint16_t>((word >> 16 & 0x8000u) | result);
}

constexpr float16::operator float() const {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1fu, fraction = bits & 0x3ffu;
  std::uint32_t word = (exponent + 112u) << 23 | fraction << 13;
  if (exponent == 31) {
    word = 0x7f800000u | fraction << 13 | (fraction != 0 ? 0x400000u : 0u);
  } else if (exponent == 0) {  // fraction · 2^-24
    const auto zeros = static_cast<std::uint32_t>(__builtin_clz(fraction | 1u));
    word = fraction == 0 ? 0 : (134u - zeros) << 23 | (fraction << (zeros - 8) & 0x7fffffu);
  }
  return __builtin_bit_cast(float, sign | word);
}

}  // namespace headlane
