// Scores of a tile of query rows with one block of keys: q·kᵀ, bias and mask, their maximum and their exponentials.
#pragma once

#include "kernels/args/attention.hpp"
#include "kernels/attention/adjust.hpp"
#include "kernels/gemm/pack.hpp"
#include "kernels/gemm/tile.hpp"
#include "kernels/rowwise/softmax_row.hpp"

namespace headlane::internal::kernels {
namespace {

/// What the rows of a tile see: no row sees keys before `begin` or from `most` on, every row sees from … least-1 unless mask and bias
/// hide some. `first` is the beginning of the panel of `begin`; least is 0 if some row sees nothing.
struct Seen {
  Index first, begin, from, least, most;
};

template <class Arch, int Rows>
HEADLANE_INLINE Seen seen_by(const AttentionBlock& block, Index row) {
  const auto first_of = [](Index begin) { return begin / panel_columns * panel_columns; };
  if (block.alike) {
    const Index hidden = block.hidden[row], seen = block.seen[row];
    return {first_of(hidden), hidden, hidden, seen, seen};
  }
  Seen result{0, block_size, 0, block_size, 0};
  for (int i = 0; i < Rows; ++i) {
    const Index hidden = block.hidden[row + i], seen = block.seen[row + i];
    result.begin = hidden < result.begin ? hidden : result.begin;
    result.from = hidden > result.from ? hidden : result.from;
    result.least = seen < result.least ? seen : result.least;
    result.most = seen > result.most ? seen : result.most;
  }
  if (result.begin >= result.most) result.begin = 0;
  result.first = first_of(result.begin);
  return result;
}

/// What becomes of the scores of a tile while they are in registers.
enum class Scores {
  stored,    // nothing: rows differ in the keys that they see, or mask and bias are strided
  compared,  // their maximum goes into lane_max, 16 a row
  adjusted,  // mask and bias go in, then the maximum
};

/// scores = q · kᵀ for one tile; `panels` are those of the keys from `first` on.
template <class Arch, int Rows, int Vectors, Scores scores>
HEADLANE_INLINE void score_tile(const AttentionBlock& block, Index row, const float* panels, Index first, Index column,
                                float* lane_max) {
  using V = Lanes<Arch>;
  if constexpr (scores == Scores::adjusted) fetch_adjustments<Rows, Vectors>(block, row, column);
  V acc[Rows][Vectors];
  clear<Arch, Rows, Vectors>(acc);
  const Index within = column - first;
  const Panels k{panels + within / panel_columns * panel_columns * block.head_dim + within % panel_columns,
                 panel_columns, panel_columns * block.head_dim};
  multiply<Arch, Rows, Vectors>(block.head_dim, PackedRows{block.q + row * row_stride}, k, acc);
  if constexpr (scores == Scores::adjusted) adjust_tile<Arch, Rows, Vectors>(block, row, column, acc);
  float* to = block.scores + column;
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) acc[i][j].store(to + i * row_stride + j * lanes);
    if constexpr (scores == Scores::stored) continue;
    V largest = V::load(lane_max + i * lanes);
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) largest = max(acc[i][j], largest);
    largest.store(lane_max + i * lanes);
  }
}

/// Calls f(panels, first, begin, end) for pieces of the keys begin … end-1; `panels` are those of the keys from `first` on.
template <class Arch, class F>
HEADLANE_INLINE void for_each_piece_of_keys(const AttentionBlock& block, const Seen& seen, const F& f) {
  const KeyBlock& keys = block.keys;
  const Index size = keys.k_row_step == 0 ? keys.page : turned_keys;
  for (Index first = seen.first / size * size; first < seen.most; first += size) {
    const Index begin = first < seen.first ? seen.first : first,
                end = first + size < seen.most ? first + size : seen.most;
    if (keys.k_row_step == 0) {
      f(keys.k[first / size], first, begin, end);
    } else {
      pack_panels<Arch>({keys.k[0] + begin * keys.k_row_step, block.head_dim, end - begin, 1, keys.k_row_step},
                        keys.turned);
      f(keys.turned, begin, begin, end);
    }
  }
}

/// All scores that some row of the tile sees, and the largest that each row sees: -inf if it sees none.
template <class Arch, int Rows>
HEADLANE_INLINE void tile_scores(const AttentionBlock& block, Index row, const Seen& seen, float* largest) {
  using V = Lanes<Arch>;
  const V minus_inf = V::broadcast(-__builtin_inff());
  alignas(64) float lane_max[Rows * lanes];
  for (int i = 0; i < Rows; ++i) minus_inf.store(lane_max + i * lanes);
  const Index comparable = adjusts_in_registers(block) ? seen.least : 0;
  const bool adjust = adjusts(block);
  Index compared = seen.first, compared_end = seen.first;  // these keys
  for_each_piece_of_keys<Arch>(block, seen, [&](const float* panels, Index first, Index begin, Index most) {
    for_each_column_tile<Arch, Rows>(most - begin, [&](Index at, auto vectors) {
      const Index column = begin + at, end = column + vectors.value * lanes;
      constexpr int width = vectors.value;
      if (column < seen.from || end > comparable)
        return score_tile<Arch, Rows, width, Scores::stored>(block, row, panels, first, column, lane_max);
      if (compared_end == seen.first) compared = column;
      compared_end = end;
      if (adjust) score_tile<Arch, Rows, width, Scores::adjusted>(block, row, panels, first, column, lane_max);
      else score_tile<Arch, Rows, width, Scores::compared>(block, row, panels, first, column, lane_max);
    });
  });
  for (int i = 0; i < Rows; ++i) {
    V m = V::load(lane_max + i * lanes);
    float* scores = block.scores + i * row_stride;
    const Index hidden = block.hidden[row + i], end = block.seen[row + i], begin = hidden / lanes * lanes;
    if (block.softcap != 0.0f && end > begin) cap_scores<Arch>(block.softcap, scores + begin, end - begin);
    for (Index j = begin == compared ? compared_end : begin; j < end;) {
      const Index count = end - j;
      V score = V::load(scores + j);
      if (adjust) score = adjusted<Arch>(block, row + i, j, score, count);
      score = score.without_first(hidden - j, minus_inf);
      if (adjust || hidden > j) score.store(scores + j);
      m = max(score.first(count, minus_inf), m);
      j = j + lanes == compared ? compared_end : j + lanes;
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

}  // namespace
}  // namespace headlane::internal::kernels
