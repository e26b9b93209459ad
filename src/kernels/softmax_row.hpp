// Softmax of one row in three passes: maximum; exponentials and their sum; division.
#pragma once

#include "kernels/exp.hpp"

namespace headlane::kernels {
namespace {

/// f(position, count) for each 16 elements of n; only the last count may be below 16.
template <class F>
HEADLANE_INLINE void for_each_16(index n, const F& f) {
  index i = 0;
  for (; i + lanes <= n; i += lanes) f(i, Constant<1>{}, lanes);
  if (i < n) f(i, Constant<0>{}, n - i);
}

template <class Arch, bool Log>
HEADLANE_INLINE void softmax_passes(const SoftmaxRow& row) {
  using V = Lanes<Arch>;
  const V scale = V::broadcast(row.scale), minus_inf = V::broadcast(-__builtin_inff());
  // Lanes beyond the end hold -inf, which no maximum sees and whose exponential is 0. They are filled after the scale,
  // which may be 0 or negative.
  const auto scaled = [&](index i, auto whole, index count) {
    if constexpr (whole.value) return V::load(row.x + i) * scale;
    else return (V::load(row.x + i, count, 0.0f) * scale).first(count, minus_inf);
  };
  const auto store = [&](index i, auto whole, index count, const V& y) {
    if constexpr (whole.value) y.store(row.y + i);
    else y.store(row.y + i, count);
  };

  V largest = minus_inf;
  for_each_16(row.n, [&](index i, auto whole, index count) { largest = max(scaled(i, whole, count), largest); });
  const V m = V::broadcast(largest.reduce_max());

  V sum = V::zero();
  for_each_16(row.n, [&](index i, auto whole, index count) {
    const V p = exp_nonpositive(scaled(i, whole, count) - m);
    if constexpr (!Log) store(i, whole, count, p);
    sum = sum + p;
  });
  const V total = V::broadcast(sum.reduce_add());

  const V factor = V::broadcast(1.0f) / total, log_total = Log ? log(total) : total;
  for_each_16(row.n, [&](index i, auto whole, index count) {
    if constexpr (Log) store(i, whole, count, scaled(i, whole, count) - m - log_total);
    else if constexpr (whole.value) store(i, whole, count, V::load(row.y + i) * factor);
    else store(i, whole, count, V::load(row.y + i, count, 0.0f) * factor);
  });
}

template <class Arch>
void softmax_row(const SoftmaxRow& row) noexcept {
  if (row.log) softmax_passes<Arch, true>(row);
  else softmax_passes<Arch, false>(row);
}

}  // namespace
}  // namespace headlane::kernels
