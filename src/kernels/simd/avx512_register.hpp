// Registers of 16 floats: AVX-512.
#pragma once

#include "kernels/simd/xsimd_register.hpp"

namespace headlane::internal::kernels {
namespace {

/// 8 floats by instructions of AVX-512, for what has no more: half of 16 take half the time of an
/// FMA unit of 32 bytes. Not xsimd's register of AVX2, whose functions the linker could take from
/// here for kernels of AVX2.
struct HalfOfAvx512 {};
template <>
struct Register<HalfOfAvx512> {
  struct Float {
    __m256 data;
    HEADLANE_INLINE Float() = default;
    HEADLANE_INLINE Float(__m256 x) : data(x) {}
    HEADLANE_INLINE explicit Float(float x) : data(_mm256_set1_ps(x)) {}
    friend HEADLANE_INLINE Float operator+(Float x, Float y) { return _mm256_add_ps(x.data, y.data); }
    friend HEADLANE_INLINE Float operator*(Float x, Float y) { return _mm256_mul_ps(x.data, y.data); }
  };
  static constexpr int width = 8;

  static HEADLANE_INLINE Float load(const float* p) { return _mm256_loadu_ps(p); }
  static HEADLANE_INLINE void store(float* p, Float x) { _mm256_storeu_ps(p, x.data); }
  static HEADLANE_INLINE Float load_some(const float* p, Index count, float fill) {
    return _mm256_mask_loadu_ps(_mm256_set1_ps(fill), first(count), p);
  }
  static HEADLANE_INLINE void store_some(float* p, Float x, Index count) {
    _mm256_mask_storeu_ps(p, first(count), x.data);
  }
  static HEADLANE_INLINE Float fma(Float x, Float y, Float z) { return _mm256_fmadd_ps(x.data, y.data, z.data); }

 private:
  static HEADLANE_INLINE __mmask8 first(Index count) {
    return count >= 8 ? __mmask8(0xff) : count <= 0 ? __mmask8(0) : static_cast<__mmask8>((1u << count) - 1u);
  }
};

template <>
struct Register<xsimd::avx512bw> : XsimdRegister<xsimd::avx512bw> {
  /// The first `count` elements, any count; the other lanes are `fill` and their memory is not
  /// touched.
  static HEADLANE_INLINE Float load_some(const float* p, Index count, float fill) {
    return _mm512_mask_loadu_ps(_mm512_set1_ps(fill), first(count), p);
  }
  static HEADLANE_INLINE void store_some(float* p, Float x, Index count) { _mm512_mask_storeu_ps(p, first(count), x); }
  /// x, which the compiler does not read from memory again.
  static HEADLANE_INLINE Float in_register(Float x) {
    asm("" : "+v"(x.data));
    return x;
  }
  /// Selects x where the flag is true, `fill` where it is false and from lane `count` on, whose
  /// flags are not read.
  static HEADLANE_INLINE Float select_flags(const bool* flags, Index count, Float x, Float fill) {
    const auto* p = reinterpret_cast<const __m128i*>(flags);
    const __m128i bytes = count >= 16 ? _mm_loadu_si128(p) : _mm_maskz_loadu_epi8(first(count), p);
    return _mm512_mask_mov_ps(fill, _mm_test_epi8_mask(bytes, bytes), x);
  }

