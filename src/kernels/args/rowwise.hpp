// Arguments of the row-wise kernels: softmax and normalisation.
#pragma once

#include <headlane/index.hpp>

namespace headlane::internal::kernels {

/// Rows of n elements with stride 1.
struct SoftmaxRows {
  const float* x;
  float* y;              ///< may be x
  Index x_step, y_step;  ///< row strides
  Index rows, n;
  float scale;
  bool log;
};

/// One row of n elements with stride 1, some of which are masked: those from `end` on, where
/// nothing is read, those whose mask is false, and those whose bias is -inf. Null: not given.
struct MaskedRow {
  const float* x;
  float* y;  ///< may be x
  Index n, end;
  const bool* mask;
  Index mask_step;
  const float* bias;  ///< added to scale · x
  Index bias_step;
  float scale;
  bool log;
};

/// Rows of n >= 1 elements with stride 1, to be normalised. Null: not given.
struct NormRows {
  const float* x;
  float* y;                                       ///< may be x or residual
  const float* residual;                          ///< x + residual is normalised
  float* sum;                                     ///< receives x + residual; may be x or residual
  Index x_step, y_step, residual_step, sum_step;  ///< row strides
  Index rows, n;
  const float *weight, *bias;  ///< [n]
  float eps;
  bool centred;  ///< layer norm; otherwise RMS norm, without bias
};

}  // namespace headlane::internal::kernels
