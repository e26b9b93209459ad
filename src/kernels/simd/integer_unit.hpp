// IntegerUnit<Arch, Extended>: sums of four products of 8-bit integers in each 32-bit lane. The
// integers are -127 … 127, and the sums exact, so that every unit returns the same. Extended: with
// an instruction that not every CPU of this instruction set has. It is written in assembly, for the
// compiler may not use it anywhere else in the table.
#pragma once

#include "kernels/simd/registers.hpp"

namespace headlane::internal::kernels {
namespace {

/// Left operands are four bytes of a row, broadcast.
template <class Arch, bool Extended>
struct IntegerUnit {
  using Int = typename Register<Arch>::Int;
  using Weights = Int8Quad;
  using Left = const std::int8_t*;
  static constexpr int rows = 1;
  static constexpr bool in_pairs = false;       // of 16-bit integers, of which a quad is two
  static constexpr const char* name = "";       // of the extension
  static constexpr bool unsigned_rows = false;  // the rows have 128 added, the sums begin at -128 · Σ weights

  static HEADLANE_INLINE Weights weights(const Int8Quad* p) { return *p; }
  static HEADLANE_INLINE Left left(const std::int8_t* row) { return row; }
  static HEADLANE_INLINE Int dot(Int sum, const Weights& w, Left x) {
    for (int r = 0; r < 4; ++r) sum += static_cast<Int>(w.row[r] * x[r]);
    return sum;
  }
};

/// One operand of a row, as a 32-bit integer.
HEADLANE_INLINE std::int32_t four_bytes(const std::int8_t* p) {
  std::int32_t word;
  __builtin_memcpy(&word, p, sizeof(word));
  return word;
}

// Units without an extension, on x86: a quad is two pairs of 16-bit integers, of rows 0 and 2, and
// of 1 and 3, whose products one instruction adds. The left operand has the pairs of rows 1 and 3
// `odd` bytes after the others. For each quad a tile multiplies by the pair of rows 0 and 2, then
// by the other one: with both at once there were registers for 4 rows instead of 6 with AVX2, and
// GCC spilled two of their sums (2048 × 512 × 512 took 1.19 of the time, groups 1.55; Zen 3).
// Products of 8-bit integers, vpmaddubsw, need another instruction for their signs: as many
// instructions for as many products.

/// The operands that a quad is multiplied by, one after the other: two pairs, or all of it.
template <class Unit>
inline constexpr int pairs_of_quad = Unit::in_pairs ? 2 : 1;
template <class Unit>
HEADLANE_INLINE typename Unit::Weights weights_of(const Int8Quad* p, int pair) {
  if constexpr (!Unit::in_pairs) return Unit::weights(p);
  else return pair == 0 ? Unit::even(Unit::load(p)) : Unit::odd(Unit::load(p));
}

/// Where the lowest byte of integer i of a row is, if those of odd pairs begin at `odd`.
template <class Unit>
HEADLANE_INLINE Index place_of(Index i, Index odd) {
  return Unit::in_pairs ? i / 4 * 4 + i % 4 / 2 * 2 + i % 2 * odd : i;
}
/// Sets integer i of a row to 0.
template <class Unit>
HEADLANE_INLINE void set_zero(std::int8_t* row, Index i, Index odd) {
  std::int8_t* p = row + place_of<Unit>(i, odd);
  *p = Unit::unsigned_rows ? -128 : 0;
  if constexpr (Unit::in_pairs) p[1] = 0;
}

#if defined(__AVX512F__)
template <>
struct IntegerUnit<xsimd::avx512bw, false> {
  using Int = Register<xsimd::avx512bw>::Int;
  using Weights = __m512i;
  using Left = __m512i;
  static constexpr int rows = 8;  // × 2 vectors: 16 sums, 2 pairs of weights, 1 of a row
  static constexpr bool in_pairs = true, unsigned_rows = false;

  static HEADLANE_INLINE __m512i load(const void* p) { return _mm512_loadu_si512(p); }
  static HEADLANE_INLINE __m512i even(__m512i quads) { return _mm512_srai_epi16(_mm512_slli_epi16(quads, 8), 8); }
  static HEADLANE_INLINE __m512i odd(__m512i quads) { return _mm512_srai_epi16(quads, 8); }
  static HEADLANE_INLINE Left left(const std::int8_t* row) { return _mm512_set1_epi32(four_bytes(row)); }
  static HEADLANE_INLINE Int dot(Int sum, Weights w, Left x) {
    __m512i result = sum + Int(_mm512_madd_epi16(w, x));
    asm("" : "+v"(result));  // or GCC adds the products of both pairs first, and keeps them in registers
    return result;
  }
  // Unsigned by signed bytes, whose products are added two by two to 16 bits:
  static HEADLANE_INLINE __m512i add_bytes(__m512i sums, __m512i w, Left x) {
    return _mm512_add_epi16(sums, _mm512_maddubs_epi16(w, x));
  }
  static HEADLANE_INLINE Int added_pairs(__m512i sums) { return _mm512_madd_epi16(sums, _mm512_set1_epi16(1)); }
  /// Pairs of 64 bytes: those of rows 0 and 2 at `to`, of 1 and 3 `odd_at` bytes after them.
  static HEADLANE_INLINE void store_pairs(const std::int8_t* bytes, std::int8_t* to, Index odd_at) {
    _mm512_storeu_si512(to, even(load(bytes)));
    _mm512_storeu_si512(to + odd_at, odd(load(bytes)));
  }
};

/// AVX512-VNNI multiplies unsigned by signed integers. 128 is added to each row once: adding it to
/// the weights in each tile takes 1.1 times as long (16 × 2048 × 512, Emerald Rapids).
template <>
struct IntegerUnit<xsimd::avx512bw, true> {
  using Int = Register<xsimd::avx512bw>::Int;
  using Weights = __m512i;
  using Left = __m512i;
  static constexpr const char* name = "vnni";
  static constexpr int rows = 12;
  static constexpr bool in_pairs = false, unsigned_rows = true;

