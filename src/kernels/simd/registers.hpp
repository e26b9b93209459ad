// Register<Arch>: one hardware register of floats, and the few operations that xsimd lacks or
// leaves unspecified. Lanes<Arch> consists of as many of them as hold 16 floats. A plain register
// holds one float (plain_register.hpp).
#pragma once

#include "kernels/simd/plain_register.hpp"

#include <xsimd/xsimd.hpp>

namespace headlane::internal::kernels {
namespace {

/// Operations that all xsimd registers share.
template <class Arch>
struct XsimdRegister {
  using Float = xsimd::batch<float, Arch>;
  using Int = xsimd::batch<std::int32_t, Arch>;
  static constexpr int width = static_cast<int>(Float::size);

  static HEADLANE_INLINE Float load(const float* p) { return Float::load_unaligned(p); }
  static HEADLANE_INLINE void store(float* p, Float x) { x.store_unaligned(p); }
  /// A row of words, widened.
  static HEADLANE_INLINE Float load(const BfloatPair* p, int row) {
    return as_float(in_register((words(p) >> 16 * row) << 16));
  }
  static HEADLANE_INLINE Float load(const Int4Oct* p, int row) {
    return to_float(in_register((words(p) << (28 - 4 * row)) >> 28));
  }
  static HEADLANE_INLINE Float load(const Int8Quad* p, int row) {
    return to_float(in_register((words(p) << (24 - 8 * row)) >> 24));
  }
  static HEADLANE_INLINE Float fma(Float x, Float y, Float z) { return xsimd::fma(x, y, z); }
  /// z - x · y, rounded once.
  static HEADLANE_INLINE Float fnma(Float x, Float y, Float z) { return xsimd::fnma(x, y, z); }
  /// |x|; NaN stays NaN.
  static HEADLANE_INLINE Float magnitude(Float x) { return as_float(as_int(x) & Int(0x7fffffff)); }
  /// a > b ? a : b, so that NaN and ±0 behave alike everywhere: xsimd's max differs between
  /// versions and machines.
  static HEADLANE_INLINE Float max(Float a, Float b) { return xsimd::select(a > b, a, b); }
  static HEADLANE_INLINE Float min(Float a, Float b) { return xsimd::select(a < b, a, b); }
  template <class Mask>
  static HEADLANE_INLINE Float select(Mask mask, Float a, Float b) {
    return xsimd::select(mask, a, b);
  }
  static HEADLANE_INLINE unsigned equal_bits(Float a, Float b) { return static_cast<unsigned>((a == b).mask()); }
  /// Selects x where the bit is set, `fill` elsewhere; there may be more bits than elements.
  static HEADLANE_INLINE Float select_bits(unsigned bits, Float x, Float fill) {
    return xsimd::select(Float::batch_bool_type::from_mask(bits & ((1u << width) - 1)), x, fill);
  }
  /// 32-bit integers, signed or unsigned.
  static HEADLANE_INLINE Int load_int(const std::uint32_t* p) {
    return Int::load_unaligned(reinterpret_cast<const std::int32_t*>(p));
  }
  static HEADLANE_INLINE void store_int(std::uint32_t* p, Int x) {
    x.store_unaligned(reinterpret_cast<std::int32_t*>(p));
  }
  /// Selects a where the highest bit is set.
  static HEADLANE_INLINE Float select_negative(Int bits, Float a, Float b) {
    return xsimd::select(xsimd::batch_bool_cast<float>(bits < Int(0)), a, b);
  }
  static HEADLANE_INLINE Float divide(Float x, Float y) { return x / y; }
  static HEADLANE_INLINE Int as_int(Float x) { return xsimd::bitwise_cast<std::int32_t>(x); }
  static HEADLANE_INLINE Float as_float(Int x) { return xsimd::bitwise_cast<float>(x); }
  static HEADLANE_INLINE Float to_float(Int x) { return xsimd::to_float(x); }
  static HEADLANE_INLINE Int shift_right(Int x, int bits) { return x >> bits; }  // keeps the sign
  static HEADLANE_INLINE Float scale(Float x, Float, Int shifted) { return scale_in_two<XsimdRegister>(x, shifted); }
  static HEADLANE_INLINE void transpose(Float (&rows)[width]) { xsimd::transpose(rows, rows + width); }

 protected:
  /// As the compiler's own vector, whose shifts by a constant are one instruction.
  typedef std::int32_t Words __attribute__((vector_size(4 * width)));  // NOLINT(modernize-use-using): GCC
  template <class T>
  static HEADLANE_INLINE Words words(const T* p) {
    static_assert(sizeof(T) == 4);
    return __builtin_bit_cast(Words, Int::load_unaligned(reinterpret_cast<const std::int32_t*>(p)).data);
  }
  static HEADLANE_INLINE Int in_register(Words x) { return __builtin_bit_cast(typename Int::register_type, x); }
};

template <class Arch>
struct Register;

#if defined(__AVX512F__)
template <>
struct Register<xsimd::avx512bw> : XsimdRegister<xsimd::avx512bw> {
  /// The first `count` elements, any count; the other lanes are `fill` and their memory is not
  /// touched.
  static HEADLANE_INLINE Float load_some(const float* p, Index count, float fill) {
    return _mm512_mask_loadu_ps(_mm512_set1_ps(fill), first(count), p);
  }
  static HEADLANE_INLINE void store_some(float* p, Float x, Index count) { _mm512_mask_storeu_ps(p, first(count), x); }
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
    __m512 four[16];  // 4 × 4 blocks within each quarter of a row, then the quarters
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
      const __m512 low = _mm512_unpacklo_ps(rows[i], rows[i + 1]), high = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
      const __m512 next_low = _mm512_unpacklo_ps(rows[i + 2], rows[i + 3]);
      const __m512 next_high = _mm512_unpackhi_ps(rows[i + 2], rows[i + 3]);
      four[i] = unpack_pairs<0>(low, next_low);
      four[i + 1] = unpack_pairs<1>(low, next_low);
      four[i + 2] = unpack_pairs<0>(high, next_high);
      four[i + 3] = unpack_pairs<1>(high, next_high);
    }
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

