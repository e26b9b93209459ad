// Scores of a tile of query rows with one block of keys: q·kᵀ, bias and mask, their maximum and
// their exponentials.
#pragma once

#include "kernels/args/attention.hpp"
#include "kernels/attention/adjust.hpp"
#include "kernels/attention/key_rows.hpp"
#include "kernels/attention/stored.hpp"
#include "kernels/gemm/pack.hpp"
#include "kernels/gemm/tiling.hpp"
#include "kernels/rowwise/softmax_row.hpp"

namespace headlane::internal::kernels {
namespace {

/// The visible keys of the rows of a tile: outside begin … end-1, no key is visible to any row;
/// all_begin … all_end-1 are visible to every row, mask and bias aside. panel_begin is the first
/// key of the panel of `begin`; all_end is 0 if some row has no visible key.
struct VisibleRange {
  Index panel_begin, begin, all_begin, all_end, end;
};

template <class Arch, int Rows>
HEADLANE_INLINE VisibleRange visible_to(const AttentionBlock& block, Index row) {
  const auto panel_of = [](Index begin) { return begin / panel_columns * panel_columns; };
  if (block.uniform) {
    const Index begin = block.key_begin[row], end = block.key_end[row];
    return {panel_of(begin), begin, begin, end, end};
  }
  VisibleRange result{0, block_size, 0, block_size, 0};
  for (int i = 0; i < Rows; ++i) {
    const Index begin = block.key_begin[row + i], end = block.key_end[row + i];
    result.begin = begin < result.begin ? begin : result.begin;
    result.all_begin = begin > result.all_begin ? begin : result.all_begin;
    result.all_end = end < result.all_end ? end : result.all_end;
    result.end = end > result.end ? end : result.end;
  }
  if (result.begin >= result.end) result.begin = 0;
  result.panel_begin = panel_of(result.begin);
  return result;
}

/// Keys first … end-1 of a block: in panels, or, if that is null, in rows.
struct PieceOfKeys {
  const float* panels;
  Index first, end;
};

/// Values that a tile prefetches while it reads keys, of which there are as many: in a page at the
/// same place, in a tensor those of its own keys. Few rows wait for memory after each block of
/// keys, and again after their values, as long as nothing fetches what comes next.
HEADLANE_INLINE const float* values_beside(const KeyBlock& keys, const PieceOfKeys& piece, Index column, Index offset) {
  if (keys.k_row_step == 0) return static_cast<const float*>(keys.v[piece.first / keys.page]) + offset;
  return static_cast<const float*>(keys.v[0]) + column * keys.v_row_step;
}

/// q · kᵀ for one tile.
template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE void multiply_keys(const AttentionBlock& block, Index row, const PieceOfKeys& piece, Index column,
                                   Accumulators<Arch, Rows, Vectors>& acc) {
  if constexpr (Rows <= max_rows_by_columns<Arch>)
    if (piece.panels == nullptr) {
      alignas(64) float sums[Rows * lanes];
#pragma GCC unroll 8
      for (int j = 0; j < Vectors; ++j) {
        const Index key = column + j * lanes;
        multiply_key_rows<Arch, Rows>(block, row, key, piece.end - key, sums);
#pragma GCC unroll 4
        for (int i = 0; i < Rows; ++i) acc[i][j] = Lanes<Arch>::load(sums + i * lanes);
      }
      return;
    }
  clear<Arch, Rows, Vectors>(acc);
  const Index within = column - piece.first;
  const Index offset = within / panel_columns * panel_columns * block.head_dim + within % panel_columns;
  Panels k{piece.panels + offset, panel_columns, panel_columns * block.head_dim};
  const PackedRows q{block.q + row * packed_row_stride};
  if (block.keys.prefetches) {
    k.next = values_beside(block.keys, piece, column, offset);
    multiply<Arch, Rows, Vectors, Visit::first>(block.head_dim, q, k, acc);
  } else {
    multiply<Arch, Rows, Vectors>(block.head_dim, q, k, acc);
  }
}

/// scores = q · kᵀ for one tile, Adjusted by mask and bias, which are loaded 16 at a time; their
/// maximum goes into lane_max, 16 a row. Its first row of scores is `scores`.
template <class Arch, int Rows, int Vectors, bool Adjusted>
HEADLANE_INLINE void score_tile(const AttentionBlock& block, Index row, const PieceOfKeys& piece, Index column,
                                float* scores, float* lane_max) {
  using V = Lanes<Arch>;
  if constexpr (Adjusted) prefetch_adjustments<Rows, Vectors>(block, row, column);
  V acc[Rows][Vectors];
  multiply_keys<Arch, Rows, Vectors>(block, row, piece, column, acc);
  if constexpr (Adjusted) adjust_tile<Arch, Rows, Vectors>(block, row, column, acc);
  float* to = scores + column;
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) acc[i][j].store(to + i * packed_row_stride + j * lanes);
    V largest = V::load(lane_max + i * lanes);
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) largest = max(acc[i][j], largest);
    largest.store(lane_max + i * lanes);
  }
}

