// Scores of a tile of query rows with one block of keys: q·kᵀ, bias and mask, their maximum and their exponentials.
#pragma once

#include "kernels/activation.hpp"
#include "kernels/pack.hpp"
#include "kernels/softmax_row.hpp"
#include "kernels/tile.hpp"

namespace headlane::kernels {
namespace {

/// What the rows of a tile see: no row sees keys before `first` or from `most` on, every row sees from … least-1 unless mask and bias
/// hide some. `first` is a multiple of panel_columns; least is 0 if some row sees nothing.
struct Seen {
  Index first, from, least, most;
};

template <class Arch, int Rows>
HEADLANE_INLINE Seen seen_by(const AttentionBlock& block, Index row) {
  if (block.alike) {
    const Index hidden = block.hidden[row], seen = block.seen[row];
    return {hidden / panel_columns * panel_columns, hidden, seen, seen};
  }
  Seen result{block_size, 0, block_size, 0};
  for (int i = 0; i < Rows; ++i) {
    const Index hidden = block.hidden[row + i], seen = block.seen[row + i];
    result.first = hidden < result.first ? hidden : result.first;
    result.from = hidden > result.from ? hidden : result.from;
    result.least = seen < result.least ? seen : result.least;
    result.most = seen > result.most ? seen : result.most;
  }
  result.first = result.first < result.most ? result.first / panel_columns * panel_columns : 0;
  return result;
}

/// Whether a row sees each key between its `hidden` and its `seen`.
HEADLANE_INLINE bool sees_all(const AttentionBlock& block) {
  return block.mask.data == nullptr && block.bits.data == nullptr && block.bias.data == nullptr &&
         block.relative.data == nullptr;
}

/// Whether scores are changed before they are compared.
HEADLANE_INLINE bool adjusts(const AttentionBlock& block) {
  return !sees_all(block) || block.softcap != 0.0f || block.slopes != nullptr;
}

/// Whether that is done while they are in registers: mask and bias can be loaded 16 at a time, and tanh is not needed, whose code
/// would be there for every register of every tile.
HEADLANE_INLINE bool adjusts_in_registers(const AttentionBlock& block) {
  return (block.mask.data == nullptr || block.mask.key_step == 1) &&
         (block.bias.data == nullptr || block.bias.key_step == 1) && block.softcap == 0.0f;
}

/// softcap · tanh(score / softcap).
template <class Arch>
__attribute__((noinline)) Lanes<Arch> capped(float softcap, Lanes<Arch> score) {
  using V = Lanes<Arch>;
  V x[1] = {score * V::broadcast(1.0f / softcap)};
  apply<Tanh>(x);
  return x[0] * V::broadcast(softcap);
}

/// 16 scores of a row, from key `key` on, with all that is added, and -inf where the row does not see the key. Beyond `count` (at
/// least 1) nothing is read. `Step` 1: mask and bias are contiguous, and there is no softcap.
template <class Arch, int Step>
HEADLANE_INLINE Lanes<Arch> adjusted(const AttentionBlock& block, Index row, Index key, Lanes<Arch> score,
                                     Index count) {
  using V = Lanes<Arch>;
  const V minus_inf = V::broadcast(-__builtin_inff());
  if (Step != 1 && block.softcap != 0.0f) score = capped<Arch>(block.softcap, score);
  if (block.slopes != nullptr)
    score = fma(V::broadcast(block.slopes[row]),
                V::from(static_cast<float>(key + block.distance - row * block.row_distance)), score);
  const auto add_to_score = [&](const V& add) { score = select_equal(add, minus_inf, minus_inf, score + add); };
  if (const auto& relative = block.relative; relative.data != nullptr)
    add_to_score(V::gather(relative.data + row * relative.row_step + key, 1, count));
  if (const auto& bias = block.bias; bias.data != nullptr) {
    const Index step = Step == 1 ? 1 : bias.key_step;
    add_to_score(V::gather(bias.data + row * bias.row_step + key * step, step, count));
  }
  if (const auto& bits = block.bits; bits.data != nullptr) {
    const unsigned char* flags = bits.data + row * bits.row_step + key / 8 * bits.key_step;
    score = score.where(static_cast<unsigned>(flags[0] | (count > 8 ? flags[bits.key_step] << 8 : 0)), minus_inf);
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
  float* to = block.scores + column;
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) {
      const Index key = column + j * lanes;
      if constexpr (scores == Scores::adjusted) acc[i][j] = adjusted<Arch, 1>(block, row + i, key, acc[i][j], lanes);
      acc[i][j].store(to + i * row_stride + j * lanes);
    }
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
    for (Index j = begin == compared ? compared_end : begin; j < end;) {
      const Index count = end - j;
      V score = V::load(scores + j);
      if (adjust) score = adjusted<Arch, 0>(block, row + i, j, score, count);
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
}  // namespace headlane::kernels
