// One block along k of a matrix product: packed rows times panels, added to c.
#pragma once

#include "kernels/gemm/columns.hpp"
#include "kernels/gemm/stored_tile.hpp"
#include "kernels/gemm/tiling.hpp"

#include <type_traits>

namespace headlane::internal::kernels {
namespace {

/// Two of the rows that come next, which a tile prefetches while it computes: six tiles prefetch a
/// strip. 2048 × 512 × 512 waited for rows of a in the first tile of each strip: 90 to 96 % of the
/// FMA peak. In the last strip, rows that are in the cache already: those of the tile itself, for
/// which unrolled loops do without (17 × 33 × 65 in 0.98 of the time).
HEADLANE_INLINE const float* rows_to_prefetch(const GemmBlock& block, Index row, Index column) {
  const Index next = row + column / panel_columns * 2 % strip_rows;
  return next + 1 < block.ahead_rows ? block.ahead + next * block.ahead_row_step : block.a + row * block.a_row_step;
}

/// acc += sums, the chains before this one.
template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE void add_sums(Accumulators<Arch, Rows, Vectors>& acc, const float* sums) {
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) acc[i][j] = Lanes<Arch>::load(sums + (i * Vectors + j) * lanes) + acc[i][j];
}

template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE void store_sums(const Accumulators<Arch, Rows, Vectors>& acc, float* sums) {
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) acc[i][j].store(sums + (i * Vectors + j) * lanes);
}

/// Where a tile begins to prefetch if two strips share the work: its part of the panel block.n
/// columns ahead.
template <int Vectors>
HEADLANE_INLINE const float* part_to_prefetch(const GemmBlock& block, Index row, Index column) {
  const Index panel = column / panel_columns + (block.n + panel_columns - 1) / panel_columns;
  const Index part = column % panel_columns / lanes * 2 + (row > 0 ? 1 : 0);
  return static_cast<const float*>(block.b) + panel * block.b_panel_step +
         part * (block.b_panel_step / PartOfPanel<Vectors>::count);
}

/// A tile of c. T: an item of b.
template <class Arch, class T, int Rows, int Vectors, Has has, Visit visit>
HEADLANE_INLINE void gemm_tile(const GemmBlock& block, Index row, Index column) {
  using V = Lanes<Arch>;
  const Index panel = column / panel_columns, within = column % panel_columns, columns = block.n - column;
  constexpr bool grouped = rows_of<T> == 32;
  PanelsOf<T> b{static_cast<const T*>(block.b) + panel * block.b_panel_step + (grouped ? 0 : within), block.b_row_step,
                block.b_panel_step};
  b.within = within;
  float* keep = visit == Visit::keep ? block.keep + panel * panel_columns * block.k + within : nullptr;
  if constexpr (std::is_same_v<T, Int8Quad>) b.scales = block.b_scales + column;
  const float *a = block.a + row * block.a_row_step, *ahead = rows_to_prefetch(block, row, column);
  prefetch_operands<Arch, Rows, Vectors>(block, row, column);
  if constexpr (visit == Visit::part) b.next = part_to_prefetch<Vectors>(block, row, column);
  else if constexpr (std::is_same_v<T, float> && visit != Visit::again)
    b.next = b.data + panels_of_tile<Vectors> * b.panel_step;
  V acc[Rows][Vectors];
  alignas(64) float memory[Rows * Vectors * lanes];  // stays in the L1
  float* sums = memory;
  make_opaque(sums);  // not in registers, which GCC would spill
  for (Index first = 0;; first += chain_of<T>) {
    const Index rest = block.k - first, length = rest < chain_of<T> ? rest : chain_of<T>;
    const Index word = first / columns_of_word<T>;
    clear<Arch, Rows, Vectors>(acc);
    const StridedRows<Arch, Rows> left(a + word, block.a_row_step, ahead + word, block.ahead_row_step);
    if (ahead != a) left.prefetch(length);
    const Index last = columns - (Vectors - 1) * lanes;  // columns of the last vector
    if constexpr (has == Has::half)
      multiply<Arch, Rows, Vectors, visit, true, Lanes<Arch>::parts / 2>(length, left, b, acc, keep, last);
    else multiply<Arch, Rows, Vectors, visit, has == Has::some>(length, left, b, acc, keep, last);
    if (first > 0) add_sums<Arch, Rows, Vectors>(acc, sums);
    if (rest <= chain_of<T>) break;
    store_sums<Arch, Rows, Vectors>(acc, sums);
    b.data += chain_of<T> / rows_of<T> * b.row_step;
    if constexpr (visit == Visit::part) b.next += chain_of<T> * PartOfPanel<Vectors>::floats;
    else if constexpr (std::is_same_v<T, float> && visit != Visit::again) b.next += chain_of<T> * b.row_step;
    if constexpr (visit == Visit::keep) keep += chain_of<T> * panel_columns;
  }

  finish_tile<Arch, Rows, Vectors, has>(acc, block, row, column);
}

