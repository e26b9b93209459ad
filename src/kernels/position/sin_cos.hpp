// Sines and cosines of angles that are fractions of a turn, in whole numbers: nothing is lost by reducing them, however large the position.
// Their error is measured by tests/position/test_sin_cos.cpp.
#pragma once

#include "kernels/args/position.hpp"
#include "kernels/simd/pairs.hpp"

namespace headlane::internal::kernels {
namespace {

/// sin and cos of the angle of phase `high`, `low`, at most 1.4 ULP + 2^-48 off.
///
/// The nearest quarter of a turn is taken off by dropping the two highest bits; r is the rest, in quarters, |r| <= 1/2, rounded to a float.
/// sin = r·pi/2 + r·P(r²), with pi/2 rounded to a float, P of degree 3, minimax in relative error (0.06·2^-24); cos = 1 + r²·Q(r²), Q of
/// degree 3 (0.01·2^-24). To make good the rounding of r took some 12
/// instructions more, of about 40, for 1.13 ULP.
template <class R>
HEADLANE_INLINE void sin_cos(typename R::Int high, typename R::Int low, typename R::Float& sine,
                             typename R::Float& cosine) {
  using Float = typename R::Float;
  using Int = typename R::Int;
  const Int units =
      high << 2;  // of 2^-32 quarters; its upper 24 bits are exact as a float, what follows them rounds r once
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

  // The two highest bits of `quarters` count them. A quarter more makes cos of sin, and -sin of cos.
  const Int quarters = high + Int(1 << 29), odd = quarters << 1, sign = R::as_int(Float(-0.0f));
  sine = R::as_float(R::as_int(R::select_negative(odd, c, s)) ^ (quarters & sign));
  cosine = R::as_float(R::as_int(R::select_negative(odd, s, c)) ^ ((quarters + Int(1 << 30)) & sign));
}

/// Angles j … j+15 of `Rows` rows, side by side: the phases stay in registers.
template <class Arch, int Rows>
HEADLANE_INLINE void sin_cos_part(const Phases& phases, Index j, Lanes<Arch> (&sine)[Rows],
                                  Lanes<Arch> (&cosine)[Rows]) {
  using V = Lanes<Arch>;
  using R = typename V::R;
#pragma GCC unroll 16
  for (int i = 0; i < V::parts; ++i) {
    const Index first = j + i * V::width;
    auto high = R::load_int(phases.high + first), low = R::load_int(phases.low + first);
    const auto high_step = R::load_int(phases.high_step + first), low_step = R::load_int(phases.low_step + first);
#pragma GCC unroll 4
    for (int row = 0; row < Rows; ++row) {
      sin_cos<R>(high, low, sine[row].part[i], cosine[row].part[i]);
      const auto sum = low + low_step;  // 32 bits, of which the highest is carried
      low = sum & typename R::Int(0x7fffffff);
      high = high + high_step - R::shift_right(sum, 31);
    }
    R::store_int(phases.high + first, high);
    R::store_int(phases.low + first, low);
  }
}

/// Rows row … row+Rows-1.
template <class Arch, int Rows>
HEADLANE_INLINE void sin_cos_some(const SinCosRows& rows, Index row) {
  float* const sin = rows.sin + row * rows.row_step;
  for (Index j = 0; j < rows.phases.count; j += lanes) {
    Lanes<Arch> s[Rows], c[Rows];
    sin_cos_part<Arch, Rows>(rows.phases, j, s, c);
    const Index sines = rows.phases.count - j, cosines = rows.columns - rows.phases.count - j;
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      float* const to = sin + r * rows.row_step;
      if (rows.cos == nullptr) {
        store_pairs(to + 2 * j, rows.columns - 2 * j, s[r], c[r]);
      } else {
        store_some(to + j, sines, s[r]);
        store_some(to + (rows.cos - rows.sin) + j, cosines, c[r]);
      }
    }
  }
}

template <class Arch>
void sin_cos_rows(const SinCosRows& rows) noexcept {
  constexpr int at_once = Lanes<Arch>::parts == 1 ? 4 : 2;  // as many as have registers
  Index row = 0;
  for (; row + at_once <= rows.rows; row += at_once) sin_cos_some<Arch, at_once>(rows, row);
  for (; row < rows.rows; ++row) sin_cos_some<Arch, 1>(rows, row);
}

}  // namespace
}  // namespace headlane::internal::kernels
