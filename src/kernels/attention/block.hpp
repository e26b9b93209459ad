// Attention of some query rows to one block of keys: their scores (scores.hpp), P·V, and the merge into the running state.
// Online softmax by blocks (Milakov and Gimelshein 2018; Dao et al. 2022), each with its own maximum, so that what a block
// contributes does not depend on the blocks before it.
#pragma once

#include "kernels/attention/merge.hpp"
#include "kernels/attention/scores.hpp"

namespace headlane::internal::kernels {
namespace {

HEADLANE_INLINE bool sees(const AttentionBlock& block, Index row, Index key) {
  const auto hidden_by = [&](const PerScore<float>& bias) {
    return bias.data != nullptr && bias.data[row * bias.row_step + key * bias.key_step] == -__builtin_inff();
  };
  const auto& mask = block.mask;
  const auto& bits = block.bits;
  return key >= block.hidden[row] && key < block.seen[row] &&
         (mask.data == nullptr || mask.data[row * mask.row_step + key * mask.key_step]) &&
         (bits.data == nullptr || (bits.data[row * bits.row_step + key / 8 * bits.key_step] >> key % 8 & 1) != 0) &&
         !hidden_by(block.bias) && !hidden_by(block.relative);
}

template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE bool all_finite(const Accumulators<Arch, Rows, Vectors>& acc) {
  using V = Lanes<Arch>;
  constexpr int chains = 4 < Rows ? 4 : Rows;  // an fma takes 4 cycles
  V zeros[chains];
  for (V& z : zeros) z = V::zero();
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) zeros[i % chains] = fma(acc[i][j], V::zero(), zeros[i % chains]);
#pragma GCC unroll 4
  for (int c = 1; c < chains; ++c) zeros[0] = zeros[0] + zeros[c];
  return zeros[0].reduce_add() == 0.0f;
}

/// P · V of one row and 16 columns, `offset` behind the first one, with the keys alone that the row sees: neither a NaN nor an infinity
/// in the value of another key may reach it, not even times 0. Slow, for data that has them.
template <class Arch>
__attribute__((noinline)) void seen_values(const AttentionBlock& block, Index row, const float* weights, Index offset,
                                           const Seen& seen, float* result) {
  using V = Lanes<Arch>;
  const KeyBlock& keys = block.keys;
  V acc = V::zero();
  for (Index key = seen.begin; key < seen.most; ++key)
    if (sees(block, row, key))
      acc = fma(V::broadcast(weights[key]),
                V::load(keys.v[key / keys.page] + key % keys.page * keys.v_row_step + offset), acc);
  acc.store(result);
}

/// How P · V of a tile goes into the state.
enum class Merge {
  first,  // it is the state
  all,    // state = keep · state + add · (P · V)
  some,   // only for rows that see a key
};

/// P · V of a tile, divided, into the result: where there is one block only, nothing is merged.
template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE void put_tile(const AttentionOutput& output, Index row, Index column, const float* factor,
                              const Accumulators<Arch, Rows, Vectors>& acc) {
  using V = Lanes<Arch>;
  float* to = output.out + row * output.row_step + column;
  const Index last = output.value_dim - column - (Vectors - 1) * lanes;  // columns of the last vector
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i, to += output.row_step) {
    const V scale = V::broadcast(factor[i]);
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) {
      const V y = divided(acc[i][j] + V::zero(), scale);
      if (j + 1 < Vectors || last >= lanes) y.store(to + j * lanes);
      else y.store(to + j * lanes, last);
    }
  }
}

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
  const KeyBlock& keys = block.keys;
  const Index offset = column / panel_columns * keys.v_panel_step + column % panel_columns;
  for (Index first = seen.begin, page = first / keys.page; first < seen.most; ++page) {
    const Index page_end = (page + 1) * keys.page, end = page_end < seen.most ? page_end : seen.most;
    const Panels v{keys.v[page] + offset + (first - page * keys.page) * keys.v_row_step, keys.v_row_step,
                   keys.v_panel_step};
    multiply<Arch, Rows, Vectors>(end - first, PackedRows{block.scores + first}, v, acc);
    first = end;
  }
  if ((seen.begin < seen.from || seen.least < seen.most || !sees_all(block)) && !all_finite<Arch, Rows, Vectors>(acc)) {
    alignas(64) float part[lanes];
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < Vectors; ++j) {
        const Index at = offset + Panels{nullptr, 0, keys.v_panel_step}.offset(j);
        seen_values<Arch>(block, row + i, block.scores + i * row_stride, at, seen, part);
        acc[i][j] = V::load(part);
      }
  }
  if (block.output != nullptr) put_tile<Arch, Rows, Vectors>(*block.output, row, column, weights.keep, acc);
  else if (block.fresh) merge_tile<Arch, Rows, Vectors, Merge::first>(block, row, column, weights, acc);
  else if (seen.least > 0) merge_tile<Arch, Rows, Vectors, Merge::all>(block, row, column, weights, acc);
  else merge_tile<Arch, Rows, Vectors, Merge::some>(block, row, column, weights, acc);
}

