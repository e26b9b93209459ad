// Attention of some query rows to one block of keys: their scores (scores.hpp), P·V, and the merge
// into the running state. Online softmax by blocks (Milakov and Gimelshein 2018; Dao et al. 2022),
// each with its own maximum, so that the contribution of a block does not depend on the blocks
// before it.
#pragma once

#include "kernels/attention/merge.hpp"
#include "kernels/attention/prefetch_queue.hpp"
#include "kernels/attention/scores.hpp"

namespace headlane::internal::kernels {
namespace {

HEADLANE_INLINE bool is_visible(const AttentionBlock& block, Index row, Index key) {
  const auto masked_by = [&](const PerScore<float>& bias) {
    return bias.data != nullptr && bias.data[row * bias.row_step + key * bias.key_step] == -__builtin_inff();
  };
  const auto& mask = block.mask;
  const auto& bits = block.bits;
  return key >= block.key_begin[row] && key < block.key_end[row] &&
         (mask.data == nullptr || mask.data[row * mask.row_step + key * mask.key_step]) &&
         (bits.data == nullptr || (bits.data[row * bits.row_step + key / 8 * bits.key_step] >> key % 8 & 1) != 0) &&
         !masked_by(block.bias) && !masked_by(block.relative);
}

/// P · V of one row and 16 columns, `offset` after the first one, over its visible keys alone:
/// neither a NaN nor an infinity in the value of a masked key may reach it, not even times 0. Slow,
/// for data that has them.
template <class Arch>
__attribute__((noinline)) void visible_values(const AttentionBlock& block, Index row, const float* weights,
                                              Index offset, const VisibleRange& visible, float* result) {
  using V = Lanes<Arch>;
  const KeyBlock& keys = block.keys;
  V acc = V::zero();
  for (Index key = visible.begin; key < visible.end; ++key)
    if (is_visible(block, row, key)) acc = fma(V::broadcast(weights[key]), load_values<Arch>(keys, key, offset), acc);
  acc.store(result);
}

/// How P · V of a tile is merged into the state.
enum class Merge {
  first,  // becomes the state
  all,    // state = keep · state + add · (P · V)
  some,   // the same, for rows that have a visible key
};

template <class Arch, int Rows, int Vectors, Merge merge>
HEADLANE_INLINE void merge_tile(const AttentionBlock& block, Index row, int first, Index column,
                                const MergeFactors& factors, const Accumulators<Arch, Rows, Vectors>& acc) {
  using V = Lanes<Arch>;
  float* out = block.state.out + (row + first) * block.state.out_step + column;
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i, out += block.state.out_step) {
    if (merge == Merge::some && block.key_end[row + first + i] == 0) continue;
    const V keep = V::broadcast(factors.keep[first + i]), add = V::broadcast(factors.add[first + i]);
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) {
      // A chain that underflowed to -0 and then met weights of 0 may be +0: with a zero added it
      // always is.
      const V part = acc[i][j] + V::zero();
      (merge == Merge::first ? part : fma(part, add, V::load(out + j * lanes) * keep)).store(out + j * lanes);
    }
  }
}

/// The place of the values of `column` in a page.
HEADLANE_INLINE Index offset_of_column(const KeyBlock& keys, Index column) {
  return column / panel_columns * keys.v_panel_step + column % panel_columns;
}

/// P · V of one tile, whose first row of scores is `scores`.
template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE void multiply_values(const AttentionBlock& block, const float* scores, Index column,
                                     const VisibleRange& visible, Accumulators<Arch, Rows, Vectors>& acc) {
  const KeyBlock& keys = block.keys;
  const Index offset = offset_of_column(keys, column);
  if (keys.type != DType::float32) {
    alignas(64) float sums[Rows * Vectors * lanes];
    stored_values<Arch, Rows, Vectors>(block, column, visible.begin, visible.end, sums);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < Vectors; ++j) acc[i][j] = Lanes<Arch>::load(sums + (i * Vectors + j) * lanes);
    return;
  }
  clear<Arch, Rows, Vectors>(acc);
  for (Index first = visible.begin, page = first / keys.page; first < visible.end; ++page) {
    const Index page_end = (page + 1) * keys.page, end = page_end < visible.end ? page_end : visible.end;
    const Index at = offset + (first - page * keys.page) * keys.v_row_step;
    Panels v{static_cast<const float*>(keys.v[page]) + at, keys.v_row_step, keys.v_panel_step};
    if (keys.prefetches) {
      v.next = static_cast<const float*>(keys.next[page]) + at;
      multiply<Arch, Rows, Vectors, Visit::first>(end - first, PackedRows{scores + first}, v, acc);
    } else {
      multiply<Arch, Rows, Vectors>(end - first, PackedRows{scores + first}, v, acc);
    }
    first = end;
  }
}

/// Merges P · V of the rows from `first` on, of those whose scores begin at `row`, into the state.
/// Masked keys have the weight 0.
template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE void value_tile(const AttentionBlock& block, Index row, int first, Index column,
                                const VisibleRange& visible, const MergeFactors& factors) {
  const KeyBlock& keys = block.keys;
  const float* scores = block.scores + first * packed_row_stride;
  Lanes<Arch> acc[Rows][Vectors];
  multiply_values<Arch, Rows, Vectors>(block, scores, column, visible, acc);
  const bool masked = visible.begin < visible.all_begin || visible.all_end < visible.end || !is_unmasked(block);
  if (masked)
    recompute_unless_finite<Arch, Rows, Vectors>(acc, [&](int i, int j, float* to) {
      const Index at = offset_of_column(keys, column + j * lanes);
      visible_values<Arch>(block, row + first + i, scores + i * packed_row_stride, at, visible, to);
    });
  if (block.output != nullptr)
    store_output<Arch, Rows, Vectors>(*block.output, row + first, column, factors.keep + first, acc);
  else if (block.is_first) merge_tile<Arch, Rows, Vectors, Merge::first>(block, row, first, column, factors, acc);
  else if (visible.all_end > 0) merge_tile<Arch, Rows, Vectors, Merge::all>(block, row, first, column, factors, acc);
  else merge_tile<Arch, Rows, Vectors, Merge::some>(block, row, first, column, factors, acc);
}

