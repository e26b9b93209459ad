// Copies of operands in the order in which a tile reads them: rows of a, panels of b.
#pragma once

#include "kernels/args/gemm.hpp"
#include "kernels/simd/transpose.hpp"

namespace headlane::internal::kernels {
namespace {

/// The map of elements, or registers of them, that are scaled.
struct Times {
  float factor;
  template <class T>
  HEADLANE_INLINE T operator()(const T& x) const {
    return x * T(factor);
  }
};

/// to[r, 0 … 16) = map(from[r, 0 … count)), zeros after them, for one row of any column step.
template <class Arch, class Map>
HEADLANE_INLINE void copy_16(const float* from, Index column_step, Index count, const Map& map, float* to) {
  using V = Lanes<Arch>;
  if (column_step == 1 && count >= lanes) return V::map(map, V::load(from)).store(to);
  if (column_step == 1) return V::map(map, V::load(from, count, 0.0f)).store(to);
  for (Index i = 0; i < lanes; ++i) to[i] = i < count ? map(from[i * column_step]) : 0.0f;
}

/// Rows (any number) of at most block_size columns, packed_row_stride apart; zeros up to the next
/// multiple of 16.
template <class Arch>
void pack_rows(const Source& source, float scale, float* packed) noexcept {
  using V = Lanes<Arch>;
  const auto [data, rows, columns, row_step, column_step] = source;
  if (row_step == 1 && column_step != 1) {  // columns are contiguous
    for (Index r = 0; r < rows; r += lanes)
      for (Index c = 0; c < columns; c += lanes) {
        const Index height = rows - r < lanes ? rows - r : lanes, width = columns - c < lanes ? columns - c : lanes;
        transpose_16<Arch>(data + r + c * column_step, column_step, width, height, packed + r * packed_row_stride + c,
                           packed_row_stride, Times{scale});
      }
    return;
  }
  for (Index r = 0; r < rows; ++r) {
    const float* from = data + r * row_step;
    float* to = packed + r * packed_row_stride;
    Index c = 0;
    if (column_step == 1) {
      const V factor = V::broadcast(scale);
      for (; columns - c >= lanes; c += lanes) (V::load(from + c) * factor).store(to + c);
    }
    for (; c < columns; c += lanes)
      copy_16<Arch>(from + c * column_step, column_step, columns - c, Times{scale}, to + c);
  }
}

/// Panels [panel][row][panel_columns]. Columns are padded with zeros to a multiple of 16; a second
/// 16 that the last panel lacks stays untouched, for no tile reads it. Some rows at a time go to
/// all panels: a row is then read as one stream, and the panels' lines are few enough to stay in
/// the L1 until they are full. `map` as in transpose_part().
template <class Arch, class Map>
HEADLANE_INLINE void pack_mapped_panels(const Source& source, const Map& map, float* packed) {
  const auto [data, rows, columns, row_step, column_step] = source;
  constexpr Index width = panel_columns, rows_at_once = lanes;
  if (row_step == 1 && column_step != 1) {  // columns are contiguous, and read one 16 after the other
    for (Index column = 0; column < columns; column += lanes) {
      const Index count = columns - column < lanes ? columns - column : lanes;
      float* to = packed + column / width * rows * width + column % width;
      for (Index row = 0; row < rows; row += lanes) {
        prefetch_beyond(data + row, column + columns_ahead, column_step);
        transpose_16<Arch>(data + row + column * column_step, column_step, count,
                           rows - row < lanes ? rows - row : lanes, to + row * width, width, map);
      }
    }
    return;
  }
  for (Index row = 0; row < rows; row += rows_at_once) {
    const Index height = rows - row < rows_at_once ? rows - row : rows_at_once;
    float* to = packed + row * width;
    for (Index panel = 0; panel < columns; panel += width, to += rows * width) {
      for (Index c = 0; c < width && panel + c < columns; c += lanes) {
        const Index count = columns - panel - c;
        const float* from = data + row * row_step + (panel + c) * column_step;
        for (Index r = 0; r < height; ++r)
          copy_16<Arch>(from + r * row_step, column_step, count, map, to + r * width + c);
      }
    }
  }
}

template <class Arch>
void pack_panels(const Source& source, float* packed) noexcept {
  pack_mapped_panels<Arch>(source, Identity{}, packed);
}

}  // namespace
}  // namespace headlane::internal::kernels
