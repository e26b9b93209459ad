// fma with denormal operands and results as 0: by the floating-point state, and where no state does
// it as it should, step by step.
#pragma once

#include "kernels/simd/registers.hpp"

#include <cstdint>
#include <type_traits>

namespace headlane::internal::kernels {
namespace {

// The state in which an fma takes denormal operands as 0 and returns 0 instead of denormal results.
// x86 flushes what is denormal after rounding, as VDPBF16PS does. Arm flushes what would be before,
// and says so: the few results that this may concern are computed again.
#if defined(__x86_64__)
template <class Arch>
inline constexpr bool flushes = !std::is_same_v<Arch, Portable>;
HEADLANE_INLINE void begin_flushing() {
  const unsigned state = 0x9fc0;
  asm volatile("ldmxcsr %0" : : "m"(state));
}
/// True if anything was flushed that may be a number.
HEADLANE_INLINE bool end_flushing() {
  const unsigned state = 0x1f80;
  asm volatile("ldmxcsr %0" : : "m"(state));
  return false;
}
#elif defined(__aarch64__)
template <class Arch>
inline constexpr bool flushes = !std::is_same_v<Arch, Portable>;
HEADLANE_INLINE void begin_flushing() {
  const std::uint64_t flush = 1u << 24, no_flags = 0;
  asm volatile("msr fpsr, %1\n\tmsr fpcr, %0" : : "r"(flush), "r"(no_flags));
}
HEADLANE_INLINE bool end_flushing() {
  const std::uint64_t normal = 0, underflow = 1u << 3;
  std::uint64_t flags = 0;
  asm volatile("mrs %0, fpsr\n\tmsr fpcr, %1" : "=r"(flags) : "r"(normal));
  return (flags & underflow) != 0;
}
#else
template <class Arch>
inline constexpr bool flushes = false;
HEADLANE_INLINE void begin_flushing() {}
HEADLANE_INLINE bool end_flushing() { return false; }
#endif

/// The compiler may move arithmetic over a change of the floating-point state, but not over this.
template <class T>
HEADLANE_INLINE void pin_value(T& x) {
#if defined(__AVX512F__)
  asm volatile("" : "+v"(x));
#elif defined(__x86_64__)
  asm volatile("" : "+x"(x));
#elif defined(__aarch64__)
  asm volatile("" : "+w"(x));
#else
  asm volatile("" : "+m"(x));
#endif
}
HEADLANE_INLINE void pin(float& x) { pin_value(x); }
template <class Batch>
HEADLANE_INLINE void pin(Batch& x) {
  auto value = __builtin_bit_cast(typename Batch::register_type, x);
  pin_value(value);
  x = Batch(value);
}

/// x, or 0 of its sign if it is denormal.
HEADLANE_INLINE float flushed(float x) {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  return (bits & 0x7f800000u) != 0 ? x : __builtin_bit_cast(float, bits & 0x80000000u);
}

/// fma with denormal operands and results as 0, where a result is denormal if it is after rounding
/// to 24 bits. What becomes the least normal number where denormal numbers exist may be less if the
/// exponent has no end; then it is rounded 2^64 further up.
inline float flushing_fma(float x, float y, float z) {
  x = flushed(x), y = flushed(y), z = flushed(z);
  const float result = __builtin_fmaf(x, y, z);
  if (__builtin_fabsf(result) != 0x1p-126f) return flushed(result);
  const float higher = __builtin_fmaf(x * 0x1p64f, y, z * 0x1p64f);
  return __builtin_fabsf(higher) < 0x1p-62f ? __builtin_copysignf(0.0f, result) : result;
}

}  // namespace
}  // namespace headlane::internal::kernels
