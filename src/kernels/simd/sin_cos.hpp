// Sines and cosines of angles given as fractions of a turn in fixed point: reducing them is exact,
// however large the position. tests/position/test_sin_cos.cpp measures their error.
#pragma once

#include "kernels/simd/registers.hpp"

namespace headlane::internal::kernels {
namespace {

/// sin and cos of the angle of phase `high`, `low`, at most 1.4 ULP + 2^-48 off.
///
/// Dropping the two highest bits subtracts the nearest quarter of a turn. r is the remainder in
/// quarters, |r| <= 1/2, rounded to a float:
///
///     sin = r·pi/2 + r·P(r²), cos = 1 + r²·Q(r²)
///
/// with pi/2 rounded to a float and P and Q of degree 3, minimax in relative error (0.06·2^-24 and
/// 0.01·2^-24). Compensating the rounding of r took some 12 instructions more, of about 40, for
/// 1.13 ULP.
template <class R>
HEADLANE_INLINE void sin_cos(typename R::Int high, typename R::Int low, typename R::Float& sine,
                             typename R::Float& cosine) {
  using Float = typename R::Float;
  using Int = typename R::Int;
  // In 2^-32 quarters. The upper 24 bits are exact as a float; adding the bits below them rounds r
  // once.
  const Int units = high << 2;
  const Float second = R::fma(R::to_float(low), Float(0x1p-29f), R::to_float(units & Int(255)));
  const Float r = R::fma(second, Float(0x1p-32f), R::to_float(units & Int(-256)) * Float(0x1p-32f));
  const Float square = r * r;
  Float p = R::fma(Float(-0x1.2da156p-8f), square, Float(0x1.465eeap-4f));
  p = R::fma(p, square, Float(-0x1.4abbbap-1f));
  p = R::fma(p, square, Float(-0x1.a32c46p-25f));
  const Float s = R::fma(r, Float(0x1.921fb6p0f), r * p);
  Float q = R::fma(Float(0x1.d4f7ecp-11f), square, Float(-0x1.55b2b6p-6f));
  q = R::fma(q, square, Float(0x1.03c1b0p-2f));
  q = R::fma(q, square, Float(-0x1.3bd3ccp0f));
  const Float c = R::fma(q, square, Float(1.0f));

  // The two highest bits of `quarters` count them. A quarter more turns sin into cos, and cos into
  // -sin.
  const Int quarters = high + Int(1 << 29), odd = quarters << 1, sign = R::as_int(Float(-0.0f));
  sine = R::as_float(R::as_int(R::select_negative(odd, c, s)) ^ (quarters & sign));
  cosine = R::as_float(R::as_int(R::select_negative(odd, s, c)) ^ ((quarters + Int(1 << 30)) & sign));
}

}  // namespace
}  // namespace headlane::internal::kernels