/// Asks for what the rows of a tile have to fetch.
template <int Rows>
HEADLANE_INLINE void fetch(const AttentionBlock& block, Index row) {
  for (const Fetch& f : block.fetch) {
    const Index end = (row + Rows) * f.per_query < f.rows ? (row + Rows) * f.per_query : f.rows;
    for (Index i = row * f.per_query; i < end; ++i)
      for (Index line = 0; line < f.row_lines; ++line) __builtin_prefetch(f.data + i * f.row_step + line * lanes, 0, 2);
  }
}

template <class Arch, int Rows>
HEADLANE_INLINE void attention_tile(const AttentionBlock& block, Index row) {
  const Seen seen = seen_by<Arch, Rows>(block, row);
  if (seen.most == 0 && !block.fresh) return;
  alignas(64) float largest[lanes] = {}, sums[lanes] = {};
  alignas(64) Weights weights = {};
  fetch<Rows>(block, row);
  tile_scores<Arch, Rows>(block, row, seen, largest);
  for (int i = 0; i < Rows; ++i) {
    float* scores = block.scores + i * row_stride;
    const Index begin = block.hidden[row + i] / lanes * lanes, end = block.seen[row + i];
    sums[i] = end > begin ? score_exponentials<Arch>(scores + begin, end - begin, largest[i]) : 0.0f;
    for (Index j = seen.first; j < begin; j += lanes) Lanes<Arch>::zero().store(scores + j);
    for (Index j = (end + lanes - 1) / lanes * lanes; j < seen.most; j += lanes) Lanes<Arch>::zero().store(scores + j);
  }
  const Lanes<Arch> block_max = Lanes<Arch>::load(largest), block_sum = Lanes<Arch>::load(sums);
  if (block.output != nullptr) {
    finish_rows<Arch>(*block.output, row, Rows, block_max, block_sum, weights.keep);
  } else if (block.fresh) {
    block_max.store(block.state.max + row, Rows);
    block_sum.store(block.state.sum + row, Rows);
  } else {
    merge_sums<Arch>(block.state, row, Rows, block_max, block_sum, weights);
  }
  for_each_column_tile<Arch, Rows>(block.value_dim, [&](Index column, auto vectors) {
    value_tile<Arch, Rows, vectors.value>(block, row, column, seen, weights);
  });
}

/// Tile by tile of rows: its scores (12 × 512 floats, 24 KiB) stay in the L1 from one pass to the next.
template <class Arch>
void attention_block(const AttentionBlock& block) noexcept {
  for_each_row_tile<Arch>(block.rows, [&](Index row, auto rows) { attention_tile<Arch, rows.value>(block, row); });
}

}  // namespace
}  // namespace headlane::internal::kernels
