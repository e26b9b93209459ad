// The table of kernels, one for each instruction set. Drivers include this header and nothing else
// of the folder. Sizes and strides count elements. No kernel checks its arguments, allocates or
// throws.
#pragma once

#include "kernels/args/attention.hpp"
#include "kernels/args/gemm.hpp"
#include "kernels/args/position.hpp"
#include "kernels/args/recurrent.hpp"
#include "kernels/args/rowwise.hpp"
#include "kernels/args/sizes.hpp"

#include <headlane/activation_kind.hpp>
#include <headlane/dtype.hpp>
#include <headlane/index.hpp>

namespace headlane::internal::kernels {

/// Three for each instruction set: without an extension that not every CPU has, with that for
/// products of 8-bit integers (simd/integer_unit.hpp), and with that for products of bfloat16 too
/// (gemm/bfloat.hpp). They differ in quantise_rows, gemm_int8, round_rows and gemm_bfloat16; in
/// gemm_block how few rows take integers of groups, with the same bits.
struct KernelTable {
  const char* name;
  const char* extension;  ///< "" without
  Index tile_rows;        ///< MR: rows of a register tile
  Index panel_tile_rows;  ///< the same of one that multiplies by panels of floats
  Index rows_by_columns;  ///< the most rows for which gemm_block reads contiguous columns of b; 0: none

  /// Copies rows × columns (<= block_size) to rows packed_row_stride apart, times scale.
  void (*pack_rows)(const Source& source, float scale, float* packed) noexcept;
  /// Copies rows × columns to panels [panel][row][panel_columns], padded with zeros to a multiple
  /// of 16 columns.
  void (*pack_panels)(const Source& source, float* packed) noexcept;
  void (*gemm_block)(const GemmBlock& block) noexcept;
  /// For each row q = rint((x - centre) · (127 / distance)), scale = distance / 127, where centre
  /// is max x / 2 + min x / 2 and distance max|x - centre|, all without the outlier, whose q is 0.
  /// If distance is below least_distance, all q and the scale are 0; if an element of the row is
  /// not finite, all q and the centre are 0 and the scale is NaN.
  void (*quantise_rows)(const Source& source, const QuantisedRows& to) noexcept;
  /// b is of int8, with all of its rows, or of integers in groups.
  void (*gemm_int8)(const GemmBlock& block) noexcept;
  bool pairs;  ///< of 16-bit integers: rows that are quantised take two bytes for each element
  /// As pack_rows, rounded to bfloat16, in the order that gemm_bfloat16 reads.
  void (*round_rows)(const Source& source, float* packed) noexcept;
  /// As gemm_block, with rows of round_rows and a b of bfloat16.
  void (*gemm_bfloat16)(const GemmBlock& block) noexcept;
  /// Applies block.epilogue to block.c, without a product.
  void (*gemm_epilogue)(const GemmBlock& block) noexcept;
  void (*softmax_rows)(const SoftmaxRows& rows) noexcept;
  void (*softmax_masked)(const MaskedRow& row) noexcept;
  void (*norm_rows)(const NormRows& rows) noexcept;
  /// to[r · row_step + c · column_step] = source[r, c].
  void (*copy_rows)(const Source& source, float* to, Index row_step, Index column_step) noexcept;
  void (*attention_block)(const AttentionBlock& block) noexcept;
  /// The same result where there are few keys.
  void (*attention_few_keys)(const FewKeys& x) noexcept;
  /// Merges a part, which is over other keys, into the state, as attention_block does.
  void (*attention_merge)(const AttentionState& state, const AttentionState& part, Index rows,
                          Index value_dim) noexcept;
  /// out = state.out / state.sum, lse = state.max + log(state.sum); 0 and -inf for a row without
  /// visible keys.
  void (*attention_finish)(const AttentionState& state, const AttentionOutput& output) noexcept;
  /// Widens rows that a cache stores in another type than float32.
  void (*widen_rows)(const StoredRows& rows) noexcept;
  void (*attention_weights)(const AttentionBlock& block, const AttentionWeights& weights) noexcept;
  void (*linear_attention)(const LinearAttentionTokens& tokens) noexcept;
  /// The same for one token, with any number of columns.
  void (*linear_attention_step)(const LinearAttentionTokens& token) noexcept;
  void (*causal_convolution)(const ConvolvedTokens& tokens) noexcept;
  /// y[i] = activation(x[i]); y may be x.
  void (*activate)(Activation activation, const float* x, float* y, Index n) noexcept;
  /// Widens n numbers of bfloat16 or float16, exactly.
  void (*widen)(const void* from, DType type, float* to, Index n) noexcept;
  /// Rounds n numbers to bfloat16 or float16, as the constructors of these types do.
  void (*round)(const float* from, void* to, DType type, Index n) noexcept;
  void (*sin_cos_rows)(const SinCosRows& rows) noexcept;
  void (*scale_add_rows)(const ScaleAddRows& rows) noexcept;
  void (*rotary_rows)(const RotaryRows& rows) noexcept;
  /// y[i] = exp(x[i]), y[i] = log(x[i]): for decays, and the tests of their errors.
  void (*exp)(const float* x, float* y, Index n) noexcept;
  void (*log)(const float* x, float* y, Index n) noexcept;
};

}  // namespace headlane::internal::kernels
