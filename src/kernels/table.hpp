// What one instruction set offers: a table of kernels. The drivers in src/ know only this file of the folder.
// Pointers are to float, sizes and strides count elements; no kernel checks, allocates or throws.
#pragma once

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

/// The running result of some query rows: what online softmax carries from one block of keys to the next.
struct AttentionState {
  float* out;  ///< [rows, out_step], the sum of p·v, not yet divided; out_step a multiple of panel_columns
  Index out_step;
  float* max;  ///< [rows] largest score so far; -inf while no key was seen
  float* sum;  ///< [rows] Σ exp(score - max)
};

/// Something given for each score: element [row, key] stands at data[row · row_step + key · key_step]. Null data: not given.
template <class T>
struct PerScore {
  const T* data;
  Index row_step, key_step;
};

/// Keys that a row-major block of keys has turned into panels at a time.
inline constexpr Index turned_keys = 128;

/// Where a block of keys and values stands: in pages of `page` keys each, a multiple of panel_columns.
struct KeyBlock {
  Index page;
  const float* const* k;  ///< of each page: packed panels [panel][head_dim][panel_columns], or rows
  Index k_row_step;       ///< 0: panels; otherwise rows of stride 1, this far apart, in one page
  float* turned;          ///< of rows: scratch [turned_keys · head_dim]
  const float* const* v;  ///< of each page: panels as GemmBlock::b
  Index v_row_step, v_panel_step;
};

/// Where the divided result goes.
struct AttentionOutput {
  Index rows, value_dim;
  float* out;
  Index row_step, column_step;
  float* lse;  ///< may be null
  Index lse_step;
  float* sum;  ///< null, or where the sum goes: then nothing is divided, and lse gets the largest score
  Index sum_step;
  const float* sinks;  ///< null, or [rows]: one more score, without a value
};

/// Rows that a later block will read: some of them are fetched into the L2 with each query row.
struct Fetch {
  const float* data;
  Index rows, row_step, row_lines;  ///< so many rows of so many cache lines
  Index per_query;                  ///< rows to fetch with a query row
};

/// Some query rows against one block of keys (at most block_size).
struct AttentionBlock {
  Index rows, head_dim, value_dim;
  const float* q;  ///< packed rows, already scaled, row_stride apart
  KeyBlock keys;
  const Index* hidden;           ///< [rows] each row sees none of the block's keys before this one
  const Index* seen;             ///< [rows] nor from this one on; 0 if it sees none at all
  bool alike;                    ///< both are the same for all rows
  PerScore<bool> mask;           ///< of those between, it sees the ones that are true here
  PerScore<unsigned char> bits;  ///< and those whose bit key % 8 is set in byte key / 8, key_step apart
  PerScore<float> bias;          ///< added to the scores; a key with -inf is not seen
  PerScore<float> relative;      ///< added before bias, likewise; key_step 1
  float softcap;                 ///< 0: none
  const float* slopes;  ///< null, or [rows]: slope · (key + distance - row · row_distance) is added to the scores
  Index distance, row_distance;
  float* scores;  ///< scratch [max_tile_rows, row_stride]
  bool fresh;     ///< the state is not yet initialised: this is the first block
  AttentionState state;
  const AttentionOutput* output;  ///< null, or where the result goes at once, for this is the only block; column_step 1
  Fetch fetch[3];
};

/// Some rows of a result over other keys, as AttentionState.
struct AttentionPartRows {
  Index rows, value_dim;
  const float* out;
  Index out_step;
  const float *max, *sum;
};

/// Scores of some rows with one block of keys become weights: exp(score - max) · factor, 0 for keys that a row does not see.
struct AttentionWeights {
  const float *max, *factor;  ///< [rows]
  float* weights;             ///< null, or element [row, key] at row · row_step + key
  Index row_step;
  float* key_sums;  ///< null, or [keys of the block]: the weights are added to it, row after row
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
