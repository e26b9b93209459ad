// Operands packed by the kernels themselves.
#pragma once

#include "core/dispatch.hpp"
#include "kernels/table.hpp"
#include "support/data.hpp"

#include <algorithm>

namespace headlane::test {

using namespace internal;
using namespace internal::kernels;

inline Source source_of(const View<float, 2>& v) { return {v.data, v.size(0), v.size(1), v.stride(0), v.stride(1)}; }

inline Index round_up(Index n, Index to) { return (n + to - 1) / to * to; }

/// Rows as pack_rows() writes them; elements that it does not write stay sentinels.
struct PackedRows {
  explicit PackedRows(const View<float, 2>& source, float scale = 1)
      : rows(source.size(0)), memory({std::max<Index>(rows, 1) * packed_row_stride}) {
    active().pack_rows(source_of(source), scale, memory.view.data);
  }
  [[nodiscard]] float at(Index r, Index c) const { return memory.view.data[r * packed_row_stride + c]; }
  Index rows;
  Tensor<1> memory;
};

/// Panels as pack_panels() writes them.
struct PackedPanels {
  explicit PackedPanels(const View<float, 2>& source)
      : rows(source.size(0)), memory({std::max<Index>(rows * round_up(source.size(1), panel_columns), 1)}) {
    active().pack_panels(source_of(source), memory.view.data);
  }
  [[nodiscard]] float at(Index r, Index c) const {
    const Index width = panel_columns;
    return memory.view.data[c / width * width * rows + r * width + c % width];
  }
  [[nodiscard]] Index panel_step() const { return rows * panel_columns; }
  Index rows;
  Tensor<1> memory;
};

}  // namespace headlane::test