/// Not inline: it runs once for each row of tiles, and the loop over the others keeps its
/// registers. Up to 8 columns use half of each Lanes: 512 × 8 × 512 takes 0.53 of the time with
/// AVX-512, 0.5 with AVX2 (Zen 4).
template <class Arch, class T, int Rows, int Vectors, Visit visit>
__attribute__((noinline)) void last_tile(const GemmBlock& block, Index row, Index column) {
  if constexpr (Vectors == 1 && visit != Visit::keep)
    if (block.n - column <= lanes / 2)
      return gemm_tile<typename Narrow<Arch>::Tile, T, Rows, Vectors, Has::half, visit>(block, row, column);
  gemm_tile<Arch, T, Rows, Vectors, Has::some, visit>(block, row, column);
}

template <class Arch, class T, int Rows, int Vectors, Visit visit = Visit::again>
HEADLANE_INLINE void gemm_tile(const GemmBlock& block, Index row, Index column) {
  if constexpr (!std::is_same_v<T, float>) gemm_tile<Arch, T, Rows, Vectors, Has::either, visit>(block, row, column);
  else if (block.n - column >= Vectors * lanes) gemm_tile<Arch, T, Rows, Vectors, Has::all, visit>(block, row, column);
  else last_tile<Arch, T, Rows, Vectors, visit == Visit::keep ? visit : Visit::again>(block, row, column);
}

/// The least rows of a tile that prefetch b. Fewer have wide tiles: several panels side by side,
/// streams that the hardware prefetches. Integers of 8 and 4 bits are always prefetched: one row of
/// int8 and of groups of 8 and 4 bits came with 18, 17.5 and 9 GB/s, now with 20.5, 21.5 and 12
/// (AVX-512, Zen 4, 1 thread; widening from the L2 takes the other half of the difference).
template <class Arch, class T>
inline constexpr int least_prefetching = rows_of<T> > 2 ? 1 : Tile<Arch>::rows / (std::is_same_v<T, float> ? 2 : 3);

/// Vectors of the widest tile. Of rows that take integers by their mantissas, one that leaves
/// registers for scales and constants: one row of int8 with AVX2 takes 0.82 of the time, 2, 3 and 4
/// rows with AVX-512 0.95, 0.87 and 0.97 (Zen 4). With AVX2, 3 × 32 floats fill all registers, and
/// GCC spills where elements are widened from words: by 3 × 16 floats 3 rows take 0.6 (bfloat16),
/// 0.71 and 0.83 (groups of 4 and 8 bits) and 0.96 (int8) of the time, no longer more than 4 rows
/// (Zen 4).
template <class Arch, class T, int Rows>
constexpr int widest() {
  if (Register<Arch>::width == 8 && Rows == 3 && rows_of<T> > 1) return 1;
  const bool by_mantissa = is_for_few<T> || (std::is_same_v<T, Int8Quad> && Rows <= rows_by_mantissa<Arch>);
  return by_mantissa ? 4 / Lanes<Arch>::parts : vectors_of_tile<Tile<Arch>>(Rows);
}

