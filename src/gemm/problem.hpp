// Checked products of matrices: what the entries (gemm.cpp, batch.cpp, gated.cpp) hand to partition.cpp.
#pragma once

#include "kernels/table.hpp"

#include <headlane/gemm.hpp>

#include <span>

namespace headlane::internal {

/// Columns of a PackedMatrix: for each block of 512 rows all its panels; `column` is the first one wanted.
struct PackedColumns {
  const float* data = nullptr;  // null: not packed
  Index width = 0;              // of all, a multiple of panel_columns
  Index column = 0;             // a multiple of panel_columns

  explicit operator bool() const { return data != nullptr; }

  /// Panels of the block that begins at row `first` and has k rows.
  [[nodiscard]] const float* panels(Index first, Index k) const { return data + first * width + column * k; }
};

/// A product whose arguments are checked; c is not empty.
struct Product {
  View<const float, 2> a, b;  // b: only its shape if it is packed
  PackedColumns packed;
  View<float, 2> c;
  float alpha, beta;
  kernels::GemmFinish finish;  // what c ends with
};

/// Null, of an operand without elements, stays null.
template <class T>
T* moved(T* data, Index elements) {
  return data == nullptr ? data : data + elements;
}

/// Products of the same sizes: in number i, each pointer is i steps further.
struct Batch {
  Product first;
  Index count = 1;
  Index a_step = 0, b_step = 0, c_step = 0, bias_step = 0, residual_step = 0;

  [[nodiscard]] Product operator[](Index i) const;
};

/// What a product takes: floating-point operations, elements read or written.
struct Work {
  double operations, elements;
};
Work work_of(Index m, Index n, Index k);

/// Rows and columns of c that one task computes.
struct Part {
  Index row, rows, column, columns;
};

/// Cuts m × n into parts for tasks.
class Grid {
 public:
  /// For one of `alike` products m × n × k that take `share` of all the work of `threads`.
  Grid(Index m, Index n, Index k, Index alike, double share, int threads);
  [[nodiscard]] Index parts() const { return row_parts_ * column_parts_; }
  [[nodiscard]] Part part(Index i) const;

 private:
  Index m_, n_;
  Index row_parts_ = 1, column_parts_;
};

/// The rows and columns of a part as a product by itself.
Product cut(const Product& product, const Part& part);

/// All of a product, by this thread.
void compute(const Product& product, const kernels::KernelTable& kernel);

/// Some batches at once; `threads` share all their parts.
void run_gemm(std::span<const Batch> batches, const kernels::KernelTable& kernel, int threads);

}  // namespace headlane::internal
