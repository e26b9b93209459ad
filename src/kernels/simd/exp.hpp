// exp and log on Lanes. Their errors over all 2^32 inputs are measured by
// tests/rowwise/exp_exhaustive.cpp.
#pragma once

#include "kernels/simd/lanes.hpp"

namespace headlane::internal::kernels {
namespace {

/// Registers that go through exp side by side. Its chain of a dozen dependent operations is some 50
/// cycles long; one register after the other, a scheduler of 100 entries holds too few chains to
/// fill two FMA pipes. AVX2 has 16 registers, of which four chains spill some (Zen 5: 2.7 ns for 16
/// floats instead of 2.1), as do sixteen of plain floats.
template <class Arch>
inline constexpr int exp_registers = Register<Arch>::width == 1 ? 1 : (Register<Arch>::width == 8 ? 2 : 4);

/// The bits of 2^(j/8) minus j·2^20, j = 0 … 7: adding n·2^20, n = 8·k + j, makes them those of
/// 2^(n/8). Twice, since a register may have 16 lanes.
constexpr std::int32_t power_table[16] = {0x3f800000, 0x3f7b95c2, 0x3f7837f0, 0x3f75fed7, 0x3f7504f3, 0x3f75672a,
                                          0x3f7744fd, 0x3f7ac0c7, 0x3f800000, 0x3f7b95c2, 0x3f7837f0, 0x3f75fed7,
                                          0x3f7504f3, 0x3f75672a, 0x3f7744fd, 0x3f7ac0c7};

/// The parts of exp(a) of N registers, a = x / Factor, Factor a power of two, its sign at will: n =
/// 8 · a / ln2, rounded to an integer, `shifted` with n in its low bits, and x becomes exp(r) - 1
/// with r = a - n·ln2/8. `tail`, if there is one, is added to x. The polynomial of degree 4 is
/// minimax in relative error of exp (0.02·2^-24). With degree 3 exp is 1.2 ULP off, and softmax 5 %
/// faster. Range reduction after Cody and Waite 1980, the table after Tang 1989.
template <class R, int Factor = 1, int N>
HEADLANE_INLINE void exp_parts(typename R::Float (&x)[N], typename R::Float (&n)[N], typename R::Int (&shifted)[N],
                               const typename R::Float* tail = nullptr) {
  using Float = typename R::Float;
  constexpr float f = Factor;
  const Float magic(0x1.8p23f);  // adding it rounds to an integer, which then stands in the low bits
  Float r[N];
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { n[i] = R::fma(x[i], Float(0x1.715476p3f / f), magic); });
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { shifted[i] = R::as_int(n[i]); });
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { n[i] = n[i] - magic; });
  for_each_register<N>(
      [&](int i) HEADLANE_INLINE_LAMBDA { r[i] = R::fma(n[i], Float(-0x1.62cp-4f * f), x[i]); });  // ln2/8, high part
  for_each_register<N>(
      [&](int i) HEADLANE_INLINE_LAMBDA { r[i] = R::fma(n[i], Float(-0x1.217f7ep-15f * f), r[i]); });  // and low part
  if (tail != nullptr) for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { r[i] = r[i] + tail[i]; });
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA {
    x[i] = R::fma(Float(0x1.54a694p-5f / (f * f * f * f)), r[i], Float(0x1.555396p-3f / (f * f * f)));
  });
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { x[i] = R::fma(x[i], r[i], Float(0.5f / (f * f))); });
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { x[i] = R::fma(x[i], r[i], Float(1.0f / f)); });
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { x[i] = x[i] * r[i]; });
}

/// f on all registers of x from `First` on, exp_registers at a time.
template <class Arch, int First = 0, int Vectors, class F>
HEADLANE_INLINE void map_registers(Lanes<Arch> (&x)[Vectors], const F& f) {
  constexpr int parts = Lanes<Arch>::parts, rest = Vectors * parts - First;
  constexpr int count = rest < exp_registers<Arch> ? rest : exp_registers<Arch>;
  if constexpr (rest > 0) {
    typename Register<Arch>::Float group[count];
    for_each_register<count>(
        [&](int i) HEADLANE_INLINE_LAMBDA { group[i] = x[(First + i) / parts].part[(First + i) % parts]; });
    f(group);
    for_each_register<count>(
        [&](int i) HEADLANE_INLINE_LAMBDA { x[(First + i) / parts].part[(First + i) % parts] = group[i]; });
    map_registers<Arch, First + count>(x, f);
  }
}