/// A row of tiles: `rows` rows, from `least` to those of a tile.
template <class Arch, class T, Visit visit_of_many = Visit::again, int least = 1>
HEADLANE_INLINE void gemm_few_rows(const GemmBlock& block, Index row, Index rows) {
  with_constant<is_for_few<T> ? rows_by_mantissa<Arch> : Tile<Arch>::rows, least>(rows, [&](auto height) {
    const auto tile = [&](Index column, auto width) {
      constexpr bool is_small = height.value < least_prefetching<Arch, T> || width.value < Tile<Arch>::vectors;
      constexpr Visit visit = is_small ? Visit::again : visit_of_many;
      gemm_tile<Arch, T, height.value, width.value, visit>(block, row, column);
    };
    constexpr bool is_float = std::is_same_v<T, float>;
    for_each_column_tile<Tile<Arch>, height.value, is_float, decltype(tile), widest<Arch, T, height.value>()>(block.n,
                                                                                                              tile);
  });
}

/// Rows of a strip and its columns begin … end-1, panel by panel. Not inline, as last_tile.
template <class Arch, class Tile>
__attribute__((noinline)) void gemm_strip(const GemmBlock& block, Index strip, Index rows, Index begin, Index end) {
  for (Index column = begin; column < end; column += Tile::vectors * lanes)
    for_each_row_tile<Tile>(rows, [&](Index row, auto height) {
      gemm_tile<Arch, float, height.value, Tile::vectors>(block, strip + row, column);
    });
}

/// Rows from `first` on, in strips: whole panels by Wide, the columns after them by Tile.
template <class Arch, class Wide>
HEADLANE_INLINE void gemm_strips(const GemmBlock& block, Index first) {
  constexpr Index width = Wide::vectors * lanes;
  for_each_strip<Wide>(block.m - first, [&](Index at, Index rows) {
    const Index strip = first + at, whole = block.n / width * width;
    if (rows <= Wide::rows) return gemm_few_rows<Arch, float>(block, strip, rows);
    if constexpr (Wide::rows < strip_rows) {
      gemm_strip<Arch, Wide>(block, strip, rows, 0, whole);
      if (whole < block.n) gemm_strip<Arch, Tile<Arch>>(block, strip, rows, whole, block.n);
    }
  });
}

/// The first rows, as many as a tile has. Not inline, as last_tile.
template <class Arch, class T, Visit visit>
__attribute__((noinline)) void gemm_first_rows(const GemmBlock& block) {
  constexpr int rows = Tile<Arch>::rows;
  for_each_column_tile<Tile<Arch>, rows, std::is_same_v<T, float>>(
      block.n, [&](Index column, auto width) { gemm_tile<Arch, T, rows, width.value, visit>(block, 0, column); });
}

/// The first rows store b in panels: two stores for 24 fmas. The others read those.
template <class Arch, class T>
HEADLANE_INLINE void gemm_keep(const GemmBlock& block) {
  gemm_first_rows<Arch, T, Visit::keep>(block);
  GemmBlock rest = block;
  rest.b = block.keep;
  rest.b_row_step = panel_columns;
  rest.b_panel_step = panel_columns * block.k;
  gemm_strips<Arch, PanelTile<Arch>>(rest, Tile<Arch>::rows);
}

/// T is not float: the rows of one tile widen b as they read it, and prefetch it. Without that, 8
/// and 12 rows by 4 MiB of bfloat16 from memory took 2.1 times this, by int8 1.5 and 1.2 times (Zen
/// 5, 1 thread; with AVX2 4 and 6 rows 1.9 to 2.5 times). Of more rows, the first ones store it as
/// panels of float. Few rows by groups have numbers of their own. adds_beside: as in gemm_block.
template <class Arch, class T, bool adds_beside = false>
__attribute__((noinline)) void gemm_stored(const GemmBlock& block) {
  constexpr int few = rows_of<T> == 32 ? rows_by_mantissa<Arch> : 0, least = few > 1 ? few + 1 : 1;
  if constexpr (few > 0) {
    if (block.m <= few && !adds_beside && !has_tiny<Arch>(block))
      return gemm_few_rows<Arch, ByFma<T>, Visit::first>(block, 0, block.m);
    if constexpr (least > 1)
      if (block.m <= few) return gemm_few_rows<Arch, BySubtraction<T>, Visit::first>(block, 0, block.m);
  }
  if (block.m <= Tile<Arch>::rows) return gemm_few_rows<Arch, T, Visit::first, least>(block, 0, block.m);
  gemm_keep<Arch, T>(block);
}

