// The register of the rounding mode and of flushing denormals: MXCSR on x86, FPCR on Arm.
#pragma once

#include <cstdint>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__x86_64__) || defined(__aarch64__)
#define HEADLANE_TEST_HAS_STATE 1
#endif

namespace headlane::test {

#if defined(__x86_64__)
using State = unsigned;
inline constexpr State control_bits =
    0xffc0;  // DAZ, exception masks, rounding, FTZ; the rest are flags of what happened
inline State state() { return _mm_getcsr() & control_bits; }
inline void set_state(State s) { _mm_setcsr(s); }
inline const std::vector<State> all_states{0x1f80, 0x9fc0, 0x3f80, 0x5f80,
                                           0x7f80};  // default, FTZ + DAZ, three roundings
#elif defined(__aarch64__)
using State = std::uint64_t;
inline State state() {
  State s = 0;
  __asm__ volatile("mrs %0, fpcr" : "=r"(s));
  return s;
}
inline void set_state(State s) { __asm__ volatile("msr fpcr, %0" : : "r"(s)); }
inline const std::vector<State> all_states{0, State{1} << 24, State{1} << 22, State{2} << 22, State{3} << 22};
#endif

}  // namespace headlane::test
