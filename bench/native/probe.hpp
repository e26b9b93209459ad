// The loops that measure the machine's limits, in assembly so that no compiler shortens, spills or
// vectorises them. Only machine.cpp includes this, and runs a loop only where its instruction set
// is available.
#pragma once

#include <cmath>
#include <cstddef>

namespace bench::probe {

/// A multiplicand other than 0 and 1 whose products are never subnormal: the clock may depend on
/// how many bits toggle.
inline constexpr float operand = 0.7182818f;

#if defined(__x86_64__)

/// Independent sums: a latency of 4 cycles at 2 per cycle takes at least 8; 12 leave room for an
/// uneven schedule.
inline constexpr int chains = 12;

// Naming the xmm part suffices: the ABI lets a function change the whole vector register.
#define PROBE_CLOBBERS                                                                                              \
  "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", \
      "xmm12", "xmm13", "xmm14", "xmm15"

// .irp repeats the instruction for each number.
// clang-format off: one instruction per line
#define PROBE_FMA_LOOP(fma, reg, broadcast)                           \
  asm volatile(broadcast " %1, %%" reg "14\n"                         \
               broadcast " %1, %%" reg "15\n"                         \
               "1: .irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11\n"    \
               fma " %%" reg "14, %%" reg "15, %%" reg "\\i\n"        \
               ".endr\n"                                              \
               "dec %0\n"                                             \
               "jnz 1b\n"                                             \
               "vzeroupper"                                           \
               : "+r"(rounds)                                         \
               : "m"(operand)                                         \
               : PROBE_CLOBBERS)
// clang-format on

/// `rounds` × `chains` fused multiply-adds.
inline void fma_avx512(long rounds) { PROBE_FMA_LOOP("vfmadd231ps", "zmm", "vbroadcastss"); }
inline void fma_avx2(long rounds) { PROBE_FMA_LOOP("vfmadd231ps", "ymm", "vbroadcastss"); }
inline void fma_scalar(long rounds) { PROBE_FMA_LOOP("vfmadd231ss", "xmm", "vmovss"); }

// Eight loads per round.
// clang-format off: one instruction per line
#define PROBE_READ_LOOP(load, reg, size, end)                         \
  asm volatile("1: .irp i, 0, 1, 2, 3, 4, 5, 6, 7\n"                  \
               load " \\i*" size "(%0), %%" reg "\\i\n"               \
               ".endr\n"                                              \
               "add $8*" size ", %0\n"                                \
               "dec %1\n"                                             \
               "jnz 1b\n"                                             \
               end                                                    \
               : "+r"(p), "+r"(rounds)                                \
               :                                                      \
               : PROBE_CLOBBERS)
// clang-format on

/// Loads every byte up to the last whole round, with the widest registers available.
inline void read(const char* p, std::size_t bytes) {
  static const std::size_t size = __builtin_cpu_supports("avx512f") ? 64 : __builtin_cpu_supports("avx") ? 32 : 16;
  std::size_t rounds = bytes / (8 * size);
  if (rounds == 0) return;
  if (size == 64) {
    PROBE_READ_LOOP("vmovups", "zmm", "64", "vzeroupper");
  } else if (size == 32) {
    PROBE_READ_LOOP("vmovups", "ymm", "32", "vzeroupper");
  } else {
    PROBE_READ_LOOP("movups", "xmm", "16", "");
  }
}

#undef PROBE_READ_LOOP
#undef PROBE_FMA_LOOP
#undef PROBE_CLOBBERS

#elif defined(__aarch64__)

/// Independent sums: a latency of 4 cycles at 4 per cycle, on the widest cores, takes at least 16.
/// v8 … v15 belong to the caller.
inline constexpr int chains = 22;

#define PROBE_CLOBBERS                                                                                             \
  "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19", "v20", "v21", "v22", \
      "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31"

// .irp repeats the instruction for each number.
#define PROBE_FMA_LOOP(fma)                                                                               \
  asm volatile(                                                                                           \
      "ldr s6, %1\n"                                                                                      \
      "dup v6.4s, v6.s[0]\n"                                                                              \
      "mov v7.16b, v6.16b\n"                                                                              \
      "1: .irp i, 0, 1, 2, 3, 4, 5, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31\n" fma \
      "\n"                                                                                                \
      ".endr\n"                                                                                           \
      "subs %0, %0, #1\n"                                                                                 \
      "b.ne 1b"                                                                                           \
      : "+r"(rounds)                                                                                      \
      : "m"(operand)                                                                                      \
      : PROBE_CLOBBERS)

/// `rounds` × `chains` fused multiply-adds.
inline void fma_neon(long rounds) { PROBE_FMA_LOOP("fmla v\\i\\().4s, v6.4s, v7.4s"); }
inline void fma_scalar(long rounds) { PROBE_FMA_LOOP("fmadd s\\i, s6, s7, s\\i"); }

/// Loads every byte up to the last whole 128.
inline void read(const char* p, std::size_t bytes) {
  std::size_t rounds = bytes / 128;
  if (rounds == 0) return;
  asm volatile(
      "1: ldp q0, q1, [%0]\n"
      "ldp q2, q3, [%0, #32]\n"
      "ldp q4, q5, [%0, #64]\n"
      "ldp q6, q7, [%0, #96]\n"
      "add %0, %0, #128\n"
      "subs %1, %1, #1\n"
      "b.ne 1b"
      : "+r"(p), "+r"(rounds)
      :
      : PROBE_CLOBBERS);
}

#undef PROBE_FMA_LOOP
#undef PROBE_CLOBBERS

#else

inline constexpr int chains = 16;

/// For machines without assembly here: left to the compiler.
inline void fma_scalar(long rounds) {
  float sums[chains] = {};
  for (; rounds > 0; --rounds) {
    for (float& sum : sums) sum = std::fma(operand, operand, sum);
    asm volatile("" : : "r"(sums) : "memory");
  }
}

inline void read(const char* p, std::size_t bytes) {
  const float* values = reinterpret_cast<const float*>(p);
  float sums[8] = {};
  for (std::size_t i = 0; i + 8 <= bytes / sizeof(float); i += 8) {
    for (std::size_t j = 0; j < 8; ++j) sums[j] += values[i + j];
  }
  asm volatile("" : : "r"(sums) : "memory");
}

#endif

}  // namespace bench::probe
