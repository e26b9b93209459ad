// Registers of 8 floats: AVX2 with FMA.
#pragma once

#include "kernels/simd/xsimd_register.hpp"

namespace headlane::internal::kernels {
namespace {

template <>
struct Register<xsimd::fma3<xsimd::avx2>> : XsimdRegister<xsimd::fma3<xsimd::avx2>> {
  /// x, which the compiler does not read from memory again.
  static HEADLANE_INLINE Float in_register(Float x) {
    asm("" : "+x"(x.data));
    return x;
  }
  static HEADLANE_INLINE Float load_some(const float* p, Index count, float fill) {
    const __m256i mask = first(count);
    const __m256 some = _mm256_maskload_ps(p, mask);  // the other lanes are +0
    if (__builtin_constant_p(fill) && __builtin_bit_cast(std::int32_t, fill) == 0) return some;
    return _mm256_blendv_ps(_mm256_set1_ps(fill), some, _mm256_castsi256_ps(mask));
  }
  static HEADLANE_INLINE void store_some(float* p, Float x, Index count) {
    if (count >= 8) store(p, x);
    else if (count > 0) store_first(p, x, count);
  }
  static HEADLANE_INLINE Float select_flags(const bool* flags, Index count, Float x, Float fill) {
    std::uint8_t copy[8] = {};
    if (count >= 8) __builtin_memcpy(copy, flags, 8);
    else
      for (Index i = 0; i < count; ++i) copy[i] = flags[i];
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(copy));
    const __m256i masked = _mm256_cmpeq_epi32(_mm256_cvtepu8_epi32(bytes), _mm256_setzero_si256());
    return _mm256_blendv_ps(x, fill, _mm256_castsi256_ps(masked));
  }

  using XsimdRegister::load;
  static HEADLANE_INLINE Float load(const bfloat16* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half(p)), 16));
  }
  static HEADLANE_INLINE void load_unpacked(const bfloat16* p, Float& even, Float& odd) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), zero = _mm256_setzero_si256();
    even = _mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, x));
    odd = _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, x));
  }
  static HEADLANE_INLINE void put_in_order(Float& even, Float& odd) {
    const __m256 first = _mm256_permute2f128_ps(even, odd, 0x20);
    odd = _mm256_permute2f128_ps(even, odd, 0x31);
    even = first;
  }
  static HEADLANE_INLINE Float load(const float16* p) { return _mm256_cvtph_ps(half(p)); }
  static HEADLANE_INLINE Float load(const std::int8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }

  static HEADLANE_INLINE void store_bytes(std::int8_t* p, Int x) {
    const __m256i low_bytes = _mm256_shuffle_epi8(x, _mm256_set1_epi32(0x0c080400));  // of each half
    const __m128i low = _mm256_castsi256_si128(low_bytes), high = _mm256_extracti128_si256(low_bytes, 1);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_unpacklo_epi32(low, high));
  }
  static HEADLANE_INLINE Int lookup(const std::int32_t (&table)[16], Int index) {
    return _mm256_permutevar8x32_epi32(Int::load_unaligned(table), index);
  }
  static HEADLANE_INLINE Float max(Float a, Float b) { return _mm256_max_ps(a, b); }
  static HEADLANE_INLINE Float min(Float a, Float b) { return _mm256_min_ps(a, b); }

  template <int N>
  static HEADLANE_INLINE Float rotated(Float x) {
    if constexpr (N == 4) return _mm256_permute2f128_ps(x, x, 0x01);
    if constexpr (N == 2) return _mm256_permute_ps(x, 0b01'00'11'10);
    if constexpr (N == 1) return _mm256_permute_ps(x, 0b00'11'10'01);
  }

 private:
  /// Stores fewer than 8 floats by 4, 2 and 1: a masked store takes CPUs of AMD some 40 cycles, and
  /// what it stored cannot be loaded at once. Softmax of 24 columns takes 0.65 of the time (Zen 4).
  /// Not inline: it is called in many places.
  static __attribute__((noinline)) void store_first(float* p, Float x, Index count) {
    __m128 rest = _mm256_castps256_ps128(x);
    if ((count & 4) != 0) {
      _mm_storeu_ps(p, rest);
      rest = _mm256_extractf128_ps(x, 1);
      p += 4;
    }
    if ((count & 2) != 0) {
      _mm_storel_pi(reinterpret_cast<__m64*>(p), rest);
      rest = _mm_movehl_ps(rest, rest);
      p += 2;
    }
    if ((count & 1) != 0) _mm_store_ss(p, rest);
  }
  template <class T>
  static HEADLANE_INLINE __m128i half(const T* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static HEADLANE_INLINE __m256i first(Index count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

}  // namespace
}  // namespace headlane::internal::kernels
