// Softmax of one row in three passes: maximum; exponentials and their sum; division.
#pragma once

#include "kernels/exp.hpp"

namespace headlane::kernels {
namespace {

/// Lanes that a pass takes at once, as many as exp works on side by side.
template <class Arch>
inline constexpr int group_size = exp_registers<Arch> > Lanes<Arch>::parts ? exp_registers<Arch> / Lanes<Arch>::parts : 1;

/// f(position, Constant<vectors>, count) along n elements: groups, single Lanes, and last one with fewer than 16 elements.
template <class Arch, class F>
HEADLANE_INLINE void for_each_group(index n, const F& f) {
  constexpr index group = group_size<Arch> * lanes;
  index i = 0;
  for (; i + group <= n; i += group) f(i, Constant<group_size<Arch>>{}, group);
  if constexpr (group_size<Arch> > 1)
    for (; i + lanes <= n; i += lanes) f(i, Constant<1>{}, lanes);
  if (i < n) f(i, Constant<1>{}, n - i);
}

/// Stores exp(load(…) - m) and gives the sum: element i in lane i mod 16, then the fixed fold. `load(i, count)` fills lanes from
/// count on with -inf; `store(i, p, count)` may drop them.
template <class Arch, class Load, class Store>
HEADLANE_INLINE float exponentials(index n, const Lanes<Arch>& m, const Load& load, const Store& store) {
  using V = Lanes<Arch>;
  V sum = V::zero();
  for_each_group<Arch>(n, [&](index i, auto vectors, index count) {
    V p[vectors.value];
#pragma GCC unroll 4
    for (int j = 0; j < vectors.value; ++j) p[j] = load(i + j * lanes, count - j * lanes) - m;
    exp_nonpositive(p);
#pragma GCC unroll 4
    for (int j = 0; j < vectors.value; ++j) {
      store(i + j * lanes, p[j], count - j * lanes);
      sum = sum + p[j];
    }
  });
  return sum.reduce_add();
}

template <class Arch, bool Log>
HEADLANE_INLINE void softmax_passes(const SoftmaxRow& row) {
  using V = Lanes<Arch>;
  const V scale = V::broadcast(row.scale), minus_inf = V::broadcast(-__builtin_inff());
  // The lanes beyond the end are filled after the scale, which may be 0 or negative.
  const auto load = [&](index i, index count) {
    return count >= lanes ? V::load(row.x + i) * scale : (V::load(row.x + i, count, 0.0f) * scale).first(count, minus_inf);
  };
  const auto store = [&](index i, const V& y, index count) {
    count >= lanes ? y.store(row.y + i) : y.store(row.y + i, count);
  };

  V largest[group_size<Arch>];  // several, for max has a latency of its own
  for (V& v : largest) v = minus_inf;
  for_each_group<Arch>(row.n, [&](index i, auto vectors, index count) {
#pragma GCC unroll 4
    for (int j = 0; j < vectors.value; ++j) largest[j] = max(load(i + j * lanes, count - j * lanes), largest[j]);
  });
  for (const V& v : largest) largest[0] = max(v, largest[0]);
  const V m = V::broadcast(largest[0].reduce_max());

  const V sum = V::broadcast(exponentials<Arch>(row.n, m, load, [&](index i, const V& p, index count) {
    if constexpr (!Log) store(i, p, count);
  }));

  const V log_sum = Log ? log(sum) : sum, factor = V::broadcast(1.0f) / sum;
  for_each_group<Arch>(row.n, [&](index first, auto vectors, index total) {
#pragma GCC unroll 4
    for (int j = 0; j < vectors.value; ++j) {
      const index i = first + j * lanes, count = total - j * lanes;
      if constexpr (Log) store(i, load(i, count) - m - log_sum, count);
      else store(i, (count >= lanes ? V::load(row.y + i) : V::load(row.y + i, count, 0.0f)) * factor, count);
    }
  });
}

template <class Arch>
void softmax_row(const SoftmaxRow& row) noexcept {
  if (row.log) softmax_passes<Arch, true>(row);
  else softmax_passes<Arch, false>(row);
}

}  // namespace
}  // namespace headlane::kernels
