// Registers of float as numbers of 16 bits: the stores that Register<Arch> lacks, and conversions
// with the bits of headlane/dtype.hpp, those of a NaN included.
#pragma once

#include "kernels/simd/registers.hpp"

namespace headlane::internal::kernels {
namespace {

/// Stores of a register.
template <class Arch>
struct HalfStore {
  using R = Register<Arch>;
  /// The upper half of each element.
  static HEADLANE_INLINE void upper(bfloat16* p, typename R::Int x) { p->bits = static_cast<std::uint16_t>(x >> 16); }
  /// To nearest, ties to even, whatever the rounding mode; NaN becomes quiet and keeps its payload.
  static HEADLANE_INLINE void rounded(float16* p, typename R::Float x) { *p = float16(x); }
};

#if defined(__AVX512F__)
template <>
struct HalfStore<xsimd::avx512bw> {
  static HEADLANE_INLINE void upper(bfloat16* p, Register<xsimd::avx512bw>::Int x) {
    store(p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(x, 16)));
  }
  static HEADLANE_INLINE void rounded(float16* p, Register<xsimd::avx512bw>::Float x) {
    store(p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }

 private:
  static HEADLANE_INLINE void store(void* p, __m256i x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
};
#elif defined(__AVX2__)
template <>
struct HalfStore<xsimd::fma3<xsimd::avx2>> {
  using R = Register<xsimd::fma3<xsimd::avx2>>;
  static HEADLANE_INLINE void upper(bfloat16* p, R::Int x) {
    const __m256i low = _mm256_srli_epi32(x, 16);
    store(p, _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
  }
  static HEADLANE_INLINE void rounded(float16* p, R::Float x) {
    store(p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }

 private:
  static HEADLANE_INLINE void store(void* p, __m128i x) { _mm_storeu_si128(static_cast<__m128i*>(p), x); }
};
#elif defined(__aarch64__) && defined(XSIMD_WITH_NEON64) && XSIMD_WITH_NEON64
template <>
struct HalfStore<xsimd::neon64> {
  using R = Register<xsimd::neon64>;
  static HEADLANE_INLINE void upper(bfloat16* p, R::Int x) {
    vst1_u16(&p->bits, vshrn_n_u32(vreinterpretq_u32_s32(x), 16));
  }
  static HEADLANE_INLINE void rounded(float16* p, R::Float x) {  // rounds to nearest in the state of CallScope
    vst1_u16(&p->bits, vreinterpret_u16_f16(vcvt_f16_f32(x)));
  }
};
#endif

/// Bits whose upper half is x rounded to bfloat16, to nearest, ties to even. NaN stays NaN.
template <class Arch>
HEADLANE_INLINE typename Register<Arch>::Int rounded_bits(typename Register<Arch>::Float x) {
  using R = Register<Arch>;
  using Int = typename R::Int;
  const Int bits = R::as_int(x), odd = R::shift_right(bits, 16) & Int(1);
  const auto rounded = R::as_float(bits + Int(0x7fff) + odd), quiet = R::as_float(bits | Int(0x400000));
  return R::as_int(R::select(x == x, rounded, quiet));
}

/// One register from one type to another.
template <class Arch>
HEADLANE_INLINE void convert_register(const bfloat16* from, float* to) {
  Register<Arch>::store(to, Register<Arch>::load(from));
}
template <class Arch>
HEADLANE_INLINE void convert_register(const float16* from, float* to) {
  using R = Register<Arch>;
  const auto x = R::load(from);
  // Instructions make a signalling NaN quiet. Its bits are those of the number, sign at the top, 3
  // lower, since the exponent has 8 bits instead of 5.
  const auto bits = R::shift_right(R::as_int(R::load(reinterpret_cast<const bfloat16*>(from))), 3);
  R::store(to, R::select(x == x, x, R::as_float(bits | typename R::Int(0x7f800000))));
}
template <class Arch>
HEADLANE_INLINE void convert_register(const float* from, bfloat16* to) {
  HalfStore<Arch>::upper(to, rounded_bits<Arch>(Register<Arch>::load(from)));
}
template <class Arch>
HEADLANE_INLINE void convert_register(const float* from, float16* to) {
  HalfStore<Arch>::rounded(to, Register<Arch>::load(from));
}

}  // namespace
}  // namespace headlane::internal::kernels
