// What one instruction set offers: a table of kernels. The drivers in src/ know only this file of the folder, and what it includes.
// Pointers are to float, sizes and strides count elements; no kernel checks, allocates or throws.
#pragma once

#include "kernels/attention_arguments.hpp"

#include <headlane/activation_kind.hpp>
#include <headlane/index.hpp>

#include <cstdint>

namespace headlane::kernels {

/// Virtual vector: 16 floats on every instruction set.
inline constexpr Index lanes = 16;

/// KC of GEMM and the grid of keys in attention: the longest fma chain of a product. A constant of the library, since it
/// decides the bits: 512 makes d_model = 512 one chain, and a strip of 12 rows (24 KiB) stays in a 32 KiB L1.
inline constexpr Index block_size = 512;

/// Rows of a packed left operand are this far apart: a compile-time constant, so that a tile addresses all its rows from one
/// pointer; 33 cache lines, so that they fall into different sets of the L1.
inline constexpr Index row_stride = block_size + lanes;

/// Columns of a panel of a packed right operand: two Lanes, as wide as the widest tile, on every instruction set, so that what is
/// packed serves them all.
inline constexpr Index panel_columns = 2 * lanes;

/// No tile has more rows.
inline constexpr Index max_tile_rows = 16;

/// A matrix to copy from: any strides, rows × columns, multiplied by scale where the kernel says so.
struct Source {
  const float* data;
  Index rows, columns;
  Index row_step, column_step;
};

/// What follows the last block of a product: c = activation(c + bias) · factor + residual. Null data: not wanted.
struct GemmFinish {
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
  const float* b;  ///< panels of panel_columns columns: element [p, j] of a panel at p·b_row_step + j
  Index b_row_step;
  Index b_panel_step;  ///< from one panel to the next
  float* keep;         ///< null, or where b is left in packed panels; then m >= 24
  float* c;            ///< column stride 1
  Index c_row_step;
  float alpha, beta;         ///< beta 0: c is not read
  const GemmFinish* finish;  ///< null: another block follows, or nothing
};

/// Rows of n elements with stride 1.
struct SoftmaxRows {
  const float* x;
  float* y;              ///< may be x
  Index x_step, y_step;  ///< from row to row
  Index rows, n;
  float scale;
  bool log;
};

/// One row of n elements with stride 1, of which some do not take part: those from `end` on, where nothing is read, those whose
/// mask is false, and those whose bias is -inf. Null data: not given.
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

/// Rows of n >= 1 elements with stride 1, to be normalised. Null data: not given.
struct NormRows {
  const float* x;
  float* y;                                       ///< may be x or residual
  const float* residual;                          ///< x + residual is what is normalised
  float* sum;                                     ///< gets that; may be x or residual
  Index x_step, y_step, residual_step, sum_step;  ///< from row to row
  Index rows, n;
  const float *weight, *bias;  ///< [n]
  float eps;
  bool centred;  ///< layer norm; otherwise RMS norm, without bias
};

/// Angles as fractions of a turn of 63 bits: `high` the first 32, `low` the other 31. The arrays hold a multiple of 16.
struct Phases {
  Index count;                                ///< angles
  std::uint32_t *high, *low;                  ///< of the row at hand
  const std::uint32_t *high_step, *low_step;  ///< from row to row
};

/// Rows of sines and cosines of angles. The phases are left at the row behind the last one.
struct SinCosRows {
  Phases phases;
  Index rows;
  float* sin;
  float* cos;  ///< in the same array; null: sin, cos, sin, cos … in `sin`
  Index row_step;
  Index columns;  ///< of sines and cosines together, 2·count, or one less: the last angle has no cosine
};

/// Rows y = fma(x, scale, addend) of n elements with stride 1.
struct ScaleAddRows {
  const float* x;
  float* y;  ///< may be x
  Index x_step, y_step;
  Index rows, n;
  float scale;
  const float* addend;
  Index addend_step;
};

/// Rows of which 2·pairs elements are rotated, the others copied. Elements have stride 1.
struct RotaryRows {
  const float* x;
  float* y;  ///< may be x
  Index x_step, y_step;
  Index rows, columns, pairs;
  const float *sin, *cos;  ///< [rows, table_step]
  Index table_step;
  bool interleaved;  ///< pairs are 2j, 2j+1; otherwise j, j + pairs
};

struct KernelTable {
  const char* name;
  Index tile_rows;  ///< MR: rows that a tile takes at once

  /// Copies rows × columns (<= block_size) to rows row_stride apart, times scale.
  void (*pack_rows)(const Source& source, float scale, float* packed) noexcept;
  /// Copies rows × columns to panels [panel][row][panel_columns], the last one padded with zeros to a multiple of 16 columns.
  void (*pack_panels)(const Source& source, float* packed) noexcept;
  void (*gemm_block)(const GemmBlock& block) noexcept;
  /// Only block.finish on block.c.
  void (*gemm_finish)(const GemmBlock& block) noexcept;
  void (*softmax_rows)(const SoftmaxRows& rows) noexcept;
  void (*softmax_masked)(const MaskedRow& row) noexcept;
  void (*norm_rows)(const NormRows& rows) noexcept;
  /// to[r · row_step + c · column_step] = source[r, c].
  void (*copy_rows)(const Source& source, float* to, Index row_step, Index column_step) noexcept;
  void (*attention_block)(const AttentionBlock& block) noexcept;
  /// state = state merged with the part, as attention_block does it.
  void (*attention_merge)(const AttentionState& state, const AttentionPartRows& part) noexcept;
  /// out = state.out / state.sum, lse = state.max + log(state.sum); 0 and -inf for a row that saw no key.
  void (*attention_finish)(const AttentionState& state, const AttentionOutput& output) noexcept;
  void (*attention_weights)(const AttentionBlock& block, const AttentionWeights& weights) noexcept;
  /// y[i] = activation(x[i]); y may be x.
  void (*activate)(Activation activation, const float* x, float* y, Index n) noexcept;
  void (*sin_cos_rows)(const SinCosRows& rows) noexcept;
  void (*scale_add_rows)(const ScaleAddRows& rows) noexcept;
  void (*rotary_rows)(const RotaryRows& rows) noexcept;
  /// y[i] = exp(x[i]), y[i] = log(x[i]): for the tests of their error.
  void (*exp)(const float* x, float* y, Index n) noexcept;
  void (*log)(const float* x, float* y, Index n) noexcept;
};

}  // namespace headlane::kernels