  using XsimdRegister::load;
  static HEADLANE_INLINE Float load(const bfloat16* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half(p)), 16));
  }
  /// 32 elements, of which each register has every second four: one instruction for 16 instead of
  /// two, of which one takes twice as long (Zen 4: 1.2 cycles with their fma instead of 2).
  static HEADLANE_INLINE void load_unpacked(const bfloat16* p, Float& even, Float& odd) {
    const __m512i x = _mm512_loadu_si512(p), zero = _mm512_setzero_si512();
    even = _mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, x));
    odd = _mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, x));
  }
  /// The order of memory for what load_unpacked() has divided.
  static HEADLANE_INLINE void put_in_order(Float& even, Float& odd) {
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    const __m512 first = _mm512_permutex2var_ps(even, low, odd);
    odd = _mm512_permutex2var_ps(even, high, odd);
    even = first;
  }
  static HEADLANE_INLINE Float load(const float16* p) { return _mm512_cvtph_ps(half(p)); }
  static HEADLANE_INLINE Float load(const std::int8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }

  /// As that of all instruction sets, in registers that leave GCC fewer copies: one row in groups
  /// takes 0.96 of the time (Zen 4).
  template <int bits, int shift, int at, class T>
  static HEADLANE_INLINE Float in_mantissa(const T* p) {
    __m512i x = _mm512_loadu_si512(p);
    if constexpr (shift < 0) x = _mm512_srli_epi32(x, -shift);
    else if constexpr (shift > 0) x = _mm512_slli_epi32(x, shift);
    const __m512i mask = _mm512_set1_epi32(((1 << bits) - 1) << at);
    const __m512i zero = _mm512_set1_epi32(zero_in_mantissa<bits, at>);
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(x, mask, zero, 0x6a));  // (x & mask) ^ zero
  }

  /// The lowest byte of each element.
  static HEADLANE_INLINE void store_bytes(std::int8_t* p, Int x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x));
  }

  /// One instruction: vmaxps is a > b ? a : b.
  static HEADLANE_INLINE Float max(Float a, Float b) { return _mm512_max_ps(a, b); }
  static HEADLANE_INLINE Float min(Float a, Float b) { return _mm512_min_ps(a, b); }
  /// x · 2^floor(n).
  static HEADLANE_INLINE Float scale(Float x, Float n, Int) { return _mm512_scalef_ps(x, n); }
  static HEADLANE_INLINE Int lookup(const std::int32_t (&table)[16], Int index) {
    return _mm512_permutexvar_epi32(index, Int::load_unaligned(table));
  }

  /// Lane i + N in lane i.
  template <int N>
  static HEADLANE_INLINE Float rotated(Float x) {
    if constexpr (N == 8) return _mm512_shuffle_f32x4(x, x, 0b01'00'11'10);
    if constexpr (N == 4) return _mm512_shuffle_f32x4(x, x, 0b00'11'10'01);
    if constexpr (N == 2) return _mm512_permute_ps(x, 0b01'00'11'10);
    if constexpr (N == 1) return _mm512_permute_ps(x, 0b00'11'10'01);
  }

  static HEADLANE_INLINE void transpose(Float (&rows)[16]) {
    Float four[16];
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) transpose_quarters(rows[i], rows[i + 1], rows[i + 2], rows[i + 3], four + i);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m512 even_low = _mm512_shuffle_f32x4(four[i], four[i + 4], 0x88);
      const __m512 odd_low = _mm512_shuffle_f32x4(four[i], four[i + 4], 0xdd);
      const __m512 even_high = _mm512_shuffle_f32x4(four[i + 8], four[i + 12], 0x88);
      const __m512 odd_high = _mm512_shuffle_f32x4(four[i + 8], four[i + 12], 0xdd);
      rows[i] = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
      rows[i + 4] = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
      rows[i + 8] = _mm512_shuffle_f32x4(even_low, even_high, 0xdd);
      rows[i + 12] = _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd);
    }
  }
  /// columns[c] = from[0 … 15, c], of rows `step` apart. Rows 4 apart come into one register from
  /// memory, mostly without a shuffle: 0.7 of the time of loading rows and transpose() (Zen 4).
  static HEADLANE_INLINE void load_transposed(const float* from, Index step, Float (&columns)[16]) {
#pragma GCC unroll 4
    for (int c = 0; c < 16; c += 4) {
      __m512 rows[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const float* at = from + i * step + c;
        const __m256 low = quarters(at, at + 4 * step), high = quarters(at + 8 * step, at + 12 * step);
        rows[i] = _mm512_castpd_ps(
            _mm512_insertf64x4(_mm512_castps_pd(_mm512_castps256_ps512(low)), _mm256_castps_pd(high), 1));
      }
      transpose_quarters(rows[0], rows[1], rows[2], rows[3], columns + c);
    }
  }

 private:
  template <class T>
  static HEADLANE_INLINE __m256i half(const T* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static HEADLANE_INLINE __mmask16 first(Index count) {
    return count >= 16 ? __mmask16(0xffff) : count <= 0 ? __mmask16(0) : static_cast<__mmask16>((1u << count) - 1u);
  }
  static HEADLANE_INLINE __m256 quarters(const float* low, const float* high) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
  }
  /// Transposes the 4 × 4 floats in each quarter of four registers.
  static HEADLANE_INLINE void transpose_quarters(__m512 a, __m512 b, __m512 c, __m512 d, Float* to) {
    const __m512 low = _mm512_unpacklo_ps(a, b), high = _mm512_unpackhi_ps(a, b);
    const __m512 next_low = _mm512_unpacklo_ps(c, d), next_high = _mm512_unpackhi_ps(c, d);
    to[0] = unpack_pairs<0>(low, next_low);
    to[1] = unpack_pairs<1>(low, next_low);
    to[2] = unpack_pairs<0>(high, next_high);
    to[3] = unpack_pairs<1>(high, next_high);
  }
  template <int High>
  static HEADLANE_INLINE __m512 unpack_pairs(__m512 a, __m512 b) {
    const __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
    return _mm512_castpd_ps(High ? _mm512_unpackhi_pd(x, y) : _mm512_unpacklo_pd(x, y));
  }
};

}  // namespace
}  // namespace headlane::internal::kernels
