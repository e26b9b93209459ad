// Attention of some query rows to one block of keys: their scores (attention_scores.hpp), P·V, and the merge into the running state.
// Online softmax by blocks (Milakov and Gimelshein 2018; Dao et al. 2022), each with its own maximum, so that what a block
// contributes does not depend on the blocks before it.
#pragma once

#include "kernels/attention_scores.hpp"

namespace headlane::kernels {
namespace {

/// How the state and the block's part are weighted: state = keep · state + add · part.
struct Weights {
  float keep[lanes], add[lanes];
};

/// Merges the maxima and sums of a tile's rows, one row a lane. With a fresh state keep = 0 and add = 1.
template <class Arch, int Rows>
HEADLANE_INLINE void merge_sums(const AttentionBlock& block, Index row, const float* largest, const float* sums,
                                Weights& weights) {
  using V = Lanes<Arch>;
  float *state_max = block.state.max + row, *state_sum = block.state.sum + row;
  const V block_max = V::load(largest), block_sum = V::load(sums);
  if (block.fresh) {
    block_max.store(state_max, Rows);
    block_sum.store(state_sum, Rows);
    return;
  }
  const V minus_inf = V::broadcast(-__builtin_inff());
  const V old_max = V::load(state_max, Rows, 0.0f), old_sum = V::load(state_sum, Rows, 0.0f);
  const V new_max = max(block_max, old_max);
  const V m = select_equal(new_max, minus_inf, V::zero(), new_max);
  const V keep = exp(old_max - m), add = exp(block_max - m);
  keep.store(weights.keep);
  add.store(weights.add);
  new_max.store(state_max, Rows);
  fma(block_sum, add, old_sum * keep).store(state_sum, Rows);
}

HEADLANE_INLINE bool sees(const AttentionBlock& block, Index row, Index key) {
  const auto& mask = block.mask;
  const auto& bias = block.bias;
  return key >= block.hidden[row] && key < block.seen[row] &&
         (mask.data == nullptr || mask.data[row * mask.row_step + key * mask.key_step]) &&
         (bias.data == nullptr || bias.data[row * bias.row_step + key * bias.key_step] != -__builtin_inff());
}

template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE bool all_finite(const Accumulators<Arch, Rows, Vectors>& acc) {
  using V = Lanes<Arch>;
  V zeros = V::zero();
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) zeros = fma(acc[i][j], V::zero(), zeros);
  return zeros.reduce_add() == 0.0f;
}

/// P · V of one row and 16 columns with the keys alone that the row sees: neither a NaN nor an infinity in the value of another
/// key may reach it, not even times 0. Slow, for data that has them.
template <class Arch>
__attribute__((noinline)) void seen_values(const AttentionBlock& block, Index row, const float* weights,
                                           const float* values, const Seen& seen, float* result) {
  using V = Lanes<Arch>;
  V acc = V::zero();
  for (Index key = seen.first; key < seen.most; ++key)
    if (sees(block, row, key)) acc = fma(V::broadcast(weights[key]), V::load(values + key * block.v_row_step), acc);
  acc.store(result);
}

/// How P · V of a tile goes into the state.
enum class Merge {
  first,  // it is the state
  all,    // state = keep · state + add · (P · V)
  some,   // only for rows that see a key
};

template <class Arch, int Rows, int Vectors, Merge merge>
HEADLANE_INLINE void merge_tile(const AttentionBlock& block, Index row, Index column, const Weights& weights,
                                const Accumulators<Arch, Rows, Vectors>& acc) {
  using V = Lanes<Arch>;
  float* out = block.state.out + row * block.state.out_step + column;
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i, out += block.state.out_step) {
    if (merge == Merge::some && block.seen[row + i] == 0) continue;
    const V keep = V::broadcast(weights.keep[i]), add = V::broadcast(weights.add[i]);
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) {
      // A chain that underflowed to -0 and then met weights of 0 may be +0: with a zero added it always is.
      const V part = acc[i][j] + V::zero();
      (merge == Merge::first ? part : fma(part, add, V::load(out + j * lanes) * keep)).store(out + j * lanes);
    }
  }
}

