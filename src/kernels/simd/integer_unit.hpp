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
  static constexpr bool in_pairs = false;  // of 16-bit integers
  static constexpr const char* name = "";  // of the extension
  static constexpr bool from_zero = true;  // the sums begin at 0, not at -128 · Σ left

  static HEADLANE_INLINE Weights weights(const Int8Quad* p) { return *p; }
  static HEADLANE_INLINE Left left(const std::int8_t* row, Index) { return row; }
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
// `odd` bytes after the others. Products of 8-bit integers, vpmaddubsw, need another instruction
// for their signs: as many instructions for as many products.

#if defined(__AVX512F__)
template <>
struct IntegerUnit<xsimd::avx512bw, false> {
  using Int = Register<xsimd::avx512bw>::Int;
  struct Weights {
    __m512i even, odd;
  };
  using Left = Weights;
  static constexpr int rows = 8;  // × 2 vectors: 16 sums, 4 pairs of weights, 2 of a row
  static constexpr bool in_pairs = true, from_zero = true;

  static HEADLANE_INLINE Weights pairs(__m512i words) {
    return {_mm512_srai_epi16(_mm512_slli_epi16(words, 8), 8), _mm512_srai_epi16(words, 8)};
  }
  static HEADLANE_INLINE Weights weights(const Int8Quad* p) { return pairs(_mm512_loadu_si512(p)); }
  static HEADLANE_INLINE Left left(const std::int8_t* row, Index odd) {
    return {_mm512_set1_epi32(four_bytes(row)), _mm512_set1_epi32(four_bytes(row + odd))};
  }
  static HEADLANE_INLINE Int dot(Int sum, const Weights& w, const Left& x) {
    return sum + Int(_mm512_madd_epi16(w.even, x.even)) + Int(_mm512_madd_epi16(w.odd, x.odd));
  }
  /// Pairs of 64 bytes: those of rows 0 and 2 at `even`, of 1 and 3 at `odd`.
  static HEADLANE_INLINE void store_pairs(const std::int8_t* bytes, std::int8_t* even, std::int8_t* odd) {
    const Weights both = pairs(_mm512_loadu_si512(bytes));
    _mm512_storeu_si512(even, both.even);
    _mm512_storeu_si512(odd, both.odd);
  }
};

/// AVX512-VNNI multiplies unsigned by signed integers: the weights have 128 added, and the sums
/// begin at -128 · Σ left.
template <>
struct IntegerUnit<xsimd::avx512bw, true> {
  using Int = Register<xsimd::avx512bw>::Int;
  using Weights = __m512i;
  using Left = __m512i;
  static constexpr const char* name = "vnni";
  static constexpr int rows = 12;
  static constexpr bool in_pairs = false, from_zero = false;

  static HEADLANE_INLINE Weights weights(const Int8Quad* p) {
    return _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_set1_epi8(-128));
  }
  static HEADLANE_INLINE Left left(const std::int8_t* row, Index) { return _mm512_set1_epi32(four_bytes(row)); }
  // With the operands the other way round:
  static HEADLANE_INLINE Weights signed_weights(const Int8Quad* p) { return _mm512_loadu_si512(p); }
  static HEADLANE_INLINE Left offset() { return _mm512_set1_epi8(-128); }
  static HEADLANE_INLINE Left with_offset(Left x) { return _mm512_xor_si512(x, offset()); }
  static HEADLANE_INLINE Int dot(Int sum, Weights w, Left x) {
    __m512i result = sum;
    asm("vpdpbusd %2, %1, %0" : "+v"(result) : "v"(w), "v"(x));
    return result;
  }
};
#elif defined(__AVX2__)
template <>
struct IntegerUnit<xsimd::fma3<xsimd::avx2>, false> {
  using Int = Register<xsimd::fma3<xsimd::avx2>>::Int;
  struct Weights {
    __m256i even, odd;
  };
  using Left = Weights;
  static constexpr int rows = 4;  // × 16: 8 sums, 4 pairs of weights, 2 of a row
  static constexpr bool in_pairs = true, from_zero = true;

  static HEADLANE_INLINE Weights pairs(__m256i words) {
    return {_mm256_srai_epi16(_mm256_slli_epi16(words, 8), 8), _mm256_srai_epi16(words, 8)};
  }
  static HEADLANE_INLINE __m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static HEADLANE_INLINE Weights weights(const Int8Quad* p) { return pairs(load(p)); }
  static HEADLANE_INLINE Left left(const std::int8_t* row, Index odd) {
    return {_mm256_set1_epi32(four_bytes(row)), _mm256_set1_epi32(four_bytes(row + odd))};
  }
  static HEADLANE_INLINE Int dot(Int sum, const Weights& w, const Left& x) {
    return sum + Int(_mm256_madd_epi16(w.even, x.even)) + Int(_mm256_madd_epi16(w.odd, x.odd));
  }
  static HEADLANE_INLINE void store_pairs(const std::int8_t* bytes, std::int8_t* even, std::int8_t* odd) {
    for (int half = 0; half < 64; half += 32) {
      const Weights both = pairs(load(bytes + half));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(even + half), both.even);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(odd + half), both.odd);
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
  static constexpr bool in_pairs = false, from_zero = false;

  static HEADLANE_INLINE Weights weights(const Int8Quad* p) {
    return _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), _mm256_set1_epi8(-128));
  }
  static HEADLANE_INLINE Left left(const std::int8_t* row, Index) { return _mm256_set1_epi32(four_bytes(row)); }
  static HEADLANE_INLINE Weights signed_weights(const Int8Quad* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static HEADLANE_INLINE Left offset() { return _mm256_set1_epi8(-128); }
  static HEADLANE_INLINE Left with_offset(Left x) { return _mm256_xor_si256(x, offset()); }
  static HEADLANE_INLINE Int dot(Int sum, Weights w, Left x) {
    __m256i result = sum;
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(result) : "x"(w), "x"(x));
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
  static constexpr bool in_pairs = false, from_zero = true;

  static HEADLANE_INLINE Weights weights(const Int8Quad* p) { return vld1q_s8(p->row); }
  static HEADLANE_INLINE Left left(const std::int8_t* row, Index) {
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
