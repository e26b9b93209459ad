// Registers of one float, in plain C++.
#pragma once

#include "kernels/args/sizes.hpp"

#include <headlane/dtype.hpp>

#include <cstdint>

#ifndef HEADLANE_INLINE  // cmake/isa.cmake leaves it to the compiler where code need not be fast
#define HEADLANE_INLINE __attribute__((always_inline)) inline
#endif
#define HEADLANE_INLINE_LAMBDA __attribute__((always_inline))

namespace headlane::internal::kernels {
namespace {

/// One float a register, no vector instructions: `Scalar` has an fma instruction, `Portable` need
/// not have.
struct Scalar {};
struct Portable {};

/// x · 2^n, rounded once: one exact product and one rounded one, since 2^n itself may not be a
/// normal number. `shifted` is n + 2^23 · 1.5 as a float's bits: n in the low ones. -150 <= n <=
/// 128.
template <class R>
HEADLANE_INLINE typename R::Float scale_in_two(typename R::Float x, typename R::Int shifted) {
  const auto n = shifted - 0x4b400000, half = R::shift_right(n, 1);
  return x * R::as_float((half + 127) << 23) * R::as_float((n - half + 127) << 23);
}

/// Registers of one float.
struct PlainRegister {
  using Float = float;
  using Int = std::uint32_t;  // wraps, as the registers do
  static constexpr int width = 1;

  template <class T>  // float, or a type that is widened
  static HEADLANE_INLINE float load(const T* p) {
    return static_cast<float>(*p);
  }
  static HEADLANE_INLINE float load(const Int4Oct* p, int row) {
    return static_cast<float>(static_cast<std::int32_t>(p->bits << (28 - 4 * row)) >> 28);
  }
  template <class T>  // words
  static HEADLANE_INLINE float load(const T* p, int row) {
    return static_cast<float>(p->row[row]);
  }
  static HEADLANE_INLINE float load_some(const float* p, Index count, float fill) { return count > 0 ? *p : fill; }
  static HEADLANE_INLINE void store(float* p, float x) { *p = x; }
  static HEADLANE_INLINE void store_some(float* p, float x, Index count) {
    if (count > 0) *p = x;
  }
  static HEADLANE_INLINE float select_flags(const bool* flags, Index count, float x, float fill) {
    return count > 0 && *flags ? x : fill;
  }
  static HEADLANE_INLINE float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
  static HEADLANE_INLINE float fnma(float x, float y, float z) { return __builtin_fmaf(-x, y, z); }
  static HEADLANE_INLINE float magnitude(float x) { return as_float(as_int(x) & 0x7fffffffu); }
  static HEADLANE_INLINE float with_sign_of(float x, float y) {
    return as_float(as_int(y) | (as_int(x) & 0x80000000u));
  }
  static HEADLANE_INLINE float max(float a, float b) { return a > b ? a : b; }
  static HEADLANE_INLINE float min(float a, float b) { return a < b ? a : b; }
  static HEADLANE_INLINE float select(bool mask, float a, float b) { return mask ? a : b; }
  static HEADLANE_INLINE unsigned equal_bits(float a, float b) { return a == b ? 1 : 0; }
  static HEADLANE_INLINE float select_bits(unsigned bits, float x, float fill) { return (bits & 1) != 0 ? x : fill; }
  static HEADLANE_INLINE Int load_int(const std::uint32_t* p) { return *p; }
  static HEADLANE_INLINE void store_int(std::uint32_t* p, Int x) { *p = x; }
  static HEADLANE_INLINE float select_negative(Int bits, float a, float b) { return bits >> 31 != 0 ? a : b; }
  static HEADLANE_INLINE bool any_negative(Int x) { return x >> 31 != 0; }
  static HEADLANE_INLINE void store_bytes(std::int8_t* p, Int x) { *p = static_cast<std::int8_t>(x & 0xffu); }
  static HEADLANE_INLINE float divide(float x, float y) { return x / y; }
  static HEADLANE_INLINE Int as_int(float x) { return __builtin_bit_cast(Int, x); }
  static HEADLANE_INLINE float as_float(Int x) { return __builtin_bit_cast(float, x); }
  static HEADLANE_INLINE float to_float(Int x) { return static_cast<float>(static_cast<std::int32_t>(x)); }
  static HEADLANE_INLINE Int shift_right(Int x, int bits) {
    return static_cast<Int>(static_cast<std::int32_t>(x) >> bits);
  }
  static HEADLANE_INLINE float scale(float x, float, Int shifted) { return scale_in_two<PlainRegister>(x, shifted); }
  static HEADLANE_INLINE Int lookup(const std::int32_t (&table)[16], Int index) {
    return static_cast<Int>(table[index & 7]);
  }
  static HEADLANE_INLINE void transpose(float (&)[1]) {}
  template <int N>
  static HEADLANE_INLINE float rotated(float x) {
    return x;
  }
};

}  // namespace
}  // namespace headlane::internal::kernels
