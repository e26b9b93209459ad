// Arguments of the GEMM kernels.
#pragma once

#include <headlane/activation_kind.hpp>
#include <headlane/dtype.hpp>
#include <headlane/index.hpp>

namespace headlane::internal::kernels {

/// A matrix to copy from: rows × columns with any strides.
struct Source {
  const float* data;
  Index rows, columns;
  Index row_step, column_step;
};

/// The epilogue of a product, applied after its last block: c = activation(c + bias) · factor +
/// residual. Null: not given.
struct GemmEpilogue {
  const float* bias;  ///< element j at bias[j · bias_step]
  Index bias_step;
  Activation activation;
  const float* factor;  ///< element [i, j] at factor[i · factor_row_step + j]
  Index factor_row_step;
  const float* residual;  ///< element [i, j] at residual[i · row_step + j · column_step]
  Index row_step, column_step;
};

/// c [m, n] = alpha · a · b + beta · c, one block along k (k <= block_size).
struct GemmBlock {
  Index m, n, k;
  const float* a;  ///< column stride 1
  Index a_row_step;
  const void* b;          ///< panels of panel_columns columns: element [p, j] of a panel at p·b_row_step + j
  DType b_type;           ///< if not float32, rows end with zeros up to a multiple of 16
  const float* b_scales;  ///< int8: of the columns, with zeros up to a multiple of 16
  Index b_row_step;
  Index b_panel_step;  ///< panel stride
  float* keep;         ///< where to store b as packed panels of float, m >= 24 or another type; or null
  float* c;            ///< column stride 1
  Index c_row_step;
  float alpha, beta;             ///< beta 0: c is not read
  const GemmEpilogue* epilogue;  ///< null: none, or another block follows
};

}  // namespace headlane::internal::kernels
