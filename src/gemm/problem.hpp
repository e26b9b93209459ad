// Checked matrix products, which the entries (gemm.cpp, batch.cpp, gated.cpp) pass to
// partition.cpp.
#pragma once

#include "core/round.hpp"
#include "gemm/stored.hpp"
#include "kernels/table.hpp"

#include <headlane/gemm.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

namespace headlane::internal {

/// Columns of a PackedMatrix, which holds all panels of its first 512 rows, then those of the next
/// 512, and so on; int8 has one block of all rows, since a tile of gemm_int8 goes through them all.
struct PackedColumns {
  const void* data = nullptr;  // null: not packed
  DType type = DType::float32;
  Index rows = 0;
  const float* scales = nullptr;  // of each column of the whole matrix; null: none
  const float* sums = nullptr;    // likewise, the sum of its integers, or of groups their elements
  Index width = 0;                // of the whole matrix, a multiple of panel_columns
  Index column = 0;               // the first one, a multiple of panel_columns

  explicit operator bool() const { return data != nullptr; }

  /// Rows of a block.
  [[nodiscard]] Index block_rows() const { return type == DType::int8 ? rows : kernels::block_size; }
  /// Items of a panel in the block that contains row `first`.
  [[nodiscard]] Index panel_items(Index first) const {
    const Index rest = rows - first / block_rows() * block_rows();
    return kernels::unit_of(type).items_of(std::min(rest, block_rows()));
  }
  /// Where the unit that begins with a row begins, in bytes, in the panel that begins at a column.
  [[nodiscard]] Index offset(Index row, Index panel) const {
    const kernels::PanelUnit unit = kernels::unit_of(type);
    const Index block = row / block_rows() * block_rows();
    const Index items = unit.items_of(block) * (width / kernels::panel_columns) +
                        panel / kernels::panel_columns * panel_items(row) + unit.items_of(row - block);
    return items * unit.item_bytes;
  }
  /// Its address, for these columns.
  [[nodiscard]] const void* panels(Index row) const { return bytes_from(data, offset(row, column)); }
};

/// Calls f(row, x) for each element of a column, as float.
template <class F>
void for_column(const PackedColumns& packed, Index column, const F& f) {
  using kernels::block_size, kernels::panel_columns;
  const Index within = column % panel_columns;
  with_type(packed.type, [&]<DType type> {
    constexpr kernels::PanelUnit unit = kernels::unit_of(type);
    float scale = has_scales(type) ? packed.scales[column] : 1.0f;
    for (Index first = 0; first < packed.rows; first += block_size) {
      const void* at = bytes_from(packed.data, packed.offset(first, column - within));
      const Index end = std::min(packed.rows, first + block_size);
      for (Index row = first; row < end; row += unit.rows, at = bytes_from(at, unit.bytes())) {
        if constexpr (has_groups(type)) scale = scale_of_group(at, type, within);
        for (Index i = 0; i < std::min(unit.rows, end - row); ++i) f(row + i, widened<type>(at, i, within, scale));
      }
    }
  });
}

/// Some rows and columns of an operand, for packing.
inline kernels::Source source(const View<const float, 2>& view, Index row, Index rows, Index column, Index columns) {
  return {view.data + row * view.strides[0] + column * view.strides[1], rows, columns, view.strides[0],
          view.strides[1]};
}

/// c = epilogue(alpha · a · b + beta · c). The arguments are checked and c is not empty.
struct Product {
  View<const float, 2> a, b;  // if b is packed, only its shape counts
  PackedColumns packed;
  View<float, 2> c;
  float alpha, beta;
  DType activations;
  kernels::GemmEpilogue epilogue;
};

/// cᵀ = bᵀ · aᵀ: the same chains of fmas. Not for a bias, a factor or a packed b, which refer to
/// columns.
inline Product transposed(Product p) {
  std::swap(p.a, p.b);
  p.a = p.a.transposed();
  p.b = p.b.transposed();
  p.c = p.c.transposed();
  std::swap(p.epilogue.row_step, p.epilogue.column_step);
  return p;
}

/// data + elements; null, for an operand without elements, stays null.
template <class T>
T* offset_by(T* data, Index elements) {
  return data == nullptr ? data : data + elements;
}

/// Products of the same sizes: the operands of product i are i steps further.
struct Batch {
  Product first;
  Index count = 1;
  Index a_step = 0, b_step = 0, c_step = 0, bias_step = 0, residual_step = 0;

  [[nodiscard]] Product operator[](Index i) const;
};

/// The cost of a product: floating-point operations, and elements read or written.
struct Work {
  double operations, elements;
};
Work work_of(Index m, Index n, Index k);

/// Rows and columns of c that one task computes.
struct Region {
  Index row, rows, column, columns;
};

/// Estimated overhead of a task, for operands that it reads and packs although others do so too: b
/// takes as long as so many rows of the product, a as so many panels.
struct Overhead {
  double rows = 6, panels = 0.5;
};

/// A partition of m × n elements of c into the regions of tasks.
class Partition {
 public:
  /// For each of `alike` products m × n × k that are together `share` of all the work of `threads`.
  Partition(Index m, Index n, Index k, Index alike, double share, int threads, const Overhead& overhead = {});
  [[nodiscard]] Index count() const { return row_parts_ * column_parts_; }
  [[nodiscard]] Region region(Index i) const;

 private:
  Index m_, n_;
  Index row_parts_ = 1, column_parts_;
};

/// The product that computes one region of c.
Product restricted(const Product& product, const Region& region);

/// True if tasks read rows of a in place, and need not pack them.
bool reads_rows(const Product& product);

/// Computes a product on this thread.
void compute(const Product& product, const kernels::KernelTable& kernel);

/// Computes all batches; `threads` share all their regions.
void run_gemm(std::span<const Batch> batches, const kernels::KernelTable& kernel, int threads);

}  // namespace headlane::internal
