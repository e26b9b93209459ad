// One token of linear attention, as in decoding: some columns of the state are read with the key,
// and once more to be updated. Reading whole rows, four at a time, took as long, and so did
// prefetching the next columns (Zen 4; states in the L2 and in the L3).
#pragma once

#include "kernels/args/recurrent.hpp"
#include "kernels/recurrent/linear_attention.hpp"

namespace headlane::internal::kernels {
namespace {

/// Columns of the state that are in registers, of which `left` exist.
template <class Arch, bool Whole>
struct StateColumns {
  using R = Register<Arch>;
  using Float = typename R::Float;
  static constexpr int count = state_registers<Arch>;

  Index left;

  HEADLANE_INLINE Float load(const float* p, int j) const {
    if constexpr (Whole) return R::load(p + j * R::width);
    else return R::load_some(p + j * R::width, left - j * R::width, 0.0f);
  }
  HEADLANE_INLINE void store(float* p, int j, Float x) const {
    if constexpr (Whole) R::store(p + j * R::width, x);
    else R::store_some(p + j * R::width, x, left - j * R::width);
  }
};

/// Columns from `first` on.
template <class Arch, bool Whole>
HEADLANE_INLINE void step_columns(const LinearAttentionTokens& x, Index first) {
  using Columns = StateColumns<Arch, Whole>;
  using Float = typename Columns::Float;
  constexpr int N = Columns::count;
  const Columns columns{x.columns - first};
  const Index rows = x.key_dim, from_step = x.from_step, to_step = x.to_step, decay_step = x.decay_step == 0 ? 0 : 1;
  const float *const q = x.q, *const k = x.k, *const decay = x.decay, *const from = x.from + first;
  float* const to = x.to + first;
  Float u[N], sum[N];
  for_each_register<N>([&](int j) HEADLANE_INLINE_LAMBDA {
    u[j] = columns.load(x.v + first, j);
    if (x.step != nullptr) u[j] = u[j] * Float(*x.step);
    sum[j] = Float(0.0f);
  });
  if (x.beta != nullptr) {
    for (Index i = 0; i < rows; ++i) {
      const Float key(k[i]), of_row(decay[i * decay_step]);
      for_each_register<N>([&](int j) HEADLANE_INLINE_LAMBDA {
        sum[j] = Register<Arch>::fma(columns.load(from + i * from_step, j) * of_row, key, sum[j]);
      });
    }
    for_each_register<N>([&](int j) HEADLANE_INLINE_LAMBDA {
      u[j] = (u[j] - sum[j]) * Float(*x.beta);
      sum[j] = Float(0.0f);
    });
  }
  for (Index i = 0; i < rows; ++i) {
    const Float query(q[i]), key(k[i]), of_row(decay[i * decay_step]);
    for_each_register<N>([&](int j) HEADLANE_INLINE_LAMBDA {
      const Float s = Register<Arch>::fma(key, u[j], columns.load(from + i * from_step, j) * of_row);
      columns.store(to + i * to_step, j, s);
      sum[j] = Register<Arch>::fma(s, query, sum[j]);
    });
  }
  for_each_register<N>([&](int j) HEADLANE_INLINE_LAMBDA {
    Float y = sum[j] * Float(x.scale);
    if (x.skip != nullptr) y = Register<Arch>::fma(Float(*x.skip), columns.load(x.v + first, j), y);
    columns.store(x.out + first, j, y);
  });
}

/// x.tokens is 1, and x.columns any number.
template <class Arch>
void linear_attention_step(const LinearAttentionTokens& x) noexcept {
  constexpr Index step = state_registers<Arch> * Register<Arch>::width;
  for (Index first = 0; first < x.columns; first += step) {
    x.columns - first >= step ? step_columns<Arch, true>(x, first) : step_columns<Arch, false>(x, first);
  }
}

}  // namespace
}  // namespace headlane::internal::kernels
