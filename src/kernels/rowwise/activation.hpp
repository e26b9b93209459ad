// Activation functions of contiguous elements.
#pragma once

#include "kernels/simd/activation.hpp"

namespace headlane::internal::kernels {
namespace {

/// y[i] = f(x[i]); y may be x.
template <class Arch>
void activate(Activation activation, const float* x, float* y, Index n) noexcept {
  with_activation(activation, [&](auto f) {
    for_each_group<Arch>(n, [&](Index i, auto vectors, Index count) HEADLANE_INLINE_LAMBDA {
      Lanes<Arch> v[vectors.value];
      for_each_register<vectors.value>(
          [&](int j) HEADLANE_INLINE_LAMBDA { v[j] = load_some<Arch>(x + i + j * lanes, count - j * lanes); });
      apply<decltype(f)>(v);
      for_each_register<vectors.value>(
          [&](int j) HEADLANE_INLINE_LAMBDA { store_some(y + i + j * lanes, count - j * lanes, v[j]); });
    });
  });
}

}  // namespace
}  // namespace headlane::internal::kernels
