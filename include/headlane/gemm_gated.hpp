// The gated pair of products of a feed-forward layer (Dauphin et al. 2017; Shazeer 2020, "GLU variants improve transformer").
#pragma once

#include <headlane/export.h>
#include <headlane/gemm.hpp>

namespace headlane {

struct GemmGatedOptions {
  Activation activation = Activation::silu;  ///< of the gate: silu is SwiGLU, gelu GEGLU, relu ReGLU, sigmoid GLU
  /// If data is not null: [n], any stride.
  View<const float, 1> gate_bias = {}, up_bias = {};
  int num_threads = 0;  ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

/// c = activation(a · gate + gate_bias) ∘ (a · up + up_bias), ∘ element by element.
///
/// Shapes: a [m, k], gate and up [k, n], c [m, n]; any strides. The intermediate products are never whole: a block of them at a time.
/// The bits of separate calls: gemm for each product with its bias and activation, then their products.
/// Aliasing, memory, errors: as gemm (gemm.hpp).
HEADLANE_API void gemm_gated(View<const float, 2> a, View<const float, 2> gate, View<const float, 2> up,
                             View<float, 2> c, const GemmGatedOptions& options = {});

/// The same with packed weights.
HEADLANE_API void gemm_gated(View<const float, 2> a, const PackedMatrix& gate, const PackedMatrix& up, View<float, 2> c,
                             const GemmGatedOptions& options = {});

}  // namespace headlane
