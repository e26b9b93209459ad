// Attention of some query rows to one block of keys: scores, exponentials, P·V, and the merge into the running state.
// Online softmax by blocks (Milakov and Gimelshein 2018; Dao et al. 2022), each with its own maximum, so that what a block
// contributes does not depend on the blocks before it.
#pragma once

#include "kernels/softmax_row.hpp"
#include "kernels/tile.hpp"

namespace headlane::kernels {
namespace {

/// The least and the most keys that the rows of a tile see.
struct Seen {
  Index least, most;
};

template <class Arch, int Rows>
HEADLANE_INLINE Seen seen_by(const Index* seen) {
  Seen result{seen[0], seen[0]};
  for (int i = 1; i < Rows; ++i) {
    if (seen[i] < result.least) result.least = seen[i];
    if (seen[i] > result.most) result.most = seen[i];
  }
  return result;
}

/// Whether a row sees each key before `seen`.
HEADLANE_INLINE bool sees_all(const AttentionBlock& block) {
  return block.mask.data == nullptr && block.bias.data == nullptr;
}

/// Whether mask and bias, where given, can be loaded 16 at a time.
HEADLANE_INLINE bool contiguous(const AttentionBlock& block) {
  return (block.mask.data == nullptr || block.mask.key_step == 1) &&
         (block.bias.data == nullptr || block.bias.key_step == 1);
}

/// 16 scores of a row, from key `key` on, with their bias, and -inf where the row does not see the key. Beyond `count` (at least
/// 1) nothing is read. `Step` 1: they are contiguous.
template <class Arch, int Step>
HEADLANE_INLINE Lanes<Arch> adjusted(const AttentionBlock& block, Index row, Index key, Lanes<Arch> score,
                                     Index count) {
  using V = Lanes<Arch>;
  const V minus_inf = V::broadcast(-__builtin_inff());
  if (const auto& bias = block.bias; bias.data != nullptr) {
    const Index step = Step == 1 ? 1 : bias.key_step;
    const V add = V::gather(bias.data + row * bias.row_step + key * step, step, count);
    score = select_equal(add, minus_inf, minus_inf, score + add);
  }
  if (const auto& mask = block.mask; mask.data != nullptr) {
    const Index step = Step == 1 ? 1 : mask.key_step;
    score = score.where(mask.data + row * mask.row_step + key * step, step, count, minus_inf);
  }
  return score;
}

/// Asks for the bias and mask of a tile, which then come while its products are computed.
template <int Rows, int Vectors>
HEADLANE_INLINE void fetch_adjustments(const AttentionBlock& block, Index row, Index key) {
  const auto& bias = block.bias;
  const auto& mask = block.mask;
  const int bias_rows = bias.data == nullptr ? 0 : bias.row_step == 0 ? 1 : Rows;
  const int mask_rows = mask.data == nullptr ? 0 : mask.row_step == 0 ? 1 : Rows;
  for (int i = 0; i < bias_rows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) __builtin_prefetch(bias.data + (row + i) * bias.row_step + key + j * lanes);
  for (int i = 0; i < mask_rows; ++i) __builtin_prefetch(mask.data + (row + i) * mask.row_step + key);
}

/// scores = q · kᵀ for one tile. If `whole`, with mask and bias, and their maximum goes into lane_max, 16 a row, while they are
/// still in registers.
template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE void score_tile(const AttentionBlock& block, Index row, Index column, bool whole, float* lane_max) {
  using V = Lanes<Arch>;
  const bool adjust = whole && !sees_all(block);
  if (adjust) fetch_adjustments<Rows, Vectors>(block, row, column);
  V acc[Rows][Vectors];
  clear<Arch, Rows, Vectors>(acc);
  const Panels k{block.k + column / panel_columns * panel_columns * block.head_dim + column % panel_columns,
                 panel_columns, panel_columns * block.head_dim};
  multiply<Arch, Rows, Vectors>(block.head_dim, block.q + row * row_stride, k, acc);
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) {
      const Index key = column + j * lanes;
      if (adjust) acc[i][j] = adjusted<Arch, 1>(block, row + i, key, acc[i][j], lanes);
      acc[i][j].store(block.scores + i * row_stride + key);
    }
    if (!whole) continue;
    V largest = V::load(lane_max + i * lanes);
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) largest = max(acc[i][j], largest);
    largest.store(lane_max + i * lanes);
  }
}

