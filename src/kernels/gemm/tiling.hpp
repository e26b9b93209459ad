// How register tiles cover the rows and columns of a product.
#pragma once

#include "kernels/gemm/tile.hpp"

namespace headlane::internal::kernels {
namespace {

/// Calls f(first, Constant<rows>) for parts of Limit, Limit / 2 … 1 rows that cover n: for products
/// whose other heights are not worth their code.
template <int Limit, class F>
HEADLANE_INLINE void for_each_halved_part(Index n, const F& f, Index first = 0) {
  for (; n - first >= Limit; first += Limit) f(first, Constant<Limit>{});
  if constexpr (Limit > 1) for_each_halved_part<Limit == 3 ? 2 : Limit / 2>(n, f, first);
}

/// Calls f(first, count) for parts that cover n, none longer than `max`, as even as possible: 16
/// with max 12 is 8 + 8.
template <class F>
HEADLANE_INLINE void for_each_part(Index n, Index max, const F& f) {
  for (Index parts = (n + max - 1) / max, first = 0; parts > 0; --parts) {
    const Index count = (n - first + parts - 1) / parts;
    f(first, count);
    first += count;
  }
}

/// Calls f(first_row, rows) for strips that cover n rows, whole tiles of 3 rows but for the last.
template <class Tile, class F>
HEADLANE_INLINE void for_each_strip(Index n, const F& f) {
  constexpr Index unit = Tile::rows == 3 ? 3 : 1;
  for_each_part((n + unit - 1) / unit, strip_rows / unit, [&](Index first, Index count) {
    const Index row = first * unit, rest = n - row;
    f(row, rest < count * unit ? rest : count * unit);
  });
}

/// Calls f(first_row, Constant<rows>) for the tiles that cover `rows`.
template <class Tile, class F>
HEADLANE_INLINE void for_each_row_tile(Index rows, const F& f) {
  for_each_part(rows, Tile::rows, [&](Index first, Index count) {
    with_constant<Tile::rows>(count, [&](auto constant) { f(first, constant); });
  });
}

/// The same for at least Tile::rows rows. Their tiles have half as many or more: less code.
template <class Tile, class F>
HEADLANE_INLINE void for_each_tall_tile(Index rows, const F& f) {
  constexpr int most = Tile::rows;
  for_each_part(rows, most, [&](Index first, Index count) {
    with_constant<most, (most + 1) / 2>(count, [&](auto constant) { f(first, constant); });
  });
}

/// Width in vectors of a tile of so many rows: more when rows are few, for enough accumulators; 1
/// or whole panels, at most 4. Of 6 × 16 floats at most 2, for the 8 accumulators that are enough:
/// by 3, one row of 512 × 512 took 1.1 times as long, of 2048 × 512 1.35, decoding 512 keys 1.15,
/// from a cache of bfloat16 1.4 (Zen 3; but 96 columns alone 0.83).
template <class Tile>
constexpr int vectors_of_tile(int rows) {
  constexpr int per_panel = panel_columns / lanes, most = Tile::vectors > 1 ? 4 : 2;
  const int panels = Tile::rows / rows * Tile::vectors / per_panel;
  return panels < 1 ? 1 : panels > most ? most * per_panel : panels * per_panel;
}

/// Calls f(first_column, Constant<vectors>) for the tiles that cover `columns` of b, each as wide
/// as the rest allows: at most what a tile of Rows rows may be, then half of it in whole panels,
/// and so on. Narrow: the last one may be half a panel. Stored types have whole panels, and save
/// the code.
template <class Tile, int Rows, bool Narrow = true, class F, int Wide = vectors_of_tile<Tile>(Rows)>
HEADLANE_INLINE void for_each_column_tile(Index columns, const F& f, Index first = 0) {
  constexpr int usual = Tile::vectors, per_panel = panel_columns / lanes;
  if constexpr (Wide > usual) {
    for (; columns - first >= Wide * lanes; first += Wide * lanes) f(first, Constant<Wide>{});
    return for_each_column_tile<Tile, Rows, Narrow, F, Wide / 2 / per_panel * per_panel>(columns, f, first);
  }
  constexpr Index at_least = Narrow ? (usual - 1) * lanes : 0;
  for (; columns - first > at_least; first += usual * lanes) f(first, Constant<usual>{});
  if constexpr (Narrow && usual > 1)
    for (; first < columns; first += lanes) f(first, Constant<1>{});
}

/// Calls f(Constant<first row>, Constant<rows>) for parts that cover Rows rows, none taller than
/// Limit, as even as possible: 8 with Limit 3 is 3 + 3 + 2.
template <int Rows, int Limit, int First = 0, class F>
HEADLANE_INLINE void for_each_constant_part(const F& f) {
  if constexpr (Rows > 0) {
    constexpr int parts = (Rows + Limit - 1) / Limit, count = (Rows + parts - 1) / parts;
    f(Constant<First>{}, Constant<count>{});
    for_each_constant_part<Rows - count, Limit, First + count>(f);
  }
}

/// True if tiles go through panels in parts of PanelTile's height. 4 rows that decode from memory
/// take 0.71 to 0.85 of the time of 4 × 16, and 1.03 to 1.13 from the L3 (Zen 3).
template <class Arch>
inline constexpr bool have_parts = PanelTile<Arch>::rows < Tile<Arch>::rows;
template <class Arch, int Rows>
inline constexpr bool is_in_parts = have_parts<Arch> && Rows > PanelTile<Arch>::rows;

/// Calls f(Constant<first row>, Constant<rows>, first column, Constant<vectors>) for the tiles that
/// cover Rows rows and `columns` of panels: all rows by one panel, then by the next.
template <class Arch, int Rows, class F>
HEADLANE_INLINE void for_each_tile_of_panels(Index columns, const F& f) {
  Index column = 0;
  if constexpr (is_in_parts<Arch, Rows>)
    for (; columns - column > lanes; column += panel_columns)
      for_each_constant_part<Rows, PanelTile<Arch>::rows>([&](auto first, auto rows) HEADLANE_INLINE_LAMBDA {
        f(first, rows, column, Constant<PanelTile<Arch>::vectors>{});
      });
  for_each_constant_part<Rows, Tile<Arch>::rows>([&](auto first, auto rows) HEADLANE_INLINE_LAMBDA {
    for_each_column_tile<Tile<Arch>, rows.value>(
        columns, [&](Index at, auto vectors) { f(first, rows, at, vectors); }, column);
  });
}

}  // namespace
}  // namespace headlane::internal::kernels
