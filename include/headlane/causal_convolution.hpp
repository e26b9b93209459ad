// Causal depthwise convolution over tokens: the short convolution before linear attention.
#pragma once

#include <headlane/activation_kind.hpp>
#include <headlane/dtype.hpp>
#include <headlane/export.h>
#include <headlane/view.hpp>

namespace headlane {

/// Options of causal_convolution(). All are optional, and all combine; a view without data is an
/// option that is not given.
struct CausalConvolutionOptions {
  View<const float, 1> bias = {};            ///< [channels], any stride
  Activation activation = Activation::none;  ///< of the sums
  /// [batch, channels, width - 1], any strides: the inputs before the first token, oldest first;
  /// receives those before the token after the last one. Without it they are 0.
  View<float, 3> state = {};
  int num_threads = 0;  ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

/// Computes, for each batch element, token t and channel c:
///   y[t, c] = activation(bias[c] + Σ_j weight[c, j] · x[t - (width - 1) + j, c])
/// as torch.nn.Conv1d does with groups = channels and width - 1 zeros on the left.
///
/// Shapes: any strides.
///     x, y    [batch, length, channels]
///     weight  [channels, width], width 1 … max_convolution_width (limits.hpp)
/// Aliasing: inputs may overlap each other; y and state must overlap nothing.
/// Special values: as those of the sums: a NaN or an infinity reaches the `width` tokens that read
///   it, in its channel. With a length of 0 nothing is written.
/// Arithmetic: a chain of fma over j = 0 … width - 1 that begins with the bias, or with 0, then
///   activate(). The bits are the same for every instruction set, number of threads, stride and
///   batch, and for every cut of a sequence into calls that pass the state on.
/// Error: of the sum, |y - exact| <= width · 2^-24 · (|bias| + Σ_j |weight · x|), plus underflow;
///   the activation adds its own (activation.hpp).
/// Memory: scratch for the weight and for 64 tokens of 256 channels a thread; a call allocates
///   nothing once warm.
/// Errors: std::invalid_argument before anything is written, for shapes that do not match, a width
///   out of range, null data, an overlapping output, sizes that overflow; std::bad_alloc, after
///   which some channels of y and state may have been written.
HEADLANE_API void causal_convolution(View<const float, 3> x, View<const float, 2> weight,
                                     View<float, 3> y,
                                     const CausalConvolutionOptions& options = {});

/// The same in bfloat16 and float16: x is widened exactly, y is the result for float32 rounded
/// once, to nearest, ties to even. The weight, the options and the state are of float32.
/// Memory: besides that of float32, scratch for float32 copies of x and y, of which the calling
///   thread keeps up to 64 MiB.
HEADLANE_API void causal_convolution(View<const bfloat16, 3> x, View<const float, 2> weight,
                                     View<bfloat16, 3> y,
                                     const CausalConvolutionOptions& options = {});
HEADLANE_API void causal_convolution(View<const float16, 3> x, View<const float, 2> weight,
                                     View<float16, 3> y,
                                     const CausalConvolutionOptions& options = {});

}  // namespace headlane
