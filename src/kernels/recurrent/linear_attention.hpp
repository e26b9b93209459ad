// Linear attention: the state of a head, some columns at a time, goes through the tokens in order.
#pragma once

#include "kernels/args/recurrent.hpp"
#include "kernels/simd/lanes.hpp"

namespace headlane::internal::kernels {
namespace {

/// Registers of columns that go through the rows of the state side by side. Each has two chains of
/// fma, of 4 cycles a row, and takes 4 operations of the FMA pipes a row.
template <class Arch>
inline constexpr int state_registers = Register<Arch>::width == 16 ? 2 : 4;

/// How many tokens before they are needed values and output are prefetched.
inline constexpr Index tokens_ahead = 2;

/// The factors of the rows of the state while a token passes.
struct StateFactors {
  const float *q, *k;  ///< of the token
  const float* next;   ///< the key of the next token
  const float* decay;  ///< of the next token; of all rows, or of each row
};

/// A token: adds k · u to the state, reads it with q, and leaves it as the next token finds it,
/// decayed and read with its key. One pass, so that each element is loaded and stored once a token.
template <class Arch, bool Delta, bool PerRow, int N>
HEADLANE_INLINE void pass_token(Index rows, const StateFactors& x, const float* from, Index from_step, float* to,
                                Index to_step, const typename Register<Arch>::Float (&u)[N],
                                typename Register<Arch>::Float (&out)[N], typename Register<Arch>::Float (&read)[N]) {
  using R = Register<Arch>;
  using Float = typename R::Float;
  for_each_register<N>([&](int j) HEADLANE_INLINE_LAMBDA { out[j] = read[j] = Float(0.0f); });
  const Float of_all(*x.decay);
  for (Index i = 0; i < rows; ++i) {
    const Float k(x.k[i]), q(x.q[i]), next(x.next[i]), decay = PerRow ? Float(x.decay[i]) : of_all;
    for_each_register<N>([&](int j) HEADLANE_INLINE_LAMBDA {
      Float s = R::fma(k, u[j], R::load(from + i * from_step + j * R::width));
      out[j] = R::fma(s, q, out[j]);
      s = s * decay;
      if constexpr (Delta) read[j] = R::fma(s, next, read[j]);
      R::store(to + i * to_step + j * R::width, s);
    });
  }
}

/// The state before the first token: decayed, and read with its key.
template <class Arch, bool Delta, bool PerRow, int N>
HEADLANE_INLINE void begin_tokens(Index rows, const float* k, const float* decay, const float* from, Index from_step,
                                  float* to, typename Register<Arch>::Float (&read)[N]) {
  using R = Register<Arch>;
  using Float = typename R::Float;
  for_each_register<N>([&](int j) HEADLANE_INLINE_LAMBDA { read[j] = Float(0.0f); });
  for (Index i = 0; i < rows; ++i) {
    const Float key(k[i]), of_row(PerRow ? decay[i] : *decay);
    for_each_register<N>([&](int j) HEADLANE_INLINE_LAMBDA {
      const Float s = R::load(from + i * from_step + j * R::width) * of_row;
      if constexpr (Delta) read[j] = R::fma(s, key, read[j]);
      R::store(to + i * state_columns + j * R::width, s);
    });
  }
}

/// Values and output of a later token, whose rows are far apart. A token waits for its values, and
/// the stores of the state for those to out before them.
template <class Arch>
HEADLANE_INLINE void prefetch_token(const LinearAttentionTokens& x, Index t, Index first) {
  const Index later = t + tokens_ahead, left = x.columns - first;
  if (later >= x.tokens) return;
  for (Index i = 0; i < state_registers<Arch> * Register<Arch>::width && i < left; i += lanes) {
    __builtin_prefetch(x.v + later * x.v_step + first + i);
    __builtin_prefetch(x.out + later * x.out_step + first + i, 1);
  }
}

/// All tokens, for N registers of columns from `first` on. The last columns may be missing in v and
/// out; the state has them.
template <class Arch, bool Delta, bool PerRow>
HEADLANE_INLINE void pass_tokens(const LinearAttentionTokens& x, Index first) {
  using R = Register<Arch>;
  using Float = typename R::Float;
  constexpr int N = state_registers<Arch>;
  Float u[N], out[N], read[N];
  float* const block = x.block + first;
  begin_tokens<Arch, Delta, PerRow>(x.key_dim, x.k, x.decay, x.from + first, x.from_step, block, read);
  for (Index t = 0; t < x.tokens; ++t) {
    const float* const v = x.v + t * x.v_step + first;
    const Index left = x.columns - first, next = t + 1 < x.tokens ? t + 1 : t;
    prefetch_token<Arch>(x, t, first);
    for_each_register<N>([&](int j) HEADLANE_INLINE_LAMBDA {
      u[j] = R::load_some(v + j * R::width, left - j * R::width, 0.0f);
      if (x.step != nullptr) u[j] = u[j] * Float(x.step[t]);
      if constexpr (Delta) u[j] = (u[j] - read[j]) * Float(x.beta[t]);
    });
    const bool is_last = t + 1 == x.tokens;
    const StateFactors factors{x.q + t * x.q_step, x.k + t * x.k_step, x.k + next * x.k_step,
                               x.decay + (t + 1) * (PerRow ? x.decay_step : 1)};
    pass_token<Arch, Delta, PerRow>(x.key_dim, factors, block, state_columns, is_last ? x.to + first : block,
                                    is_last ? x.to_step : state_columns, u, out, read);
    float* const to = x.out + t * x.out_step + first;
    for_each_register<N>([&](int j) HEADLANE_INLINE_LAMBDA {
      Float y = out[j] * Float(x.scale);
      if (x.skip != nullptr) y = R::fma(Float(*x.skip), R::load_some(v + j * R::width, left - j * R::width, 0.0f), y);
      R::store_some(to + j * R::width, y, left - j * R::width);
    });
  }
}

template <class Arch>
void linear_attention(const LinearAttentionTokens& x) noexcept {
  constexpr Index step = state_registers<Arch> * Register<Arch>::width;
  for (Index first = 0; first < x.columns; first += step) {
    if (x.beta == nullptr) {
      x.decay_step == 0 ? pass_tokens<Arch, false, false>(x, first) : pass_tokens<Arch, false, true>(x, first);
    } else {
      x.decay_step == 0 ? pass_tokens<Arch, true, false>(x, first) : pass_tokens<Arch, true, true>(x, first);
    }
  }
}

}  // namespace
}  // namespace headlane::internal::kernels
