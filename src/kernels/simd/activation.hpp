// Activations of groups of registers, side by side as in exp.hpp. Those with an exponential are
// computed from t = exp(-…) <= 1 or from h = t / (1 + t): nothing cancels and nothing overflows.
// NaN stays NaN: max and min return their second operand if one is NaN.
// tests/rowwise/exp_exhaustive.cpp measures their errors over all 2^32 inputs.
#pragma once

#include "kernels/simd/exp.hpp"
#include "kernels/simd/pieces.hpp"

#include <headlane/activation_kind.hpp>

namespace headlane::internal::kernels {
namespace {

template <class R, int N>
using Group = typename R::Float[N];

/// y = c[0]·x^n + c[1]·x^(n-1) + …, by Horner.
template <class R, int N, int Count>
HEADLANE_INLINE void polynomial(const float (&c)[Count], const Group<R, N>& x, Group<R, N>& y) {
  using Float = typename R::Float;
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { y[i] = Float(c[0]); });
#pragma GCC unroll 16
  for (int j = 1; j < Count; ++j)
    for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { y[i] = R::fma(y[i], x[i], Float(c[j])); });
}

/// h = t / (1 + t) with t = exp(a), a <= 0: the sigmoid of a. At -a it is 1 - h.
template <class R, int N>
HEADLANE_INLINE void logistic(Group<R, N>& a) {
  using Float = typename R::Float;
  exp_nonpositive_registers<R>(a);
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { a[i] = R::divide(a[i], Float(1.0f) + a[i]); });
}

// Each activation is a struct whose apply<R>(x) replaces N registers x by f(x).

struct Relu {
  template <class R, int N>
  static HEADLANE_INLINE void apply(Group<R, N>& x) {
    using Float = typename R::Float;
    for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { x[i] = R::max(Float(0.0f), x[i]); });
  }
};

struct Sigmoid {
  template <class R, int N>
  static HEADLANE_INLINE void apply(Group<R, N>& x) {
    using Float = typename R::Float;
    Float h[N];
    for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { h[i] = Float(0.0f) - R::magnitude(x[i]); });
    logistic<R, N>(h);
    for_each_register<N>(
        [&](int i) HEADLANE_INLINE_LAMBDA { x[i] = R::select(x[i] < Float(0.0f), h[i], Float(1.0f) - h[i]); });
  }
};

/// max(x, 0) - a · h with a = |x|, which is x · h for x < 0 and x · (1 - h) otherwise. A factor of
/// h may stand in a instead: then an h below the normal numbers is not rounded on its own.
template <class R>
HEADLANE_INLINE typename R::Float gated(typename R::Float x, typename R::Float a, typename R::Float h) {
  return R::fnma(a, h, R::max(typename R::Float(0.0f), x));
}

/// x becomes x · sigmoid(z), z an odd function of x; minus_z(|x|) is -z(|x|). Beyond `cut_off` the
/// result is 0 or x already; |x| is limited to it, since inf · 0 is NaN.
template <class R, int N, class MinusZ>
HEADLANE_INLINE void times_sigmoid(Group<R, N>& x, float cut_off, const MinusZ& minus_z) {
  using Float = typename R::Float;
  Float a[N], h[N];
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { a[i] = R::min(Float(cut_off), R::magnitude(x[i])); });
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { h[i] = minus_z(a[i]); });
  logistic<R, N>(h);
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { x[i] = gated<R>(x[i], a[i], h[i]); });
}

struct Silu {
  template <class R, int N>
  static HEADLANE_INLINE void apply(Group<R, N>& x) {
    using Float = typename R::Float;
    times_sigmoid<R, N>(x, 100.0f, [](Float a) { return Float(0.0f) - a; });
  }
};

/// Hendrycks and Gimpel 2016, with tanh: z = 2·sqrt(2/pi) · (x + 0.044715·x³). exp multiplies the
/// relative error of z by z.
struct GeluTanh {
  template <class R, int N>
  static HEADLANE_INLINE void apply(Group<R, N>& x) {
    using Float = typename R::Float;
    times_sigmoid<R, N>(x, 20.0f,
                        [](Float a) { return R::fma(a * a, Float(-0x1.2444f2p-4f), Float(-0x1.988454p0f)) * a; });
  }
};

