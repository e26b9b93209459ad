// Copies of rows of any strides. Where rows are contiguous on one side and columns on the other, 16
// × 16 elements are transposed in registers.
#pragma once

#include "kernels/args/gemm.hpp"
#include "kernels/simd/transpose.hpp"

namespace headlane::internal::kernels {
namespace {

/// to[c, r] = from[r, c] for the first 16 rows and columns, or as many as there are; nothing else
/// is written. Both have inner stride 1.
template <class Arch>
HEADLANE_INLINE void copy_transposed_16(const float* from, Index from_step, Index rows, Index columns, float* to,
                                        Index to_step) {
  if (rows >= lanes && columns >= lanes) return transpose_part<Arch, true>(from, from_step, lanes, lanes, to, to_step);
  alignas(64) float square[lanes * lanes];
  const Index width = columns < lanes ? columns : lanes;
  transpose_part<Arch, false>(from, from_step, rows, width, square, lanes);
  for (Index c = 0; c < width; ++c) Lanes<Arch>::load(square + c * lanes).store(to + c * to_step, rows);
}

template <class Arch>
void copy_rows(const Source& source, float* to, Index to_row_step, Index to_column_step) noexcept {
  const auto [data, rows, columns, row_step, column_step] = source;
  const bool columns_contiguous = row_step == 1 && to_column_step == 1,
             rows_contiguous = column_step == 1 && to_row_step == 1;
  if (rows < 4 || !(columns_contiguous || rows_contiguous)) {  // transposing a few rows takes as long as transposing 16
    const auto length = [](Index step, Index count) { return count <= 1 ? 0 : step < 0 ? -step : step; };
    if (length(row_step, rows) + length(to_row_step, rows) <
        length(column_step, columns) + length(to_column_step, columns)) {
      for (Index c = 0; c < columns; ++c)
        for (Index r = 0; r < rows; ++r)
          to[r * to_row_step + c * to_column_step] = data[r * row_step + c * column_step];
    } else {
      for (Index r = 0; r < rows; ++r)
        for (Index c = 0; c < columns; ++c)
          to[r * to_row_step + c * to_column_step] = data[r * row_step + c * column_step];
    }
    return;
  }
  for (Index r = 0; r < rows; r += lanes) {
    for (Index c = 0; c < columns; c += lanes) {
      const float* from = data + r * row_step + c * column_step;
      float* square = to + r * to_row_step + c * to_column_step;
      if (columns_contiguous) copy_transposed_16<Arch>(from, column_step, columns - c, rows - r, square, to_row_step);
      else copy_transposed_16<Arch>(from, row_step, rows - r, columns - c, square, to_column_step);
    }
  }
}

}  // namespace
}  // namespace headlane::internal::kernels
