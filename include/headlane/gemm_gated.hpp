// The gated pair of matrix products of a feed-forward layer.
#pragma once

#include <headlane/export.h>
#include <headlane/gemm.hpp>

namespace headlane {

struct GemmGatedOptions {
  /// The activation of the gate: silu is SwiGLU, gelu GEGLU, relu ReGLU, sigmoid GLU.
  Activation activation = Activation::silu;
  /// If data is not null: [n], any stride.
  View<const float, 1> gate_bias = {}, up_bias = {};
  /// As in GemmOptions, for both products.
  DType activations = DType::float32;
  int num_threads = 0;  ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

/// c = activation(a · gate + gate_bias) ∘ (a · up + up_bias), ∘ element by element.
///
/// Shapes: any strides.
///     a         [m, k]
///     gate, up  [k, n]
///     c         [m, n]
/// Aliasing: as gemm (gemm.hpp).
/// Arithmetic: the bits of separate calls: gemm for each product with its bias and activation, then
///   their product.
/// Memory: the intermediate products are never stored as a whole, only a block of them at a time;
///   a call allocates nothing once warm.
/// Errors: as gemm.
/// Source: Dauphin et al. 2017; Shazeer 2020, "GLU variants improve transformer".
HEADLANE_API void gemm_gated(View<const float, 2> a, View<const float, 2> gate,
                             View<const float, 2> up, View<float, 2> c,
                             const GemmGatedOptions& options = {});

/// The same with packed weights.
HEADLANE_API void gemm_gated(View<const float, 2> a, const PackedMatrix& gate,
                             const PackedMatrix& up, View<float, 2> c,
                             const GemmGatedOptions& options = {});

/// The same in bfloat16 and float16: a, gate and up are widened exactly, unless gate and up are
/// packed; c is the result for float32 rounded once, to nearest, ties to even. Biases are of
/// float32.
/// Memory: as gemm.
HEADLANE_API void gemm_gated(View<const bfloat16, 2> a, View<const bfloat16, 2> gate,
                             View<const bfloat16, 2> up, View<bfloat16, 2> c,
                             const GemmGatedOptions& options = {});
HEADLANE_API void gemm_gated(View<const float16, 2> a, View<const float16, 2> gate,
                             View<const float16, 2> up, View<float16, 2> c,
                             const GemmGatedOptions& options = {});
HEADLANE_API void gemm_gated(View<const bfloat16, 2> a, const PackedMatrix& gate,
                             const PackedMatrix& up, View<bfloat16, 2> c,
                             const GemmGatedOptions& options = {});
HEADLANE_API void gemm_gated(View<const float16, 2> a, const PackedMatrix& gate,
                             const PackedMatrix& up, View<float16, 2> c,
                             const GemmGatedOptions& options = {});

}  // namespace headlane
