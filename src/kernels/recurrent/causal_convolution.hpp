// Causal convolution: each channel by its own weights. Memory bounds it.
#pragma once

#include "kernels/args/recurrent.hpp"
#include "kernels/simd/lanes.hpp"

namespace headlane::internal::kernels {
namespace {

template <class Arch>
void causal_convolution(const ConvolvedTokens& x) noexcept {
  using V = Lanes<Arch>;
  for (Index t = 0; t < x.tokens; ++t) {
    for (Index c = 0; c < x.channels; c += lanes) {
      const Index count = x.channels - c;
      V sum = x.bias != nullptr ? V::load(x.bias + c) : V::zero();
      for (Index j = 0; j < x.width; ++j)
        sum = fma(load_some<Arch>(x.rows[t + j] + c, count), V::load(x.weight + j * x.weight_step + c), sum);
      store_some(x.y + t * x.y_step + c, count, sum);
    }
  }
}

}  // namespace
}  // namespace headlane::internal::kernels
