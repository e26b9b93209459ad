// Softmax of rows, each in three passes: maximum; exponentials and their sum; division.
#pragma once

#include "kernels/args/rowwise.hpp"
#include "kernels/simd/exp.hpp"

namespace headlane::internal::kernels {
namespace {

/// Stores exp(load(…)) and returns the sum: element i in lane i mod 16, then the fixed fold.
/// `load(i, count)` returns values <= 0, and -inf in the lanes from count on, which `store(i, p,
/// count)` may drop.
template <class Arch, class Load, class Store>
HEADLANE_INLINE float exponentials(Index n, const Load& load, const Store& store) {
  using V = Lanes<Arch>;
  V sum = V::zero();
  for_each_group<Arch>(n, [&](Index i, auto vectors, Index count) HEADLANE_INLINE_LAMBDA {
    V p[vectors.value];
#pragma GCC unroll 4
    for (int j = 0; j < vectors.value; ++j) p[j] = load(i + j * lanes, count - j * lanes);
    exp_nonpositive(p);
#pragma GCC unroll 4
    for (int j = 0; j < vectors.value; ++j) {
      store(i + j * lanes, p[j], count - j * lanes);
      sum = sum + p[j];
    }
  });
  return sum.reduce_add();
}

/// scale · x + shift of 16 elements. Lanes from `count` on are -inf and their memory is not
/// touched: they are filled after the scale, which may be 0 or negative. Not Scaled: the scale is
/// 1, and the sum alone has the same bits; some CPUs have adders beside their FMA units.
template <class Arch, bool Scaled>
HEADLANE_INLINE Lanes<Arch> scaled(const float* x, Index count, const Lanes<Arch>& scale, const Lanes<Arch>& shift) {
  using V = Lanes<Arch>;
  const auto apply = [&](const V& v) HEADLANE_INLINE_LAMBDA { return Scaled ? fma(v, scale, shift) : v + shift; };
  if (count >= lanes) return apply(V::load(x));
  return apply(V::load(x, count, 0.0f)).first(count, V::broadcast(-__builtin_inff()));
}

/// The largest score of a row: the first pass.
template <class Arch, bool Scaled>
HEADLANE_INLINE float largest_of_row(float scale_of_x, Index n, const float* x) {
  using V = Lanes<Arch>;
  const V scale = V::broadcast(scale_of_x);
  V largest[group_size<Arch>];  // several, for max has a latency of its own
  for (V& v : largest) v = V::broadcast(-__builtin_inff());
  for_each_group<Arch>(n, [&](Index i, auto vectors, Index count) {
#pragma GCC unroll 4
    for (int j = 0; j < vectors.value; ++j)
      largest[j] = max(scaled<Arch, Scaled>(x + i + j * lanes, count - j * lanes, scale, V::zero()), largest[j]);
  });
  for (const V& v : largest) largest[0] = max(v, largest[0]);
  return largest[0].reduce_max();
}

/// From here on the rounding of the largest score, which all differences to it contain, may exceed
/// 2. The error bound has room for no more, and exp for values of up to 88.
inline constexpr float first_far = 0x1p26f;

template <class Arch, bool Log>
void softmax_far_below(float largest, float scale_of_x, Index n, const float* x, float* y);

/// The second and third pass over a row, whose largest score is `largest`. between() is called
/// between them.
template <class Arch, bool Log, bool Scaled, class Between>
HEADLANE_INLINE void softmax_below(float largest, float scale_of_x, Index n, const float* x, float* y, Index x_ahead,
                                   Index y_ahead, const Between& between) {
  using V = Lanes<Arch>;
  const float size = __builtin_fabsf(largest);
  if (Scaled && scale_of_x != 1.0f && size >= first_far && size < __builtin_inff()) [[unlikely]] {
    softmax_far_below<Arch, Log>(largest, scale_of_x, n, x, y);
    return between();
  }
  const V scale = V::broadcast(scale_of_x), shift = V::broadcast(-largest);
  const auto load = [&](Index i, Index count) {
    __builtin_prefetch(x + x_ahead + i);  // the next row comes while this one keeps the FMA units busy
    __builtin_prefetch(y + y_ahead + i, 1);
    return scaled<Arch, Scaled>(x + i, count, scale, shift);
  };
  V last = V::zero();  // fewer than 16: not stored and loaded again, which would wait for the store
  const float sum = exponentials<Arch>(n, load, [&](Index i, const V& p, Index count) {
    if (Log) return;
    if (count >= lanes) p.store(y + i);
    else last = p;
  });
  const V log_sum = Log ? log(V::broadcast(sum)) : V::zero(), factor = V::broadcast(1.0f / sum);
  between();
  const auto divide = [&](Index i, Index count) HEADLANE_INLINE_LAMBDA {
    if constexpr (Log) store_some(y + i, count, scaled<Arch, Scaled>(x + i, count, scale, shift) - log_sum);
    else if (count >= lanes) (V::load(y + i) * factor).store(y + i);
    else (last * factor).store(y + i, count);
  };
  constexpr int group = group_size<Arch>;
  Index i = 0;
  if constexpr (group > 1)
    for (; i + group * lanes <= n; i += group * lanes)
#pragma GCC unroll 4
      for (int j = 0; j < group; ++j) divide(i + j * lanes, lanes);
  for (; i < n; i += lanes) divide(i, n - i);
}

/// A row of so many Lanes, which stays in registers. The scale is 1.
template <class Arch, int Vectors>
HEADLANE_INLINE void softmax_short_row(const SoftmaxRows& rows, const float* x, float* y, Index x_ahead,
                                       Index y_ahead) {
  using V = Lanes<Arch>;
  const V least = V::broadcast(-__builtin_inff());
  const auto count = [&](int j) HEADLANE_INLINE_LAMBDA { return j + 1 < Vectors ? lanes : rows.n - j * lanes; };
  V p[Vectors], largest = least, sum = V::zero();
#pragma GCC unroll 8
  for (int j = 0; j < Vectors; ++j) {
    __builtin_prefetch(x + x_ahead + j * lanes);
    __builtin_prefetch(y + y_ahead + j * lanes, 1);
    p[j] = load_some<Arch>(x + j * lanes, count(j));
  }
  V& last = p[Vectors - 1];
  last = last.first(count(Vectors - 1), least);
#pragma GCC unroll 8
  for (int j = 0; j < Vectors; ++j) largest = max(p[j], largest);
  const V shift = V::broadcast(-largest.reduce_max());
#pragma GCC unroll 8
  for (int j = 0; j < Vectors; ++j) p[j] = p[j] + shift;
  last = last.first(count(Vectors - 1), least);  // -inf - -inf is NaN
  exp_nonpositive(p);
#pragma GCC unroll 8
  for (int j = 0; j < Vectors; ++j) sum = sum + p[j];
  const V factor = V::broadcast(1.0f / sum.reduce_add());
#pragma GCC unroll 8
  for (int j = 0; j < Vectors; ++j) store_some(y + j * lanes, count(j), p[j] * factor);
}

/// Rows are prefetched this many elements ahead (and at least one row): softmax of 4096 × 512 from
/// the L3 takes 2.3 instead of 3.0 times a copy on Zen 5.
inline constexpr Index prefetch_distance = 1536;

/// The longest row before whose third pass the maximum of the next row is found. Together with the
/// unrolled third pass, rows of 64, 128 and 512 elements take 0.8, 0.88 and 0.87 of the time (Zen
/// 4). x and y of a row and x of the next one fit into an L1 of 32 KiB. Slower with AVX2: 1.0 to
/// 1.2 times the time.
template <class Arch>
inline constexpr Index longest_early = group_size<Arch> == 4 ? 2048 : 0;

/// Calls f(x, y, x_ahead, y_ahead) for each row.
template <class F>
HEADLANE_INLINE void for_each_row(const SoftmaxRows& rows, const F& f) {
  const Index distance = 1 + prefetch_distance / rows.n;
  for (Index i = 0; i < rows.rows; ++i) {
    const Index ahead = i + distance < rows.rows ? distance : 0;
    f(rows.x + i * rows.x_step, rows.y + i * rows.y_step, ahead * rows.x_step, ahead * rows.y_step);
  }
}

/// Rows up to this length stay in registers: 16 and 32 elements take 0.73 and 0.81 of what three
/// passes take (Emerald Rapids, AVX-512), 40, 48, 64, 80 and 112 take 0.7, 0.82, 0.97, 0.85 and
/// 0.9, with AVX2 0.71, 0.8, 0.84, 0.85 and 0.91; 128 would take 1.03 (Zen 4).
inline constexpr Index longest_in_registers = 112;

/// Not inline, with a copy of the arguments: in one function, which read them again after each
/// store, rows of 16 and 64 took 1.17 and 1.07 of this time.
template <class Arch, bool Log, bool Scaled>
__attribute__((noinline)) void softmax_rows_of_kind(const SoftmaxRows& given) {
  const SoftmaxRows rows = given;
  if constexpr (!Log && !Scaled && Register<Arch>::width >= 8) {
    const auto short_rows = [&](auto vectors) HEADLANE_INLINE_LAMBDA {
      for_each_row(rows, [&](auto... of_row)
                             HEADLANE_INLINE_LAMBDA { softmax_short_row<Arch, vectors.value>(rows, of_row...); });
    };
    if (rows.n <= longest_in_registers)
      return with_constant<longest_in_registers / lanes>((rows.n + lanes - 1) / lanes, short_rows);
  }
  const bool is_early = rows.n <= longest_early<Arch>;
  const float* const last = rows.x + (rows.rows - 1) * rows.x_step;
  float next = 0;
  if (is_early) next = largest_of_row<Arch, Scaled>(rows.scale, rows.n, rows.x);
  for_each_row(rows, [&](const float* x, float* y, Index x_ahead, Index y_ahead) HEADLANE_INLINE_LAMBDA {
    const float largest = is_early ? next : largest_of_row<Arch, Scaled>(rows.scale, rows.n, x);
    softmax_below<Arch, Log, Scaled>(largest, rows.scale, rows.n, x, y, x_ahead, y_ahead, [&] {
      if (is_early && x != last) next = largest_of_row<Arch, Scaled>(rows.scale, rows.n, x + rows.x_step);
    });
  });
}

/// softmax_below() of a row whose scores are far from 0: y first becomes the differences to
/// `largest`, whose own maximum is subtracted without a rounding.
template <class Arch, bool Log>
__attribute__((noinline)) void softmax_far_below(float largest, float scale_of_x, Index n, const float* x, float* y) {
  using V = Lanes<Arch>;
  const V scale = V::broadcast(scale_of_x), shift = V::broadcast(-largest);
  for (Index i = 0; i < n; i += lanes) store_some(y + i, n - i, scaled<Arch, true>(x + i, n - i, scale, shift));
  softmax_rows_of_kind<Arch, Log, true>(
      {.x = y, .y = y, .x_step = n, .y_step = n, .rows = 1, .n = n, .scale = 1.0f, .log = Log});
}

template <class Arch>
void softmax_rows(const SoftmaxRows& rows) noexcept {
  if (rows.log) softmax_rows_of_kind<Arch, true, true>(rows);
  else if (rows.scale != 1.0f) softmax_rows_of_kind<Arch, false, true>(rows);
  else softmax_rows_of_kind<Arch, false, false>(rows);
}

}  // namespace
}  // namespace headlane::internal::kernels