/// All scores that some row of the tile sees, and the largest that each row sees: -inf if it sees none.
template <class Arch, int Rows>
HEADLANE_INLINE void tile_scores(const AttentionBlock& block, Index row, const Seen& seen, float* largest) {
  using V = Lanes<Arch>;
  const V minus_inf = V::broadcast(-__builtin_inff());
  alignas(64) float lane_max[Rows * lanes];
  for (int i = 0; i < Rows; ++i) minus_inf.store(lane_max + i * lanes);
  Index compared = 0;
  for_each_column_tile<Arch, Rows>(seen.most, [&](Index column, auto vectors) {
    const Index end = column + vectors.value * lanes;
    const bool whole = end <= seen.least && contiguous(block);
    if (whole) compared = end;
    score_tile<Arch, Rows, vectors.value>(block, row, column, whole, lane_max);
  });
  for (int i = 0; i < Rows; ++i) {
    V m = V::load(lane_max + i * lanes);
    float* scores = block.scores + i * row_stride;
    for (Index j = compared; j < block.seen[row + i]; j += lanes) {
      const Index count = block.seen[row + i] - j;
      V score = V::load(scores + j);
      if (!sees_all(block)) {
        score = adjusted<Arch, 0>(block, row + i, j, score, count);
        score.store(scores + j);
      }
      m = max(score.first(count, minus_inf), m);
    }
    largest[i] = m.reduce_max();
  }
}

/// Replaces the first n scores of a row by exp(score - largest), and gives their sum. The rest of the last 16 become 0.
template <class Arch>
HEADLANE_INLINE float score_exponentials(float* scores, Index n, float largest) {
  using V = Lanes<Arch>;
  const V m = V::broadcast(largest == -__builtin_inff() ? 0.0f : largest);  // not -inf - -inf, which is NaN
  const V minus_inf = V::broadcast(-__builtin_inff());
  const auto load = [&](Index j, Index count) {
    return (count >= lanes ? V::load(scores + j) : V::load(scores + j).first(count, minus_inf)) - m;
  };
  return exponentials<Arch>(n, load, [&](Index j, const V& p, Index) { p.store(scores + j); });
}

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
  return key < block.seen[row] && (mask.data == nullptr || mask.data[row * mask.row_step + key * mask.key_step]) &&
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
                                           const float* values, Index keys, float* result) {
  using V = Lanes<Arch>;
  V acc = V::zero();
  for (Index key = 0; key < keys; ++key)
    if (sees(block, row, key)) acc = fma(V::broadcast(weights[key]), V::load(values + key * block.v_row_step), acc);
  acc.store(result);
}

/// state.out = keep · state.out + add · (P · V) for one tile. Keys that a row does not see have the weight 0 there.
template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE void value_tile(const AttentionBlock& block, Index row, Index column, const Seen& seen,
                                const Weights& weights) {
  using V = Lanes<Arch>;
  const Index* row_seen = block.seen + row;
  V acc[Rows][Vectors];
  clear<Arch, Rows, Vectors>(acc);
  const Panels v{block.v + column / panel_columns * block.v_panel_step + column % panel_columns, block.v_row_step,
                 block.v_panel_step};
  multiply<Arch, Rows, Vectors>(seen.most, block.scores, v, acc);
  if ((seen.least < seen.most || !sees_all(block)) && !all_finite<Arch, Rows, Vectors>(acc)) {
    alignas(64) float part[lanes];
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < Vectors; ++j) {
        const float* values = v.data + v.offset(j);
        seen_values<Arch>(block, row + i, block.scores + i * row_stride, values, seen.most, part);
        acc[i][j] = V::load(part);
      }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
    float* out = block.state.out + (row + i) * block.state.out_step + column;
    if (!block.fresh && row_seen[i] == 0) continue;
    const V keep = V::broadcast(weights.keep[i]), add = V::broadcast(weights.add[i]);
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) {
      // A chain that underflowed to -0 and then met weights of 0 may be +0: with a zero added it always is.
      const V part = acc[i][j] + V::zero();
      (block.fresh ? part : fma(part, add, V::load(out + j * lanes) * keep)).store(out + j * lanes);
    }
  }
}

template <class Arch, int Rows>
HEADLANE_INLINE void attention_tile(const AttentionBlock& block, Index row) {
  const Seen seen = seen_by<Arch, Rows>(block.seen + row);
  if (seen.most == 0 && !block.fresh) return;
  alignas(64) float largest[lanes] = {}, sums[lanes] = {};
  alignas(64) Weights weights;
  tile_scores<Arch, Rows>(block, row, seen, largest);
  for (int i = 0; i < Rows; ++i) {
    float* scores = block.scores + i * row_stride;
    const Index count = block.seen[row + i];
    sums[i] = score_exponentials<Arch>(scores, count, largest[i]);
    for (Index j = (count + lanes - 1) / lanes * lanes; j < seen.most; j += lanes)
      Lanes<Arch>::zero().store(scores + j);
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
    const V sum = V::load(state.sum + first, rows, 0.0f);
    alignas(64) float factor[lanes], lse[lanes];
    select_equal(sum, V::zero(), V::zero(), V::broadcast(1.0f) / sum).store(factor);
    if (output.lse != nullptr) (V::load(state.max + first, rows, 0.0f) + log(sum)).store(lse);
    for (Index i = 0; i < rows; ++i) {
      const float* from = state.out + (first + i) * state.out_step;
      float* to = output.out + (first + i) * output.row_step;
      const V weight = V::broadcast(factor[i]);
      if (output.lse != nullptr) output.lse[(first + i) * output.lse_step] = lse[i];
      for (Index j = 0; j < output.value_dim; j += lanes) {
        const V y = V::load(from + j) * weight;
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
