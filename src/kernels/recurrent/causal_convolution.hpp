// Causal convolution: each channel by its own weights.
#pragma once

#include "kernels/args/recurrent.hpp"
#include "kernels/simd/lanes.hpp"

namespace headlane::internal::kernels {
namespace {

/// The width that models have, for which weights stay in registers.
inline constexpr int usual_width = 4;

/// Tokens that share a load of the weights, and of rows: in models these are a multiple of 4 KiB
/// apart, so that lines of the same channels share a set of the L1.
template <class Arch>
inline constexpr int convolved_together = Register<Arch>::width == 16 ? 4 : 2;

/// Up to 16 channels of some tokens. The rows of later tokens are prefetched: each of them is in
/// another page, where the CPU's own prefetching begins anew.
template <class Arch, int Tokens>
HEADLANE_INLINE void convolve_usual(const ConvolvedTokens& x, Index t, Index c) {
  using V = Lanes<Arch>;
  const Index count = x.channels - c, later = t + 2 * Tokens;
  const float* const* const rows = x.rows + t;
  if (later + Tokens <= x.tokens) {
    for_each_register<Tokens>([&](int i) HEADLANE_INLINE_LAMBDA {
      __builtin_prefetch(x.rows[later + usual_width - 1 + i] + c);
      __builtin_prefetch(x.y + (later + i) * x.y_step + c, 1);
    });
  }
  V weight[usual_width], sum[Tokens];
  for_each_register<usual_width>([&](int j)
                                     HEADLANE_INLINE_LAMBDA { weight[j] = V::load(x.weight + j * x.weight_step + c); });
  for_each_register<Tokens>(
      [&](int i) HEADLANE_INLINE_LAMBDA { sum[i] = x.bias != nullptr ? V::load(x.bias + c) : V::zero(); });
  for_each_register<usual_width + Tokens - 1>([&](int r) HEADLANE_INLINE_LAMBDA {
    const V row = load_some<Arch>(rows[r] + c, count);
    for_each_register<Tokens>([&](int i) HEADLANE_INLINE_LAMBDA {
      if (0 <= r - i && r - i < usual_width) sum[i] = fma(row, weight[r - i], sum[i]);
    });
  });
  for_each_register<Tokens>([&](int i)
                                HEADLANE_INLINE_LAMBDA { store_some(x.y + (t + i) * x.y_step + c, count, sum[i]); });
}

/// Up to 16 channels of a token.
template <class Arch>
HEADLANE_INLINE void convolve(const ConvolvedTokens& x, Index t, Index c) {
  using V = Lanes<Arch>;
  const Index count = x.channels - c;
  V sum = x.bias != nullptr ? V::load(x.bias + c) : V::zero();
  for (Index j = 0; j < x.width; ++j)
    sum = fma(load_some<Arch>(x.rows[t + j] + c, count), V::load(x.weight + j * x.weight_step + c), sum);
  store_some(x.y + t * x.y_step + c, count, sum);
}

template <class Arch>
void causal_convolution(const ConvolvedTokens& x) noexcept {
  constexpr int together = convolved_together<Arch>;
  Index t = 0;
  if (x.width == usual_width) {
    for (; t + together <= x.tokens; t += together)
      for (Index c = 0; c < x.channels; c += lanes) convolve_usual<Arch, together>(x, t, c);
  }
  for (; t < x.tokens; ++t)
    for (Index c = 0; c < x.channels; c += lanes) convolve<Arch>(x, t, c);
}

}  // namespace
}  // namespace headlane::internal::kernels
