// Checked matrix products, which the entries (gemm.cpp, batch.cpp, gated.cpp) pass to
// partition.cpp.
#pragma once

#include "gemm/stored.hpp"
#include "kernels/table.hpp"

#include <headlane/gemm.hpp>

#include <cstddef>
#include <span>

namespace headlane::internal {

/// Columns of a PackedMatrix, which holds all panels of its first 512 rows, then those of the next
/// 512, and so on.
struct PackedColumns {
  const void* data = nullptr;  // null: not packed
  DType type = DType::float32;
  const float* scales = nullptr;  // of each column of the whole matrix; null: none
  Index width = 0;                // of the whole matrix, a multiple of panel_columns
  Index column = 0;               // the first one, a multiple of panel_columns

  explicit operator bool() const { return data != nullptr; }

  /// Panels of the block that begins at row `first` and has k rows.
  [[nodiscard]] const void* panels(Index first, Index k) const {
    return elements_from(data, type, first * width + column * k);
  }
};

/// c = epilogue(alpha · a · b + beta · c). The arguments are checked and c is not empty.
struct Product {
  View<const float, 2> a, b;  // if b is packed, only its shape counts
  PackedColumns packed;
  View<float, 2> c;
  float alpha, beta;
  kernels::GemmEpilogue epilogue;
};

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

/// A partition of m × n elements of c into the regions of tasks.
class Partition {
 public:
  /// For each of `alike` products m × n × k that are together `share` of all the work of `threads`.
  Partition(Index m, Index n, Index k, Index alike, double share, int threads);
  [[nodiscard]] Index count() const { return row_parts_ * column_parts_; }
  [[nodiscard]] Region region(Index i) const;

 private:
  Index m_, n_;
  Index row_parts_ = 1, column_parts_;
};

/// The product that computes one region of c.
Product restricted(const Product& product, const Region& region);

/// Computes a product on this thread.
void compute(const Product& product, const kernels::KernelTable& kernel);

/// Computes all batches; `threads` share all their regions.
void run_gemm(std::span<const Batch> batches, const kernels::KernelTable& kernel, int threads);

}  // namespace headlane::internal
