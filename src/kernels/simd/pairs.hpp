// Pairs of adjacent elements: interleaves registers of first and of second elements, and separates
// them again.
#pragma once

#include "kernels/simd/lanes.hpp"

namespace headlane::internal::kernels {
namespace {

/// interleave: a, b become a0 b0 a1 b1 …; separate: the inverse. With one float a register there is
/// nothing to do.
template <class R, int Width = R::width>
struct Pairs {
  static_assert(Width == 1);
  static HEADLANE_INLINE void interleave(float&, float&) {}
  static HEADLANE_INLINE void separate(float&, float&) {}
};

#if defined(__AVX512F__)
template <class R>
struct Pairs<R, 16> {
  using Float = typename R::Float;
  static HEADLANE_INLINE void interleave(Float& a, Float& b) {
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    take(low, high, a, b);
  }
  static HEADLANE_INLINE void separate(Float& a, Float& b) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    take(even, odd, a, b);
  }

 private:
  static HEADLANE_INLINE void take(__m512i first, __m512i second, Float& a, Float& b) {
    const __m512 x = a, y = b;
    a = _mm512_permutex2var_ps(x, first, y);
    b = _mm512_permutex2var_ps(x, second, y);
  }
};
#elif defined(__AVX2__)
template <class R>
struct Pairs<R, 8> {
  using Float = typename R::Float;
  static HEADLANE_INLINE void interleave(Float& a, Float& b) {
    const __m256 low = _mm256_unpacklo_ps(a, b), high = _mm256_unpackhi_ps(a, b);
    a = _mm256_permute2f128_ps(low, high, 0x20);
    b = _mm256_permute2f128_ps(low, high, 0x31);
  }
  static HEADLANE_INLINE void separate(Float& a, Float& b) {
    const __m256 low = _mm256_permute2f128_ps(a, b, 0x20), high = _mm256_permute2f128_ps(a, b, 0x31);
    a = _mm256_shuffle_ps(low, high, 0b10'00'10'00);
    b = _mm256_shuffle_ps(low, high, 0b11'01'11'01);
  }
};
#elif defined(__aarch64__)
template <class R>
struct Pairs<R, 4> {
  using Float = typename R::Float;
  static HEADLANE_INLINE void interleave(Float& a, Float& b) {
    const float32x4_t x = a, y = b;
    a = vzip1q_f32(x, y);
    b = vzip2q_f32(x, y);
  }
  static HEADLANE_INLINE void separate(Float& a, Float& b) {
    const float32x4_t x = a, y = b;
    a = vuzp1q_f32(x, y);
    b = vuzp2q_f32(x, y);
  }
};
#endif

/// The first `count` pairs, 1 … 16, from p on: their first and second elements.
template <class Arch>
HEADLANE_INLINE void load_pairs(const float* p, Index count, Lanes<Arch>& first, Lanes<Arch>& second) {
  using V = Lanes<Arch>;
  const bool all = count >= lanes;
  const V a = all ? V::load(p) : V::load(p, 2 * count, 0.0f);
  const V b = all ? V::load(p + lanes) : count > lanes / 2 ? V::load(p + lanes, 2 * count - lanes, 0.0f) : V::zero();
#pragma GCC unroll 16
  for (int i = 0; i < V::parts; ++i) {
    auto x = 2 * i < V::parts ? a.part[2 * i % V::parts] : b.part[2 * i % V::parts];
    auto y = V::parts == 1      ? b.part[0]
             : 2 * i < V::parts ? a.part[(2 * i + 1) % V::parts]
                                : b.part[(2 * i + 1) % V::parts];
    Pairs<typename V::R>::separate(x, y);
    first.part[i] = x;
    second.part[i] = y;
  }
}

/// Stores the first `elements` of first0 second0 first1 second1 …, 1 … 32.
template <class Arch>
HEADLANE_INLINE void store_pairs(float* p, Index elements, const Lanes<Arch>& first, const Lanes<Arch>& second) {
  using V = Lanes<Arch>;
  V all[2];
#pragma GCC unroll 16
  for (int i = 0; i < V::parts; ++i) {
    auto x = first.part[i], y = second.part[i];
    Pairs<typename V::R>::interleave(x, y);
    all[2 * i / V::parts].part[2 * i % V::parts] = x;
    all[(2 * i + 1) / V::parts].part[(2 * i + 1) % V::parts] = y;
  }
  if (elements >= 2 * lanes) {
    all[0].store(p);
    all[1].store(p + lanes);
  } else {
    all[0].store(p, elements);
    if (elements > lanes) all[1].store(p + lanes, elements - lanes);
  }
}

}  // namespace
}  // namespace headlane::internal::kernels
