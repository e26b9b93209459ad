// The floating-point state in which the library computes. Header-only, since headlane::models uses
// it as well.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace headlane::internal {

/// Sets the floating-point state in which the contract holds: rounding to nearest, denormals kept,
/// exceptions masked. Restores the caller's state, including its exception flags, at the end.
class FloatingPointScope {
 public:
  FloatingPointScope(const FloatingPointScope&) = delete;
  FloatingPointScope& operator=(const FloatingPointScope&) = delete;

#if defined(__x86_64__)
  FloatingPointScope() noexcept : caller_(_mm_getcsr()) {
    if ((caller_ & ~flags) != normal) _mm_setcsr(normal);
    __asm__ volatile("" : : : "memory");
  }
  ~FloatingPointScope() {
    __asm__ volatile("" : : : "memory");
    if (_mm_getcsr() != caller_) _mm_setcsr(caller_);
  }

 private:
  static constexpr unsigned flags = 0x3f, normal = 0x1f80;  // MXCSR
  unsigned caller_;
#elif defined(__aarch64__)
  FloatingPointScope() noexcept {
    __asm__ volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(caller_), "=r"(flags_));
    if (caller_ != 0) __asm__ volatile("msr fpcr, %0" : : "r"(std::uint64_t{0}) : "memory");
  }
  ~FloatingPointScope() {
    if (caller_ != 0) __asm__ volatile("msr fpcr, %0" : : "r"(caller_) : "memory");
    __asm__ volatile("msr fpsr, %0" : : "r"(flags_) : "memory");
  }

 private:
  std::uint64_t caller_ = 0, flags_ = 0;
#else
  FloatingPointScope() noexcept {}
  ~FloatingPointScope() {}
#endif
};

}  // namespace headlane::internal