/// The same, one function for all tiles that have such a part.
template <class Arch, int Rows, int Vectors, bool Adjusted>
__attribute__((noinline)) void score_part(const AttentionBlock& block, Index row, const PieceOfKeys& piece,
                                          Index column, float* scores, float* lane_max) {
  score_tile<Arch, Rows, Vectors, Adjusted>(block, row, piece, column, scores, lane_max);
}

/// Calls f(piece, begin) for pieces of the visible keys, of which those from `begin` on count.
template <class Arch, int Rows, class F>
HEADLANE_INLINE void for_each_piece_of_keys(const AttentionBlock& block, const VisibleRange& visible, const F& f) {
  const KeyBlock& keys = block.keys;
  const bool in_rows = keys.k_row_step != 0;
  if (in_rows && Rows <= max_rows_by_columns<Arch>) return f(PieceOfKeys{nullptr, 0, visible.end}, visible.panel_begin);
  const Index size = in_rows ? transposed_keys : keys.page;
  for (Index first = visible.panel_begin / size * size; first < visible.end; first += size) {
    const Index begin = first < visible.panel_begin ? visible.panel_begin : first,
                end = first + size < visible.end ? first + size : visible.end;
    if (in_rows) {
      pack_panels<Arch>({static_cast<const float*>(keys.k[0]) + begin * keys.k_row_step, block.head_dim, end - begin, 1,
                         keys.k_row_step},
                        keys.transposed);
      f(PieceOfKeys{keys.transposed, begin, end}, begin);
    } else {
      f(PieceOfKeys{static_cast<const float*>(keys.k[first / size]), first, end}, begin);
    }
  }
}