/// The same, one function for all tiles that have such a part.
template <class Arch, int Rows, int Vectors>
__attribute__((noinline)) void value_part(const AttentionBlock& block, Index row, int first, Index column,
                                          const VisibleRange& visible, const MergeFactors& factors) {
  value_tile<Arch, Rows, Vectors>(block, row, first, column, visible, factors);
}

/// Prefetches the rows of the output that a tile will write: stores to lines that are far away fill
/// the store buffer (Zen 5, 64 sequences of 64: 111 to 116 GFLOP/s).
template <int Rows>
HEADLANE_INLINE void prefetch_output(const AttentionOutput& output, Index row, Index value_dim) {
  for (int i = 0; i < Rows; ++i) {
    const float* out = output.out + (row + i) * output.row_step;
    for (Index j = 0; j < value_dim; j += lanes) __builtin_prefetch(out + j, 1);
    if (value_dim > 0) __builtin_prefetch(out + value_dim - 1, 1);  // where rows do not begin with a line
  }
}

/// True if values are panels of floats, which is_in_parts() tells how to read. In rows 6 × 16 reads
/// them less often.
HEADLANE_INLINE bool are_panels_of_floats(const KeyBlock& keys) {
  return keys.type == DType::float32 && keys.v_row_step == panel_columns;
}

template <class Arch, int Rows>
HEADLANE_INLINE void attention_tile(const AttentionBlock& block, Index row, PrefetchQueue& queue) {
  const VisibleRange visible = visible_to<Arch, Rows>(block, row);
  if (visible.end == 0 && !block.is_first) return;
  alignas(64) float largest[lanes] = {}, sums[lanes] = {};
  alignas(64) MergeFactors factors = {};
  if (block.output != nullptr) prefetch_output<Rows>(*block.output, row, block.value_dim);
  tile_scores<Arch, Rows>(block, row, visible, largest);
  constexpr int at_once = group_size<Arch>, whole = Rows / at_once * at_once;
  for (int first = 0; first < whole; first += at_once) {
    queue.prefetch_some();
    score_exponentials<Arch, at_once>(block, row, first, visible, largest, sums);
  }
  if constexpr (whole < Rows) {
    queue.prefetch_some();
    score_exponentials<Arch, Rows - whole>(block, row, whole, visible, largest, sums);
  }
  const Lanes<Arch> block_max = Lanes<Arch>::load(largest), block_sum = Lanes<Arch>::load(sums);
  if (block.output != nullptr) {
    finish_rows<Arch>(*block.output, row, Rows, block_max, block_sum, factors.keep);
  } else if (block.is_first) {
    block_max.store(block.state.max + row, Rows);
    block_sum.store(block.state.sum + row, Rows);
  } else {
    merge_sums<Arch>(block.state, row, Rows, block_max, block_sum, factors);
  }
  const auto merge_values = [&](auto first, auto rows, Index column, auto width) HEADLANE_INLINE_LAMBDA {
    if constexpr (have_parts<Arch>)
      value_part<Arch, rows.value, width.value>(block, row, first.value, column, visible, factors);
    else value_tile<Arch, rows.value, width.value>(block, row, first.value, column, visible, factors);
  };
  if constexpr (Rows <= Tile<Arch>::rows)
    if (!is_in_parts<Arch, Rows> || !are_panels_of_floats(block.keys))
      return for_each_column_tile<Tile<Arch>, Rows>(block.value_dim, [&](Index column, auto width) {
        merge_values(Constant<0>{}, Constant<Rows>{}, column, width);
      });
  for_each_tile_of_panels<Arch, Rows>(block.value_dim, merge_values);
}

/// The most rows of a tile of few rows, whose parts go through a panel before the next one. With
/// AVX2 more than Tile has: 8 query heads to a kv head in 0.6 to 0.7 of the time, from a tensor
/// 0.8; of long sequences, 12 rows at a time gain 0.02, 8 lose 0.1 (Zen 3).
template <class Arch>
inline constexpr int rows_together = have_parts<Arch> ? 8 : Tile<Arch>::rows;

/// Computes one tile of rows after the other: its scores (12 × 512 floats, 24 KiB) stay in the L1
/// between the passes.
template <class Arch>
void attention_block(const AttentionBlock& block) noexcept {
  PrefetchQueue queue(block.prefetch, block.rows / group_size<Arch>);
  const bool is_together = block.rows <= max_tile_rows && (block.keys.prefetches || are_panels_of_floats(block.keys));
  for_each_part(block.rows, is_together ? rows_together<Arch> : Tile<Arch>::rows, [&](Index row, Index rows) {
    with_constant<rows_together<Arch>>(rows,
                                       [&](auto constant) { attention_tile<Arch, constant.value>(block, row, queue); });
  });
}

}  // namespace
}  // namespace headlane::internal::kernels