  static HEADLANE_INLINE Weights weights(const Int8Quad* p) { return _mm512_loadu_si512(p); }
  static HEADLANE_INLINE Left left(const std::int8_t* row) { return _mm512_set1_epi32(four_bytes(row)); }
  static HEADLANE_INLINE Left zero() { return _mm512_set1_epi8(-128); }  // of unsigned rows
  static HEADLANE_INLINE Int dot(Int sum, Weights w, Left x) {
    __m512i result = sum;
    asm("vpdpbusd %1, %2, %0" : "+v"(result) : "v"(w), "v"(x));
    return result;
  }
};
#elif defined(__AVX2__)
template <>
struct IntegerUnit<xsimd::fma3<xsimd::avx2>, false> {
  using Int = Register<xsimd::fma3<xsimd::avx2>>::Int;
  using Weights = __m256i;
  using Left = __m256i;
  static constexpr int rows = 6;  // × 16: 12 sums, 2 pairs of weights, 1 of a row
  static constexpr bool in_pairs = true, unsigned_rows = false;

  static HEADLANE_INLINE __m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static HEADLANE_INLINE __m256i even(__m256i quads) { return _mm256_srai_epi16(_mm256_slli_epi16(quads, 8), 8); }
  static HEADLANE_INLINE __m256i odd(__m256i quads) { return _mm256_srai_epi16(quads, 8); }
  static HEADLANE_INLINE Left left(const std::int8_t* row) { return _mm256_set1_epi32(four_bytes(row)); }
  static HEADLANE_INLINE Int dot(Int sum, Weights w, Left x) {
    __m256i result = sum + Int(_mm256_madd_epi16(w, x));
    asm("" : "+x"(result));
    return result;
  }
  static HEADLANE_INLINE __m256i add_bytes(__m256i sums, __m256i w, Left x) {
    return _mm256_add_epi16(sums, _mm256_maddubs_epi16(w, x));
  }
  static HEADLANE_INLINE Int added_pairs(__m256i sums) { return _mm256_madd_epi16(sums, _mm256_set1_epi16(1)); }
  static HEADLANE_INLINE void store_pairs(const std::int8_t* bytes, std::int8_t* to, Index odd_at) {
    for (int half = 0; half < 64; half += 32) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + half), even(load(bytes + half)));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + odd_at + half), odd(load(bytes + half)));
    }
  }
};

/// AVX-VNNI, as AVX512-VNNI.
template <>
struct IntegerUnit<xsimd::fma3<xsimd::avx2>, true> {
  using Int = Register<xsimd::fma3<xsimd::avx2>>::Int;
  using Weights = __m256i;
  using Left = __m256i;
  static constexpr const char* name = "vnni";
  static constexpr int rows = 6;
  static constexpr bool in_pairs = false, unsigned_rows = true;

  static HEADLANE_INLINE Weights weights(const Int8Quad* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static HEADLANE_INLINE Left left(const std::int8_t* row) { return _mm256_set1_epi32(four_bytes(row)); }
  static HEADLANE_INLINE Left zero() { return _mm256_set1_epi8(-128); }
  static HEADLANE_INLINE Int dot(Int sum, Weights w, Left x) {
    __m256i result = sum;
    asm("%{vex%} vpdpbusd %1, %2, %0" : "+x"(result) : "x"(w), "x"(x));
    return result;
  }
};
#elif defined(__aarch64__) && defined(XSIMD_WITH_NEON64) && XSIMD_WITH_NEON64
/// What both units of NEON share.
struct NeonUnit {
  using Int = Register<xsimd::neon64>::Int;
  using Weights = int8x16_t;
  using Left = int8x16_t;
  static constexpr int rows = 4;  // × 16: 16 sums, 4 weights
  static constexpr bool in_pairs = false, unsigned_rows = false;

  static HEADLANE_INLINE Weights weights(const Int8Quad* p) { return vld1q_s8(p->row); }
  static HEADLANE_INLINE Left left(const std::int8_t* row) {
    return vreinterpretq_s8_s32(vdupq_n_s32(four_bytes(row)));
  }
};
template <>
struct IntegerUnit<xsimd::neon64, false> : NeonUnit {
  static HEADLANE_INLINE Int dot(Int sum, Weights w, Left x) {
    const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(x)), high = vmull_high_s8(w, x);
    return vpadalq_s16(sum, vpaddq_s16(low, high));  // at most 2 · 127 · 127: no overflow
  }
};
template <>
struct IntegerUnit<xsimd::neon64, true> : NeonUnit {
  static constexpr const char* name = "dotprod";
  static HEADLANE_INLINE Int dot(Int sum, Weights w, Left x) {
    int32x4_t result = sum;
    asm(".arch armv8.2-a+dotprod\n\tsdot %0.4s, %1.16b, %2.16b" : "+w"(result) : "w"(w), "w"(x));
    return result;
  }
};
#endif

}  // namespace
}  // namespace headlane::internal::kernels