/// x · Phi(x) = -a · h with a = -x > 0 and h = Phi(-a) = exp(-a²/2) · P(a) / Q(a). P of degree 4
/// and Q of degree 5 are minimax in relative error (0.13·2^-24) up to a = 13.3, from where
/// exp(-a²/2) is 0. It multiplies the rounding error of a² by a², so that is added back.
template <class R, int N>
__attribute__((noinline, cold)) void gelu_far_below_zero(Group<R, N>& x) {
  using Float = typename R::Float;
  constexpr float numerator[] = {0x1.077786p-8f, 0x1.478cd4p-5f, 0x1.7350eap-3f, 0x1.be2486p-2f, 0.5f};
  constexpr float denominator[] = {0x1.4a33bcp-7f, 0x1.9a8dacp-4f, 0x1.db8676p-2f, 0x1.31c9b2p0f, 0x1.ab5472p0f, 1.0f};
  Float a[N], t[N], low[N], p[N], q[N];
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { a[i] = R::min(Float(13.3f), R::magnitude(x[i])); });
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { t[i] = a[i] * a[i]; });
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { low[i] = R::fma(a[i], a[i], Float(0.0f) - t[i]); });
  exp_nonpositive_registers<R, -2>(t, low);
  polynomial<R, N>(numerator, a, p);
  polynomial<R, N>(denominator, a, q);
  for_each_register<N>([&](int i)
                           HEADLANE_INLINE_LAMBDA { x[i] = R::fnma(R::divide(a[i] * p[i], q[i]), t[i], Float(0.0f)); });
}

/// x · Phi(x) = max(x, 0) - g(a) with a = |x| and g(a) = a · Phi(-a), by pieces up to 5.5, from
/// where g is less than half of the last bit of a. Where x < -5.5, mostly nowhere, the relative
/// error counts: the formula above, for that element alone.
struct Gelu {
  template <class R, int N>
  static HEADLANE_INLINE void apply(Group<R, N>& x) {
    using Float = typename R::Float;
    const Float below(-gelu_pieces.top);
    typename R::Int piece[N];
    Float a[N], y[N];
    for_each_register<N>([&](int i)
                             HEADLANE_INLINE_LAMBDA { a[i] = R::min(Float(gelu_pieces.top), R::magnitude(x[i])); });
    // b²/8 - 1, rounded to the number of a piece, which then stands in the low bits.
    for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA {
      const Float b = a[i] + Float(2.74f);
      piece[i] = R::as_int(R::fma(b, b, Float(0x1.8p26f - 8)));
    });
    piecewise<R>(gelu_pieces, piece, a, y, [](int, Float c) HEADLANE_INLINE_LAMBDA { return c; });
    for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { y[i] = R::max(Float(0.0f), x[i]) - y[i]; });
    typename R::Int far = R::as_int(x[0] - below);
    for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { far = far | R::as_int(x[i] - below); });
    if (R::any_negative(far)) [[unlikely]] {
      Group<R, N> z;
      for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { z[i] = x[i]; });
      gelu_far_below_zero<R, N>(z);
      for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { y[i] = R::select(x[i] < below, z[i], y[i]); });
    }
    for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { x[i] = y[i]; });
  }
};

struct Tanh {
  template <class R, int N>
  static HEADLANE_INLINE void apply(Group<R, N>& x) {
    odd_piecewise<R>(tanh_pieces, x);
  }
};

struct Erf {
  template <class R, int N>
  static HEADLANE_INLINE void apply(Group<R, N>& x) {
    odd_piecewise<R>(erf_pieces, x);
  }
};

/// x = f(x), exp_registers registers at a time.
template <class F, class Arch, int Vectors>
HEADLANE_INLINE void apply(Lanes<Arch> (&x)[Vectors]) {
  map_registers(x, [](auto& group) HEADLANE_INLINE_LAMBDA { F::template apply<Register<Arch>>(group); });
}

/// visit(F{}) with the struct of the activation; Activation::none is not visited.
template <class Visit>
HEADLANE_INLINE void with_activation(Activation activation, const Visit& visit) {
  switch (activation) {
    case Activation::none:
      return;
    case Activation::relu:
      return visit(Relu{});
    case Activation::gelu:
      return visit(Gelu{});
    case Activation::gelu_tanh:
      return visit(GeluTanh{});
    case Activation::silu:
      return visit(Silu{});
    case Activation::sigmoid:
      return visit(Sigmoid{});
    case Activation::tanh:
      return visit(Tanh{});
    case Activation::erf:
      return visit(Erf{});
  }
}

}  // namespace
}  // namespace headlane::internal::kernels
