// What registers of all vector instruction sets share: xsimd's operations, and those of the
// compiler's own vectors.
#pragma once

#include "kernels/simd/plain_register.hpp"

#include <xsimd/xsimd.hpp>

namespace headlane::internal::kernels {
namespace {

/// Operations that all xsimd registers share.
template <class Arch>
struct XsimdRegister {
  using Float = xsimd::batch<float, Arch>;
  using Int = xsimd::batch<std::int32_t, Arch>;
  static constexpr int width = static_cast<int>(Float::size);

  static HEADLANE_INLINE Float load(const float* p) { return Float::load_unaligned(p); }
  static HEADLANE_INLINE void store(float* p, Float x) { x.store_unaligned(p); }
  /// A row of words, widened.
  static HEADLANE_INLINE Float load(const BfloatPair* p, int row) {
    return as_float(in_register((words(p) >> 16 * row) << 16));
  }
  static HEADLANE_INLINE Float load(const Int4Oct* p, int row) {
    return to_float(in_register((words(p) << (28 - 4 * row)) >> 28));
  }
  static HEADLANE_INLINE Float load(const Int8Quad* p, int row) {
    return to_float(in_register((words(p) << (24 - 8 * row)) >> 24));
  }
  /// q + zero_in_mantissa for the integers q of so many bits that begin at bit `at` of words that
  /// are shifted to the left: they become the mantissa of a float, with the sign's bit turned over.
  template <int bits, int shift, int at, class T>
  static HEADLANE_INLINE Float in_mantissa(const T* p) {
    constexpr std::int32_t mask = ((1 << bits) - 1) << at;
    Words x = words(p);
    if constexpr (shift < 0) x = x >> -shift;
    else x = x << shift;
    return as_float(in_register((x & mask) ^ zero_in_mantissa<bits, at>));
  }
  template <int bits, int at>
  static constexpr std::int32_t zero_in_mantissa = (127 + 23 - at) << 23 | 1 << (bits - 1) << at;
  /// A row of words for few rows of the left operand: a shift for every second row, and two
  /// instructions that more ports have than load()'s shifts and conversion.
  template <int row>
  static HEADLANE_INLINE Float load_for_few(const Int8Quad* p) {
    constexpr int at = row % 2 * 8;
    return in_mantissa<8, row / 2 * -16, at>(p) - as_float(Int(zero_in_mantissa<8, at>));
  }
  static HEADLANE_INLINE Float fma(Float x, Float y, Float z) { return xsimd::fma(x, y, z); }
  /// z - x · y, rounded once.
  static HEADLANE_INLINE Float fnma(Float x, Float y, Float z) { return xsimd::fnma(x, y, z); }
  /// |x|; NaN stays NaN.
  static HEADLANE_INLINE Float magnitude(Float x) { return as_float(as_int(x) & Int(0x7fffffff)); }
  /// y >= 0 with the sign of x.
  static HEADLANE_INLINE Float with_sign_of(Float x, Float y) {
    return as_float(as_int(y) | (as_int(x) & Int(INT32_MIN)));
  }
  /// a > b ? a : b, so that NaN and ±0 behave alike everywhere: xsimd's max differs between
  /// versions and machines.
  static HEADLANE_INLINE Float max(Float a, Float b) { return xsimd::select(a > b, a, b); }
  static HEADLANE_INLINE Float min(Float a, Float b) { return xsimd::select(a < b, a, b); }
  template <class Mask>
  static HEADLANE_INLINE Float select(Mask mask, Float a, Float b) {
    return xsimd::select(mask, a, b);
  }
  static HEADLANE_INLINE unsigned equal_bits(Float a, Float b) { return static_cast<unsigned>((a == b).mask()); }
  /// Selects x where the bit is set, `fill` elsewhere; there may be more bits than elements.
  static HEADLANE_INLINE Float select_bits(unsigned bits, Float x, Float fill) {
    return xsimd::select(Float::batch_bool_type::from_mask(bits & ((1u << width) - 1)), x, fill);
  }
  /// 32-bit integers, signed or unsigned.
  static HEADLANE_INLINE Int load_int(const std::uint32_t* p) {
    return Int::load_unaligned(reinterpret_cast<const std::int32_t*>(p));
  }
  static HEADLANE_INLINE void store_int(std::uint32_t* p, Int x) {
    x.store_unaligned(reinterpret_cast<std::int32_t*>(p));
  }
  /// Selects a where the highest bit is set.
  static HEADLANE_INLINE Float select_negative(Int bits, Float a, Float b) {
    return xsimd::select(xsimd::batch_bool_cast<float>(bits < Int(0)), a, b);
  }
  /// Whether the highest bit of any lane is set.
  static HEADLANE_INLINE bool any_negative(Int x) { return xsimd::any(x < Int(0)); }
  static HEADLANE_INLINE Float divide(Float x, Float y) { return x / y; }
  static HEADLANE_INLINE Int as_int(Float x) { return xsimd::bitwise_cast<std::int32_t>(x); }
  static HEADLANE_INLINE Float as_float(Int x) { return xsimd::bitwise_cast<float>(x); }
  static HEADLANE_INLINE Float to_float(Int x) { return xsimd::to_float(x); }
  static HEADLANE_INLINE Int to_int(Float x) { return xsimd::to_int(x); }        // of a whole number
  static HEADLANE_INLINE Int shift_right(Int x, int bits) { return x >> bits; }  // keeps the sign
  static HEADLANE_INLINE Float scale(Float x, Float, Int shifted) { return scale_in_two<XsimdRegister>(x, shifted); }
  static HEADLANE_INLINE void transpose(Float (&rows)[width]) { xsimd::transpose(rows, rows + width); }

 protected:
  /// As the compiler's own vector, whose shifts by a constant are one instruction.
  typedef std::int32_t Words __attribute__((vector_size(4 * width)));  // NOLINT(modernize-use-using): GCC
  template <class T>
  static HEADLANE_INLINE Words words(const T* p) {
    static_assert(sizeof(T) == 4);
    return __builtin_bit_cast(Words, Int::load_unaligned(reinterpret_cast<const std::int32_t*>(p)).data);
  }
  static HEADLANE_INLINE Int in_register(Words x) { return __builtin_bit_cast(typename Int::register_type, x); }
};

/// A register of an instruction set: what differs between them.
template <class Arch>
struct Register;

}  // namespace
}  // namespace headlane::internal::kernels