/// Computes the scores of all keys that are visible to some row of the tile, and the largest
/// visible score of each row, -inf without visible keys.
template <class Arch, int Rows>
__attribute__((noinline)) void tile_scores(const AttentionBlock& block, Index row, const VisibleRange& visible,
                                           float* largest) {
  using V = Lanes<Arch>;
  const V minus_inf = V::broadcast(-__builtin_inff());
  alignas(64) float lane_max[Rows * lanes], unused[Rows * lanes];
  for (int i = 0; i < Rows; ++i) {
    minus_inf.store(lane_max + i * lanes);
    minus_inf.store(unused + i * lanes);
  }
  const Index comparable = adjusts_in_registers(block) ? visible.all_end : 0;
  const bool adjust = adjusts(block);
  Index compared = visible.panel_begin, compared_end = visible.panel_begin;  // these keys
  const auto score_piece = [&](const PieceOfKeys& piece, Index begin) {
    for_each_tile_of_panels<Arch, Rows>(piece.end - begin, [&](auto part, auto rows, Index at, auto vectors) {
      constexpr int first = part.value, height = rows.value, width = vectors.value;
      const Index column = begin + at, end = column + width * lanes;
      float* const scores = block.scores + first * packed_row_stride;
      const bool compares = column >= visible.all_begin && end <= comparable;
      if (compares) {
        if (compared_end == visible.panel_begin) compared = column;
        compared_end = end;
      }
      float* const largest_of_lanes = (compares ? lane_max : unused) + first * lanes;
      const auto score = [&](auto adjusted) HEADLANE_INLINE_LAMBDA {
        constexpr bool is_adjusted = adjusted.value != 0;
        if constexpr (have_parts<Arch>)
          score_part<Arch, height, width, is_adjusted>(block, row + first, piece, column, scores, largest_of_lanes);
        else score_tile<Arch, height, width, is_adjusted>(block, row + first, piece, column, scores, largest_of_lanes);
      };
      if (compares && adjust) score(Constant<1>{});
      else score(Constant<0>{});
    });
  };
  if (block.keys.type == DType::float32) {
    for_each_piece_of_keys<Arch, Rows>(block, visible, score_piece);
  } else if constexpr (Rows <= Tile<Arch>::rows) {
    stored_scores<Arch, Rows>(block, row, visible.panel_begin, visible.end);
  }
  for (int i = 0; i < Rows; ++i) {
    V m = V::load(lane_max + i * lanes);
    float* scores = block.scores + i * packed_row_stride;
    const Index first = block.key_begin[row + i], end = block.key_end[row + i], begin = first / lanes * lanes;
    if (block.softcap != 0.0f && end > begin) cap_scores<Arch>(block.softcap, scores + begin, end - begin);
    for (Index j = begin == compared ? compared_end : begin; j < end;) {
      const Index count = end - j;
      V score = V::load(scores + j);
      if (adjust) score = adjusted<Arch>(block, row + i, j, score, count);
      score = score.without_first(first - j, minus_inf);
      if (adjust || first > j) score.store(scores + j);
      m = max(score.first(count, minus_inf), m);
      j = j + lanes == compared ? compared_end : j + lanes;
    }
    largest[i] = m.reduce_max();
  }
}

/// Replaces the scores of rows first … first + Rows-1 of a tile by exp(score - largest), 0 for
/// masked keys, from visible.panel_begin to the last 16 before visible.end, and finds their sums.
/// Rows go side by side: exp is a chain of some 50 cycles, and a short row alone has too few. All
/// go through the keys that are visible to any of them: 512 rows whose masks end anywhere lose 3 %.
template <class Arch, int Rows>
HEADLANE_INLINE void score_exponentials(const AttentionBlock& block, Index row, int first, const VisibleRange& visible,
                                        const float* largest, float* sums) {
  using V = Lanes<Arch>;
  const V minus_inf = V::broadcast(-__builtin_inff());
  const Index *begin = block.key_begin + row + first, *end = block.key_end + row + first;
  V m[Rows], sum[Rows];
#pragma GCC unroll 4
  for (int i = 0; i < Rows; ++i) {
    m[i] = V::broadcast(largest[first + i] == -__builtin_inff() ? 0.0f : largest[first + i]);  // not -inf - -inf: NaN
    sum[i] = V::zero();
  }
  for (Index j = visible.panel_begin; j < visible.end; j += lanes) {
    float* scores = block.scores + first * packed_row_stride + j;
    V p[Rows];
#pragma GCC unroll 4
    for (int i = 0; i < Rows; ++i) p[i] = V::load(scores + i * packed_row_stride);
    if (j < visible.all_begin || j + lanes > visible.all_end)
      for (int i = 0; i < Rows; ++i) p[i] = p[i].first(end[i] - j, minus_inf).without_first(begin[i] - j, minus_inf);
#pragma GCC unroll 4
    for (int i = 0; i < Rows; ++i) p[i] = p[i] - m[i];
    exp_nonpositive(p);
#pragma GCC unroll 4
    for (int i = 0; i < Rows; ++i) {
      p[i].store(scores + i * packed_row_stride);
      sum[i] = sum[i] + p[i];
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < Rows; ++i) sums[first + i] = sum[i].reduce_add();
}

}  // namespace
}  // namespace headlane::internal::kernels
