// Registers of 4 floats: NEON of 64-bit Arm.
#pragma once

#include "kernels/simd/xsimd_register.hpp"

namespace headlane::internal::kernels {
namespace {

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

}  // namespace
}  // namespace headlane::internal::kernels