/// A strip whose first row of tiles prefetches b.
template <class Arch, class Tile, Visit visit>
HEADLANE_INLINE void gemm_prefetching_strip(const GemmBlock& block, Index strip, Index rows) {
  constexpr int most = Tile::rows, least = (most + 1) / 2, width = Tile::vectors * lanes;
  const Index tiles = (rows + most - 1) / most, first_rows = (rows + tiles - 1) / tiles;
  with_constant<most, least>(first_rows, [&](auto height) {
    for (Index column = 0; column < block.n; column += width) {
      gemm_tile<Arch, float, height.value, Tile::vectors, visit>(block, strip, column);
      if constexpr (Tile::rows < strip_rows)
        if (rows > height.value)
          gemm_strip<Arch, Tile>(block, strip + height.value, rows - height.value, column, column + width);
    }
  });
}

/// One or two strips of rows that prefetch b. Without that, 12 and 16 rows times 9 MiB of b from
/// memory took as long as reading and computing one after the other: 1.7 and 1.4 times this (Zen 5,
/// 1 thread; with AVX2 2.1 and 1.5 times). Two strips share the work: while one of them did all of
/// it, the memory rested during the other, 1.25 times this. With tiles that alternate between the
/// strips, or that prefetch only some chains along k, it took as long as without. Two strips by
/// PanelTile: 20 × 512 × 512 in 1.12 of the time (Zen 3).
template <class Arch>
__attribute__((noinline)) void gemm_prefetching(const GemmBlock& block) {
  if (is_one_tile<Arch>(block.m)) gemm_few_rows<Arch, float, Visit::first>(block, 0, block.m);
  else if (block.m <= strip_rows) gemm_prefetching_strip<Arch, PanelTile<Arch>, Visit::first>(block, 0, block.m);
  else
    for_each_part(block.m, strip_rows, [&](Index row, Index rows) {
      gemm_prefetching_strip<Arch, Tile<Arch>, Visit::part>(block, row, rows);
    });
}

/// At most max_rows_by_columns rows.
template <class Arch>
__attribute__((noinline)) void gemm_by_columns(const GemmBlock& block) {
  with_constant<max_rows_by_columns<Arch>>(block.m, [&](auto rows) {
    for (Index column = 0; column < block.n; column += lanes) gemm_columns<Arch, rows.value>(block, column);
  });
}

/// adds_beside: if the CPU has adders beside its FMA units, the faster way to the same bits.
template <class Arch, bool adds_beside>
void gemm_block(const GemmBlock& block) noexcept {
  if (block.b_type == DType::bfloat16) return gemm_stored<Arch, BfloatPair>(block);
  if (block.b_type == DType::float16) return gemm_stored<Arch, float16>(block);
  if (block.b_type == DType::int8) return gemm_stored<Arch, Int8Quad>(block);
  if (block.b_type == DType::int8_group32) return gemm_stored<Arch, Int8Group, adds_beside>(block);
  if (block.b_type == DType::int4_group32) return gemm_stored<Arch, Int4Group, adds_beside>(block);
  if constexpr (max_rows_by_columns<Arch> > 0)
    if (block.b_column_step != 0) return gemm_by_columns<Arch>(block);
  if constexpr (Tile<Arch>::rows > 1)
    if (block.prefetches) return gemm_prefetching<Arch>(block);
  if (block.keep != nullptr) return gemm_keep<Arch, float>(block);
  const Index first = block.m < 2 * strip_rows ? 0 : Tile<Arch>::rows;
  if (first > 0) gemm_first_rows<Arch, float, Visit::first>(block);  // they wait for b unless it is prefetched
  if (block.b_row_step == panel_columns && !is_one_tile<Arch>(block.m))
    gemm_strips<Arch, PanelTile<Arch>>(block, first);
  else gemm_strips<Arch, Tile<Arch>>(block, first);
}

}  // namespace
}  // namespace headlane::internal::kernels
