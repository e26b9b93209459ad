// The units of a packed matrix: the rows of a panel that are stored together.
#pragma once

#include "core/parallel.hpp"
#include "gemm/problem.hpp"

#include <algorithm>
#include <cstddef>

namespace headlane::internal {

/// Rows and columns of a matrix.
struct Part {
  Index row, rows, column, columns;

  [[nodiscard]] Part from_row(Index first) const {
    return {row + first, std::max<Index>(0, rows - first), column, columns};
  }
};

/// Calls f(unit, part) for each unit of a matrix and the part that it holds.
template <class F>
void for_each_unit(const PackedColumns& packed, Index columns, int threads, const F& f) {
  using kernels::block_size, kernels::panel_columns;
  const kernels::PanelUnit unit = kernels::unit_of(packed.type);
  parallel_for(packed.width / panel_columns, threads, [&](Index panel) {
    const Index column = panel * panel_columns;
    for (Index first = 0; first < packed.rows; first += block_size) {
      auto* at = static_cast<std::byte*>(const_cast<void*>(packed.data)) + packed.offset(first, column);
      const Index end = std::min(packed.rows, first + block_size);
      for (Index row = first; row < end; row += unit.rows, at += unit.bytes())
        f(at, Part{row, std::min(unit.rows, end - row), column, std::min(panel_columns, columns - column)});
    }
  });
}

/// Sets the sums of the columns of a matrix whose other memory is set.
void set_sums(const PackedMatrix& matrix, int num_threads);

/// The number of threads worth using to copy a matrix.
inline int threads_for(const PackedMatrix& matrix, int num_threads) {
  return useful_threads(0, static_cast<double>(matrix.rows()) * static_cast<double>(matrix.columns()), num_threads);
}

}  // namespace headlane::internal