/// P · V of one tile into the state. Keys that a row does not see have the weight 0 there.
template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE void value_tile(const AttentionBlock& block, Index row, Index column, const Seen& seen,
                                const Weights& weights) {
  using V = Lanes<Arch>;
  V acc[Rows][Vectors];
  clear<Arch, Rows, Vectors>(acc);
  const Panels v{block.v + column / panel_columns * block.v_panel_step + column % panel_columns, block.v_row_step,
                 block.v_panel_step};
  const Panels seen_v{v.data + seen.first * v.row_step, v.row_step, v.panel_step};
  multiply<Arch, Rows, Vectors>(seen.most - seen.first, PackedRows{block.scores + seen.first}, seen_v, acc);
  if ((seen.first < seen.from || seen.least < seen.most || !sees_all(block)) && !all_finite<Arch, Rows, Vectors>(acc)) {
    alignas(64) float part[lanes];
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < Vectors; ++j) {
        const float* values = v.data + v.offset(j);
        seen_values<Arch>(block, row + i, block.scores + i * row_stride, values, seen, part);
        acc[i][j] = V::load(part);
      }
  }
  if (block.fresh) merge_tile<Arch, Rows, Vectors, Merge::first>(block, row, column, weights, acc);
  else if (seen.least > 0) merge_tile<Arch, Rows, Vectors, Merge::all>(block, row, column, weights, acc);
  else merge_tile<Arch, Rows, Vectors, Merge::some>(block, row, column, weights, acc);
}

template <class Arch, int Rows>
HEADLANE_INLINE void attention_tile(const AttentionBlock& block, Index row) {
  const Seen seen = seen_by<Arch, Rows>(block, row);
  if (seen.most == 0 && !block.fresh) return;
  alignas(64) float largest[lanes] = {}, sums[lanes] = {};
  alignas(64) Weights weights;
  tile_scores<Arch, Rows>(block, row, seen, largest);
  for (int i = 0; i < Rows; ++i) {
    float* scores = block.scores + i * row_stride;
    const Index begin = block.hidden[row + i] / lanes * lanes, end = block.seen[row + i];
    sums[i] = end > begin ? score_exponentials<Arch>(scores + begin, end - begin, largest[i]) : 0.0f;
    for (Index j = seen.first; j < begin; j += lanes) Lanes<Arch>::zero().store(scores + j);
    for (Index j = (end + lanes - 1) / lanes * lanes; j < seen.most; j += lanes) Lanes<Arch>::zero().store(scores + j);
  }
  merge_sums<Arch, Rows>(block, row, largest, sums, weights);
  for_each_column_tile<Arch, Rows>(block.value_dim, [&](Index column, auto vectors) {
    value_tile<Arch, Rows, vectors.value>(block, row, column, seen, weights);
  });
}

/// Tile by tile of rows: its scores (12 × 512 floats, 24 KiB) stay in the L1 from one pass to the next.
template <class Arch>
void attention_block(const AttentionBlock& block) noexcept {
  for_each_row_tile<Arch>(block.rows, [&](Index row, auto rows) { attention_tile<Arch, rows.value>(block, row); });
}

template <class Arch>
void attention_finish(const AttentionState& state, const AttentionOutput& output) noexcept {
  using V = Lanes<Arch>;
  for (Index first = 0; first < output.rows; first += lanes) {
    const Index rows = output.rows - first < lanes ? output.rows - first : lanes;
    V sum = V::load(state.sum + first, rows, 0.0f), largest = V::load(state.max + first, rows, 0.0f),
      weight = V::broadcast(1.0f);
    if (output.sink != -__builtin_inff()) {
      const V sink = V::broadcast(output.sink), joint = max(largest, sink);
      weight = exp(largest - joint);  // 0 for a row that saw no key
      sum = fma(sum, weight, exp(sink - joint));
      largest = joint;
    }
    alignas(64) float factor[lanes], lse[lanes];
    select_equal(sum, V::zero(), V::zero(), weight / sum).store(factor);
    if (output.lse != nullptr) (largest + log(sum)).store(lse);
    for (Index i = 0; i < rows; ++i) {
      const float* from = state.out + (first + i) * state.out_step;
      float* to = output.out + (first + i) * output.row_step;
      const V scale = V::broadcast(factor[i]);
      if (output.lse != nullptr) output.lse[(first + i) * output.lse_step] = lse[i];
      for (Index j = 0; j < output.value_dim; j += lanes) {
        const V y = V::load(from + j) * scale;
        const Index count = output.value_dim - j;
        alignas(64) float copy[lanes] = {};
        if (output.column_step == 1 && count >= lanes) y.store(to + j);
        else if (output.column_step == 1) y.store(to + j, count);
        else y.store(copy);
        for (Index c = 0; output.column_step != 1 && c < lanes && c < count; ++c)
          to[(j + c) * output.column_step] = copy[c];
      }
    }
  }
}

}  // namespace
}  // namespace headlane::kernels
