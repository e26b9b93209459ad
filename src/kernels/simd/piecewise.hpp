// Functions as eight polynomials, of which each lane looks up its own.
#pragma once

#include "kernels/simd/lanes.hpp"

namespace headlane::internal::kernels {
namespace {

/// Eight floats for lookup().
struct Table {
  std::int32_t entries[16]{};
  constexpr Table(float a, float b, float c, float d, float e, float f, float g, float h) {
    const float once[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 16; ++i) entries[i] = __builtin_bit_cast(std::int32_t, once[i % 8]);
  }
};

/// Piece i is the sum of coefficients[Degree - j][i] · (x - origin[i])^j, to which piece 0 adds x
/// if `plus_x`. The last ends at `top`. tools/pieces.py writes them.
template <int Degree>
struct Pieces {
  float top;
  bool plus_x;
  Table origin;
  Table coefficients[Degree + 1];
};

/// y = f(a) of N registers by the pieces whose numbers are the last three bits of `piece`.
/// constant(i, c) is used for c, the constants of register i.
template <class R, int N, int Degree, class Constants>
HEADLANE_INLINE void piecewise(const Pieces<Degree>& f, const typename R::Int (&piece)[N],
                               const typename R::Float (&a)[N], typename R::Float (&y)[N], const Constants& constant) {
  using Float = typename R::Float;
  Float t[N];
  const auto entry = [](const Table& table, typename R::Int at)
                         HEADLANE_INLINE_LAMBDA { return R::as_float(R::lookup(table.entries, at)); };
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { t[i] = a[i] - entry(f.origin, piece[i]); });
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { y[i] = entry(f.coefficients[0], piece[i]); });
#pragma GCC unroll 16
  for (int j = 1; j < Degree; ++j)
    for_each_register<N>([&](int i)
                             HEADLANE_INLINE_LAMBDA { y[i] = R::fma(y[i], t[i], entry(f.coefficients[j], piece[i])); });
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA {
    y[i] = R::fma(y[i], t[i], constant(i, entry(f.coefficients[Degree], piece[i])));
  });
}

/// x = f(x) of N registers, f odd and 1 from its top on. Its pieces are cut where u = 2 + 29.9999 ·
/// x / top is 3, 4, 6, 8, 12, 16, 24: two in an octave of u.
template <class R, int N, int Degree>
HEADLANE_INLINE void odd_piecewise(const Pieces<Degree>& f, typename R::Float (&x)[N]) {
  using Float = typename R::Float;
  typename R::Int piece[N];
  Float a[N], u[N], y[N];
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { a[i] = R::min(Float(f.top), R::magnitude(x[i])); });
  for_each_register<N>([&](int i)
                           HEADLANE_INLINE_LAMBDA { u[i] = R::fma(a[i], Float(29.9999f / f.top), Float(2.0f)); });
  // The exponent of u and the first bit of its fraction.
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { piece[i] = R::shift_right(R::as_int(u[i]), 22); });
  piecewise<R>(f, piece, a, y, [&](int i, Float c) HEADLANE_INLINE_LAMBDA {
    return f.plus_x ? R::select(u[i] < Float(3.0f), a[i], c) : c;
  });
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { x[i] = R::with_sign_of(x[i], y[i]); });
}

}  // namespace
}  // namespace headlane::internal::kernels
