// Layer norm and RMS norm along the last axis, with the residual addition of a transformer block before them.
#pragma once

#include <headlane/export.h>
#include <headlane/view.hpp>

namespace headlane {

struct LayerNormOptions {
  float eps = 1e-5f;                 ///< added to the variance, >= 0; as torch.nn.LayerNorm
  View<const float, 1> weight = {};  ///< if data is not null: [n], n the size of x's last axis, any stride; multiplies
  View<const float, 1> bias = {};    ///< likewise; added
  /// If data is not null: shape as x, any strides, 0 to broadcast; x + residual is normalised.
  AnyView<const float> residual = {};
  /// If data is not null: shape as x; gets x + residual (x if there is none), for the next block.
  AnyView<float> sum = {};
  int num_threads = 0;  ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

struct RmsNormOptions {
  float eps = 1e-6f;                 ///< added to the mean square, >= 0; as T5 and Llama (torch.nn.RMSNorm: 2^-23)
  View<const float, 1> weight = {};  ///< these as in LayerNormOptions
  AnyView<const float> residual = {};
  AnyView<float> sum = {};
  int num_threads = 0;  ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

/// y = (s - mean) / sqrt(variance + eps) · weight + bias for each row along the last axis, s = x + residual; the variance is that
/// of the row itself, Σ (s - mean)² / n.
///
/// Shapes: x and y alike, of any rank from 1 to 8 and any strides. A last axis of length 0 gives nothing, one of length 1 bias (or
///   0).
/// Aliasing: y may be x itself or residual itself (the same data and strides), and so may sum, but not both the same one; any other
///   overlap of y or sum with anything is an error.
/// Special values, row by row, others have no part in it: a row in which an element of s is NaN or infinite, or a sum below overflows
///   (one |s| of 2^66 among others
///   does), is NaN throughout, and so is one without spread if eps is 0. sum has x + residual in any case.
/// Arithmetic: s = x + residual, mean = (Σ s) / n, d = s - mean, delta = (Σ d) / n, which is what the rounding of the mean left,
///   variance = max((Σ d²) / n - delta · delta, 0) by fma(d, d, …), r = 1 / sqrt(variance + eps), y = fma(d, r, -(delta · r)), then
///   fma(y, weight, bias), y · weight or y + bias; n is rounded to binary32. In each sum element i goes to partial sum i mod 64,
///   and these fold 64 → 32 → … → 1. The same bits for every instruction set, number of threads, stride and batch.
/// Error of the row s as rounded, z its exact value of y before weight and bias, u = 2^-24, g = ceil(n / 64) + 11, w = g · u · mean|s| /
///   sqrt(variance + eps): |y - exact| <= g · u · (1 + 2·w)² · (1 + |z|) · |weight| + u · |y| + 2^-149 · (1 + |weight|), provided
///   variance + eps >= 2^-100. Derivation: a sum of n terms and its division by n round ceil(n / 64) + 7 = g - 4 times. So the mean is
///   off by w · sqrt(variance + eps), which d keeps; delta is off by g - 3 roundings of mean|d|; the variance by g - 1 of Σ d² / n <=
///   (1 + w²) · variance, and by twice delta times its own error; the root halves that; d, sqrt, division and fma round once each.
///   A mean far from 0 costs no more than w says: rows of 1e4 ± 1 have w = 0.02.
/// Source: Ba, Kiros and Hinton 2016; the corrected two-pass algorithm in Chan, Golub and LeVeque 1983.
/// Memory: allocates nothing once warm; scratch of 32 rows a thread where elements are not neighbours. Errors: std::invalid_argument
///   before anything is written; std::bad_alloc.
HEADLANE_API void layer_norm(AnyView<const float> x, AnyView<float> y, const LayerNormOptions& options = {});

/// y = s / sqrt(mean(s²) + eps) · weight for each row along the last axis, s = x + residual.
///
/// Shapes, aliasing, special values, memory and errors as layer_norm. A last axis of length 1 gives ± weight (or ±1), but for eps.
/// Arithmetic: s = x + residual, square = (Σ s²) / n by fma(s, s, …), summed as in layer_norm, r = 1 / sqrt(square + eps), y = s · r,
///   then y · weight.
/// Error of the row s as rounded, u = 2^-24: |y - exact| <= (ceil(n / 64) / 2 + 8) · u · |y| + 2^-149 · (1 + |weight|), provided
///   square + eps >= 2^-100: ceil(n / 64) + 8 roundings of the mean square, which the root halves, and four after it.
/// Source: Zhang and Sennrich 2019.
HEADLANE_API void rms_norm(AnyView<const float> x, AnyView<float> y, const RmsNormOptions& options = {});

}  // namespace headlane
