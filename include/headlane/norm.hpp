// Layer norm and RMS norm along the last axis, with the preceding residual addition of a
// transformer block.
#pragma once

#include <headlane/dtype.hpp>
#include <headlane/export.h>
#include <headlane/view.hpp>

namespace headlane {

struct LayerNormOptions {
  float eps = 1e-5f;  ///< added to the variance, >= 0; default of torch.nn.LayerNorm
  /// If data is not null: [n], n the size of x's last axis, any stride; multiplied.
  View<const float, 1> weight = {};
  /// If data is not null: as weight; added.
  View<const float, 1> bias = {};
  /// If data is not null: shape as x, any strides, 0 to broadcast; x + residual is normalised.
  AnyView<const float> residual = {};
  /// If data is not null: shape as x; receives x + residual, or x without a residual.
  AnyView<float> sum = {};
  int num_threads = 0;  ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

struct RmsNormOptions {
  /// Added to the mean square, >= 0; the default is that of T5 and Llama (torch.nn.RMSNorm: 2^-23).
  float eps = 1e-6f;
  /// The options below are as in LayerNormOptions.
  View<const float, 1> weight = {};
  AnyView<const float> residual = {};
  AnyView<float> sum = {};
  int num_threads = 0;  ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

/// y = (s - mean) / sqrt(variance + eps) · weight + bias for each row along the last axis, with
/// s = x + residual. The variance is that of the row, Σ (s - mean)² / n. Numerically stable for
/// large means.
///
/// Shapes: x and y have the same shape, of any rank from 1 to 8, and any strides. With a last axis
///   of length 0 nothing is written, with one of length 1 y is bias (or 0), unless eps is 0.
/// Aliasing: y may be x itself or residual itself (the same data and strides), and so may sum, but
///   not both the same one. Any other overlap of y or sum with anything is an error.
/// Special values: they affect only their own row. A row is NaN throughout if an element of s is
///   NaN or infinite, if a sum below overflows (one |s| of 2^66 among others does), or if it has
///   no spread and eps is 0. With an eps of 0 its elements are NaN or infinite if its variance
///   underflows to 0 (every |d| below 2^-75). sum receives x + residual in any case.
/// Arithmetic:
///     s = x + residual
///     mean = (Σ s) / n
///     d = s - mean
///     delta = (Σ d) / n                               the rounding error of the mean
///     variance = max((Σ d²) / n - delta · delta, 0)   by fma(d, d, …)
///     r = 1 / sqrt(variance + eps)
///     y = fma(d, r, -(delta · r))
///     y = fma(y, weight, bias), y · weight or y + bias
///   n is rounded to a float. In each sum element i is added to partial sum i mod 64, and these
///   fold 64 → 32 → … → 1. The bits are the same for every instruction set, number of threads,
///   stride and batch.
/// Error: for the row s as rounded, z its exact value of y before weight and bias, and
///   variance + eps >= 2^-100,
///     |y - exact| <= g · u · (1 + 2·w)² · (1 + |z|) · |weight| + u · |y| + 2^-149 · (1 + |weight|)
///     u = 2^-24, g = ceil(n / 64) + 11, w = g · u · mean|s| / sqrt(variance + eps)
///   A mean far from 0 costs no more than w: rows of 1e4 ± 1 have w = 0.02.
///   Derivation: a sum of n terms and its division by n round ceil(n / 64) + 7 = g - 4 times.
///   - The mean is off by w · sqrt(variance + eps), which d keeps.
///   - delta is off by g - 3 roundings of mean|d|.
///   - The variance is off by g - 1 roundings of Σ d² / n <= (1 + w²) · variance, and by twice
///     delta times the error of delta. The root halves that.
///   - d, sqrt, the division and the fma round once each.
/// Memory: a call allocates nothing once warm; scratch of 32 rows a thread where elements of a row
///   are not contiguous.
/// Errors: std::invalid_argument before anything is written; std::bad_alloc.
/// Source: Ba, Kiros and Hinton 2016; the corrected two-pass algorithm in Chan, Golub and LeVeque
///   1983.
HEADLANE_API void layer_norm(AnyView<const float> x, AnyView<float> y,
                             const LayerNormOptions& options = {});

/// The same in bfloat16 and float16: x is widened exactly, y is the result for float32 rounded
/// once, to nearest, ties to even. All options are
/// of float32; sum is not rounded.
/// Memory: scratch of 32 KiB or one row a thread, if that is more; with rows that are not
///   contiguous 32 of them. Each thread keeps it, so that a warm call allocates nothing.
HEADLANE_API void layer_norm(AnyView<const bfloat16> x, AnyView<bfloat16> y,
                             const LayerNormOptions& options = {});
HEADLANE_API void layer_norm(AnyView<const float16> x, AnyView<float16> y,
                             const LayerNormOptions& options = {});
/// y = s / sqrt(mean(s²) + eps) · weight for each row along the last axis, with s = x + residual.
///
/// Shapes and aliasing: as layer_norm. With a last axis of length 1, y is ± weight (or ±1), apart
///   from eps.
/// Special values: as layer_norm, but for an eps of 0: a row may have no spread. If its mean square
///   is 0, or underflows to 0 (every |s| below 2^-75), y is NaN where s is 0, otherwise infinite.
/// Memory and errors: as layer_norm.
/// Arithmetic: sums as in layer_norm.
///     s = x + residual
///     square = (Σ s²) / n     by fma(s, s, …)
///     r = 1 / sqrt(square + eps)
///     y = s · r
///     y = y · weight
/// Error: for the row s as rounded, u = 2^-24, and square + eps >= 2^-100,
///     |y - exact| <= (ceil(n / 64) / 2 + 8) · u · |y| + 2^-149 · (1 + |weight|)
///   Derivation: the mean square rounds ceil(n / 64) + 8 times, which the root halves, and four
///   roundings follow.
/// Source: Zhang and Sennrich 2019.
HEADLANE_API void rms_norm(AnyView<const float> x, AnyView<float> y,
                           const RmsNormOptions& options = {});

/// The same in bfloat16 and float16, as layer_norm.
HEADLANE_API void rms_norm(AnyView<const bfloat16> x, AnyView<bfloat16> y,
                           const RmsNormOptions& options = {});
HEADLANE_API void rms_norm(AnyView<const float16> x, AnyView<float16> y,
                           const RmsNormOptions& options = {});
}  // namespace headlane
