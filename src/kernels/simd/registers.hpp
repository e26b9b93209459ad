// Register<Arch>: one hardware register of floats, and the few operations that xsimd lacks or
// leaves unspecified. Lanes<Arch> consists of as many of them as hold 16 floats. A plain register
// holds one float (plain_register.hpp).
#pragma once

#include "kernels/simd/xsimd_register.hpp"

#if defined(__AVX512F__)
#include "kernels/simd/avx512_register.hpp"
#elif defined(__AVX2__)
#include "kernels/simd/avx2_register.hpp"
#elif defined(__aarch64__) && defined(XSIMD_WITH_NEON64) && XSIMD_WITH_NEON64
#include "kernels/simd/neon_register.hpp"
#endif

namespace headlane::internal::kernels {
namespace {

template <>
struct Register<Scalar> : PlainRegister {};
template <>
struct Register<Portable> : PlainRegister {};

}  // namespace
}  // namespace headlane::internal::kernels