 private:
  template <class T>
  static HEADLANE_INLINE __m256i half(const T* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static HEADLANE_INLINE __mmask16 first(Index count) {
    return count >= 16 ? __mmask16(0xffff) : count <= 0 ? __mmask16(0) : static_cast<__mmask16>((1u << count) - 1u);
  }
  template <int High>
  static HEADLANE_INLINE __m512 unpack_pairs(__m512 a, __m512 b) {
    const __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
    return _mm512_castpd_ps(High ? _mm512_unpackhi_pd(x, y) : _mm512_unpacklo_pd(x, y));
  }
};
#elif defined(__AVX2__)
template <>
struct Register<xsimd::fma3<xsimd::avx2>> : XsimdRegister<xsimd::fma3<xsimd::avx2>> {
  static HEADLANE_INLINE Float load_some(const float* p, Index count, float fill) {
    const __m256i mask = first(count);
    return _mm256_blendv_ps(_mm256_set1_ps(fill), _mm256_maskload_ps(p, mask), _mm256_castsi256_ps(mask));
  }
  static HEADLANE_INLINE void store_some(float* p, Float x, Index count) { _mm256_maskstore_ps(p, first(count), x); }
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
  template <class T>
  static HEADLANE_INLINE __m128i half(const T* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static HEADLANE_INLINE __m256i first(Index count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};
#elif defined(__aarch64__) && defined(XSIMD_WITH_NEON64) && XSIMD_WITH_NEON64
template <>
struct Register<xsimd::neon64> : XsimdRegister<xsimd::neon64> {
  using XsimdRegister::load;
  static HEADLANE_INLINE Float load(const bfloat16* p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(reinterpret_cast<const std::uint16_t*>(p)), 16));
  }
  static HEADLANE_INLINE Float load(const float16* p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const std::uint16_t*>(p))));
  }
  static HEADLANE_INLINE Float load(const std::int8_t* p) {
    std::uint32_t four;
    __builtin_memcpy(&four, p, sizeof(four));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four))))));
  }

  static HEADLANE_INLINE void store_bytes(std::int8_t* p, Int x) {
    const int16x4_t half = vmovn_s32(x);
    const std::uint32_t four = vget_lane_u32(vreinterpret_u32_s8(vmovn_s16(vcombine_s16(half, half))), 0);
    __builtin_memcpy(p, &four, sizeof(four));
  }

  /// The four bytes of an entry have the indices 4·index … 4·index + 3.
  static HEADLANE_INLINE Int lookup(const std::int32_t (&table)[16], Int index) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(table);
    const uint32x4_t low = vandq_u32(vreinterpretq_u32_s32(index), vdupq_n_u32(7));
    const uint32x4_t at = vmlaq_n_u32(vdupq_n_u32(0x03020100), low, 0x04040404);
    return vreinterpretq_s32_u8(vqtbl2q_u8({{vld1q_u8(bytes), vld1q_u8(bytes + 16)}}, vreinterpretq_u8_u32(at)));
  }
  /// xsimd's fnma rounds the product for this instruction set.
  static HEADLANE_INLINE Float fnma(Float x, Float y, Float z) { return vfmsq_f32(z, x, y); }
  /// xsimd's division refines an estimate, which is not the exact rounding.
  static HEADLANE_INLINE Float divide(Float x, Float y) { return vdivq_f32(x, y); }

  static HEADLANE_INLINE Float load_some(const float* p, Index count, float fill) {
    float copy[4];
    for (Index i = 0; i < 4; ++i) copy[i] = i < count ? p[i] : fill;
    return Float::load_unaligned(copy);
  }
  static HEADLANE_INLINE void store_some(float* p, Float x, Index count) {
    float copy[4];
    x.store_unaligned(copy);
    for (Index i = 0; i < 4 && i < count; ++i) p[i] = copy[i];
  }
  static HEADLANE_INLINE Float select_flags(const bool* flags, Index count, Float x, Float fill) {
    std::uint32_t copy[4];
    for (Index i = 0; i < 4; ++i) copy[i] = i < count && flags[i] ? ~std::uint32_t{0} : 0;
    return vbslq_f32(vld1q_u32(copy), x, fill);
  }

  template <int N>
  static HEADLANE_INLINE Float rotated(Float x) {
    return vextq_f32(x, x, N);
  }
};
#endif

template <>
struct Register<Scalar> : PlainRegister {};
template <>
struct Register<Portable> : PlainRegister {};

}  // namespace
}  // namespace headlane::internal::kernels
