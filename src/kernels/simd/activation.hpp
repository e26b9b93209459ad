// Activations of groups of registers, side by side as in exp.hpp. All but relu are computed from h
// = t / (1 + t) or from t = exp(-…) alone, with t <= 1: nothing cancels and nothing overflows.
// tests/rowwise/exp_exhaustive.cpp measures their errors over all 2^32 inputs.
#pragma once

#include "kernels/simd/exp.hpp"

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

/// |x|. NaN stays NaN, here and in all that follows: max and min return their second operand if one
/// is NaN.
template <class R>
HEADLANE_INLINE typename R::Float magnitude(typename R::Float x) {
  return R::max(x, typename R::Float(0.0f) - x);
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
    for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { h[i] = Float(0.0f) - magnitude<R>(x[i]); });
    logistic<R, N>(h);
    for_each_register<N>(
        [&](int i) HEADLANE_INLINE_LAMBDA { x[i] = R::select(x[i] < Float(0.0f), h[i], Float(1.0f) - h[i]); });
  }
};

/// max(x, 0) - a · h with a = |x|, which is x · h for x < 0 and x · (1 - h) otherwise.
template <class R>
HEADLANE_INLINE typename R::Float gated(typename R::Float x, typename R::Float a, typename R::Float h) {
  using Float = typename R::Float;
  return R::fma(Float(0.0f) - a, h, R::max(Float(0.0f), x));
}

/// x becomes x · sigmoid(z), z an odd function of x; minus_z(|x|) is -z(|x|). Beyond `cut_off` the
/// result is 0 or x already; |x| is limited to it, since inf · 0 is NaN.
template <class R, int N, class MinusZ>
HEADLANE_INLINE void times_sigmoid(Group<R, N>& x, float cut_off, const MinusZ& minus_z) {
  using Float = typename R::Float;
  Float a[N], h[N];
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { a[i] = R::min(Float(cut_off), magnitude<R>(x[i])); });
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

/// Hendrycks and Gimpel 2016, with tanh: z = 2·sqrt(2/pi) · (x + 0.044715·x³).
struct GeluTanh {
  template <class R, int N>
  static HEADLANE_INLINE void apply(Group<R, N>& x) {
    using Float = typename R::Float;
    times_sigmoid<R, N>(x, 20.0f, [](Float a) { return R::fma(a * a, Float(-0.07135481f), Float(-1.5957691f)) * a; });
  }
};

/// x · Phi(x) = max(x, 0) - |x| · h with h = Phi(-|x|) = exp(-x²/2) · w · P(w), w = 1 / (1 +
/// 0.2125·|x|). P has degree 8, minimax in relative error (0.5·2^-24) up to |x| = 13.4, where exp
/// underflows. exp multiplies the rounding error of x² by x², so it is added back.
struct Gelu {
  template <class R, int N>
  static HEADLANE_INLINE void apply(Group<R, N>& x) {
    using Float = typename R::Float;
    constexpr float coefficients[] = {-0x1.03d996p-4f, 0x1.e1e3aap-3f, -0x1.f0d642p-3f, 0x1.0a402ep-2f, -0x1.3d2772p-5f,
                                      0x1.aacc3ap-4f,  0x1.339dcep-4f, 0x1.5dc7f6p-4f,  0x1.5b1fc6p-4f};
    Float a[N], t[N], low[N], w[N], p[N];
    for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { a[i] = R::min(Float(14.0f), magnitude<R>(x[i])); });
    for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { t[i] = a[i] * a[i]; });
    for_each_register<N>(
        [&](int i) HEADLANE_INLINE_LAMBDA { low[i] = R::fma(a[i], a[i], Float(0.0f) - t[i]) * Float(-0.5f); });
    for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { t[i] = t[i] * Float(-0.5f); });
    for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA {
      w[i] = R::divide(Float(1.0f), R::fma(a[i], Float(0.2125f), Float(1.0f)));
    });
    exp_nonpositive_registers<R>(t);
    polynomial<R, N>(coefficients, w, p);
    for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA {
      const Float h = R::fma(t[i], low[i], t[i]) * (w[i] * p[i]);
      x[i] = gated<R>(x[i], a[i], h);
    });
  }
};

/// Up to |x| = 0.625 x + x³·P(x²), P of degree 4, minimax in relative error (0.08·2^-24); above it
/// 1 - 2·h.
struct Tanh {
  template <class R, int N>
  static HEADLANE_INLINE void apply(Group<R, N>& x) {
    using Float = typename R::Float;
    constexpr float coefficients[] = {-0x1.754f46p-8f, 0x1.52041cp-6f, -0x1.b836c8p-5f, 0x1.1106fap-3f,
                                      -0x1.555532p-2f};
    Float h[N], square[N], p[N];
    for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { h[i] = magnitude<R>(x[i]) * Float(-2.0f); });
    logistic<R, N>(h);
    for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { square[i] = x[i] * x[i]; });
    polynomial<R, N>(coefficients, square, p);
    for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA {
      const Float large = R::fma(h[i], Float(-2.0f), Float(1.0f));
      const Float signed_large = R::select(x[i] < Float(0.0f), Float(0.0f) - large, large);
      // Where x² underflows to 0 the result is x itself, including the sign of a zero.
      const Float small = R::select(square[i] == Float(0.0f), x[i], R::fma(p[i] * square[i], x[i], x[i]));
      x[i] = R::select(square[i] < Float(0.625f * 0.625f), small, signed_large);
    });
  }
};

/// Up to |x| = 0.93 x + x·P(x²), P of degree 5, minimax in relative error (0.3·2^-24); above it 1 -
/// exp(-t - t·Q(t)), t = |x|, Q of degree 6 (0.01·2^-24) up to 4, where the result is 1. The split
/// into two branches is N. Juffa's.
struct Erf {
  template <class R, int N>
  static HEADLANE_INLINE void apply(Group<R, N>& x) {
    using Float = typename R::Float;
    constexpr float near[] = {-0x1.38742ep-11f, 0x1.46d9e4p-8f,  -0x1.b67c04p-6f,
                              0x1.ce1986p-4f,   -0x1.8126e2p-2f, 0x1.06eba6p-3f};
    constexpr float far[] = {0x1.859e82p-17f, -0x1.567ba0p-12f, 0x1.df75fep-9f, -0x1.85db76p-6f,
                             0x1.b34da2p-4f,  0x1.452f82p-1f,   0x1.077bdep-3f};
    Float t[N], e[N], square[N], p[N];
    for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { t[i] = R::min(Float(4.0f), magnitude<R>(x[i])); });
    polynomial<R, N>(far, t, e);
    for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { e[i] = Float(0.0f) - R::fma(e[i], t[i], t[i]); });
    exp_nonpositive_registers<R>(e);
    for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { square[i] = x[i] * x[i]; });
    polynomial<R, N>(near, square, p);
    for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA {
      const Float large = Float(1.0f) - e[i];
      const Float signed_large = R::select(x[i] < Float(0.0f), Float(0.0f) - large, large);
      x[i] = R::select(square[i] < Float(0.93f * 0.93f), R::fma(p[i], x[i], x[i]), signed_large);
    });
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
