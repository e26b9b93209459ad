// The types in which numbers are stored, and the two that C++20 lacks.
#pragma once

#include <cstdint>

namespace headlane {

/// How the elements of a PackedMatrix are stored. int8: an integer of -127 … 127, times the scale
/// of its column. int8_group32, int4_group32: integers of 8 or 4 bits, times a scale of float16 for
/// each 32 rows of a column.
enum class DType : unsigned char { float32, bfloat16, float16, int8, int8_group32, int4_group32 };

/// "float32" …
constexpr const char* name_of(DType type) {
  constexpr const char* names[] = {"float32", "bfloat16",     "float16",
                                   "int8",    "int8_group32", "int4_group32"};
  return names[static_cast<unsigned char>(type)];
}

/// The bytes of one element of a type without groups.
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
  [[gnu::always_inline]] constexpr explicit bfloat16(float x) {
    const auto word = __builtin_bit_cast(std::uint32_t, x);
    const bool is_nan = (word & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<std::uint16_t>(
        (is_nan ? word | 0x400000u : word + 0x7fffu + (word >> 16 & 1u)) >> 16);
  }
  /// Exact; the payload of a NaN is kept.
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
  [[gnu::always_inline]] constexpr explicit float16(float x);
  /// Exact; the payload of a NaN is kept.
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

// Masks instead of conditions, so that compilers vectorize a loop of it. No operand or result of
// the subtraction is denormal, since the thread may flush those to 0.
constexpr float16::operator float() const {
  constexpr std::int32_t rebias = (127 - 15) << 23, least_normal = 1 << 23, infinite = 31 << 23;
  const std::int32_t magnitude = (bits & 0x7fff) << 13;
  const std::int32_t is_small = (magnitude - least_normal) >> 31,
                     is_finite = (magnitude - infinite) >> 31;
  const std::int32_t normal = magnitude + rebias + (rebias & ~is_finite);
  // 2^-14 · 1.m - 2^-14 = 2^-14 · 0.m, whose sign is cleared: rounding downward, 0 has one
  const float difference = __builtin_bit_cast(float, magnitude + rebias + least_normal) - 0x1p-14f;
  const std::int32_t small = __builtin_bit_cast(std::int32_t, difference) & 0x7fffffff;
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  return __builtin_bit_cast(
      float, sign | static_cast<std::uint32_t>((small & is_small) | (normal & ~is_small)));
}

}  // namespace headlane