/// x = exp(x), at most 1 ULP from the exact value for every x, underflow to denormals and to 0
/// included. exp(0) is exactly 1, exp(-inf) is 0, exp(x > 88.73) is +inf, NaN stays NaN.
template <class Arch>
HEADLANE_INLINE Lanes<Arch> exp(const Lanes<Arch>& x) {
  using R = Register<Arch>;
  using Float = typename R::Float;
  Lanes<Arch> y[1] = {x};
  map_registers(y, [](auto& group) HEADLANE_INLINE_LAMBDA {
    constexpr int count = sizeof(group) / sizeof(group[0]);
    Float n[count];
    typename R::Int shifted[count];
    // exp(-104) < 2^-150 rounds to 0, exp(89) > 2^128. max and min return their second operand if
    // one is NaN.
    for_each_register<count>(
        [&](int i) HEADLANE_INLINE_LAMBDA { group[i] = R::min(Float(89.0f), R::max(Float(-104.0f), group[i])); });
    exp_parts<R>(group, n, shifted);
    for_each_register<count>([&](int i) HEADLANE_INLINE_LAMBDA {
      const auto whole = R::shift_right(shifted[i] - 0x4b400000, 3), eighths = shifted[i] - (whole << 3);
      const Float power = R::as_float((eighths << 20) + R::lookup(power_table, eighths));
      group[i] = R::scale(R::fma(power, group[i], power), n[i] * Float(0.125f), whole + 0x4b400000);
    });
  });
  return y[0];
}

/// exp_nonpositive() of N registers x = Factor · a; see exp_parts() for the tail.
template <class R, int Factor = 1, int N>
HEADLANE_INLINE void exp_nonpositive_registers(typename R::Float (&x)[N], const typename R::Float* tail = nullptr) {
  using Float = typename R::Float;
  Float n[N], y[N];
  typename R::Int shifted[N];
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA { y[i] = x[i]; });
  exp_parts<R, Factor>(y, n, shifted, tail);
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA {
    const Float power = R::as_float((shifted[i] << 20) + R::lookup(power_table, shifted[i]));
    y[i] = R::fma(power, y[i], power);
  });
  constexpr float least = -0x1.5d589ep6f * Factor;  // the first from which all powers are normal
  for_each_register<N>([&](int i) HEADLANE_INLINE_LAMBDA {
    x[i] = R::select(Factor > 0 ? x[i] < Float(least) : x[i] > Float(least), Float(0.0f), y[i]);
  });
}

/// exp for x <= 0 (and NaN) in softmax, cheaper and several Lanes at a time. Below -87.3365 it
/// returns 0, where exp() still returns denormals, which are slow on some CPUs and contribute
/// nothing. Elsewhere the bits of exp().
template <class Arch, int Vectors>
HEADLANE_INLINE void exp_nonpositive(Lanes<Arch> (&x)[Vectors]) {
  map_registers(x, [](auto& group) HEADLANE_INLINE_LAMBDA { exp_nonpositive_registers<Register<Arch>>(group); });
}

/// log(x), at most 1 ULP from the exact value for every x; log(1) is 0, log(±0) is -inf, log(x < 0)
/// is NaN, NaN stays.
///
/// x = 2^e·(1 + f), sqrt(1/2) <= 1 + f < sqrt(2); log(1 + f) = f - f²/2 + f³·P(f), P of degree 7,
/// minimax in relative error of the whole (0.1·2^-24).
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
    const auto exponent = R::shift_right(bits - 0x3f3504f3, 23);  // of sqrt(1/2)
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

/// Lanes of one step of a pass, as many as exp works on side by side.
template <class Arch>
inline constexpr int group_size =
    exp_registers<Arch> > Lanes<Arch>::parts ? exp_registers<Arch> / Lanes<Arch>::parts : 1;

/// Calls f(position, Constant<vectors>, count) along n elements: for groups, then single Lanes,
/// then the last one of fewer than 16 elements.
template <class Arch, class F>
HEADLANE_INLINE void for_each_group(Index n, const F& f) {
  constexpr Index group = group_size<Arch> * lanes;
  Index i = 0;
  for (; i + group <= n; i += group) f(i, Constant<group_size<Arch>>{}, group);
  if constexpr (group_size<Arch> > 1)
    for (; i + lanes <= n; i += lanes) f(i, Constant<1>{}, lanes);
  if (i < n) f(i, Constant<1>{}, n - i);
}

}  // namespace
}  // namespace headlane::internal::kernels
