// exp and log on Lanes. Their errors over all 2^32 inputs are measured by tests/exp_exhaustive.cpp.
#pragma once

#include "kernels/lanes.hpp"

namespace headlane::kernels {
namespace {

/// What exp of one register is, for a clamped argument: up to the multiplication by 2^n. Inlined by hand into both forms.
template <class R>
struct ExpParts {
  typename R::Float p, n;      ///< exp(r), n
  typename R::Int shifted;     ///< n in the low bits
};

template <class R, class Float = typename R::Float>
HEADLANE_INLINE ExpParts<R> exp_parts(Float y) {
  const Float magic(0x1.8p23f);  // adding it rounds to an integer, which then stands in the low bits
  const Float shifted = R::fma(y, Float(0x1.715476p0f), magic);  // 1 / ln2
  const Float n = shifted - magic;
  Float r = R::fma(n, Float(-0x1.62e43p-1f), y);  // ln2, high part
  r = R::fma(n, Float(0x1.05c61p-29f), r);        // minus its low part
  Float p(0x1.6a4f7p-10f);
  p = R::fma(p, r, Float(0x1.12398p-7f));
  p = R::fma(p, r, Float(0x1.5558aep-5f));
  p = R::fma(p, r, Float(0x1.555492p-3f));
  p = R::fma(p, r, Float(0x1.fffffcp-2f));
  p = R::fma(p, r, Float(1.0f));
  p = R::fma(p, r, Float(1.0f));
  return {p, n, R::as_int(shifted)};
}

/// exp(x), at most 1 ULP from the exact value for every x, underflow to denormals and to 0 included.
/// exp(0) is exactly 1, exp(-inf) is 0, exp(x > 88.73) is +inf, NaN stays NaN.
///
/// x = n·ln2 + r, |r| <= ln2/2; exp(r) by a polynomial of degree 6, minimax in relative error (0.05·2^-24) with its
/// coefficients rounded to float one after the other; times 2^n, rounded once. Range reduction after Cody and Waite 1980.
template <class Arch>
HEADLANE_INLINE Lanes<Arch> exp(const Lanes<Arch>& x) {
  using R = Register<Arch>;
  using Float = typename R::Float;
  return Lanes<Arch>::map(
      [](Float argument) {
        // exp(-104) < 2^-150 rounds to 0, exp(89) > 2^128. max and min give their second operand if one is NaN.
        const auto parts = exp_parts<R>(R::min(Float(89.0f), R::max(Float(-104.0f), argument)));
        return R::scale(parts.p, parts.n, parts.shifted);
      },
      x);
}

/// The same bits for x <= 0 or NaN, cheaper.
template <class Arch>
HEADLANE_INLINE Lanes<Arch> exp_nonpositive(const Lanes<Arch>& x) {
  using R = Register<Arch>;
  using Float = typename R::Float;
  return Lanes<Arch>::map(
      [](Float argument) {
        const auto parts = exp_parts<R>(R::max(Float(-104.0f), argument));
        return R::scale_down(parts.p, parts.n, parts.shifted);
      },
      x);
}

/// log(x), at most 1 ULP from the exact value for every x; log(1) is 0, log(±0) is -inf, log(x < 0) is NaN, NaN stays.
///
/// x = 2^e·(1 + f), sqrt(1/2) <= 1 + f < sqrt(2); log(1 + f) = f - f²/2 + f³·P(f), P of degree 7, minimax in relative error of
/// the whole (0.1·2^-24).
template <class Arch>
HEADLANE_INLINE Lanes<Arch> log(const Lanes<Arch>& x) {
  using V = Lanes<Arch>;
  using R = typename V::R;
  using Float = typename V::Float;
  const auto one_register = [](Float argument) {
    const Float inf(__builtin_inff()), zero(0.0f);
    const auto tiny = argument < Float(0x1p-126f);
    const Float y = R::select(tiny, argument * Float(0x1p23f), argument);
    const auto bits = R::as_int(y);
    const auto exponent = (bits - 0x3f3504f3) >> 23;  // of sqrt(1/2)
    const Float f = R::as_float(bits - (exponent << 23)) - Float(1.0f);
    const Float e = R::to_float(exponent) - R::select(tiny, Float(23.0f), zero);
    Float p(-0.07636904f);
    p = R::fma(p, f, Float(0.12762469f));
    p = R::fma(p, f, Float(-0.13159554f));
    p = R::fma(p, f, Float(0.14201541f));
    p = R::fma(p, f, Float(-0.1662341f));
    p = R::fma(p, f, Float(0.20001243f));
    p = R::fma(p, f, Float(-0.2500082f));
    p = R::fma(p, f, Float(0.3333333f));
    const Float square = f * f;
    Float tail = R::fma(e, Float(-0x1.05c61p-29f), p * (square * f));
    tail = R::fma(square, Float(-0.5f), tail);
    Float result = R::fma(e, Float(0x1.62e43p-1f), f + tail);
    result = R::select(argument == zero, zero - inf, result);
    result = R::select(argument < zero, inf - inf, result);
    result = R::select(argument == inf, inf, result);
    return R::select(argument == argument, result, argument);
  };
  return V::map(one_register, x);
}

}  // namespace
}  // namespace headlane::kernels
