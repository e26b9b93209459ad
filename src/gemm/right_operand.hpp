// The right operand of a product, as the kernel reads it.
#pragma once

#include "gemm/problem.hpp"

namespace headlane::internal {

/// One block along k of b, as the kernel reads it.
struct RightBlock {
  const void* data;
  DType type;
  const float* scales;         // of its columns, or null
  const float* sums;           // likewise
  Index row_step, panel_step;  // in items of a PanelUnit
  bool is_kept = false;        // the first rows pack it for the others
  Index column_step = 0;       // 0: panels; otherwise columns are contiguous, and so far apart
};

/// A block of panels of float.
inline RightBlock packed_right(const float* panels, Index k) {
  return {panels, DType::float32, nullptr, nullptr, kernels::panel_columns, kernels::panel_columns * k};
}

/// True if b is packed before any row is multiplied, since elements of its rows are not contiguous.
bool is_packed_first(const Product& product, const kernels::KernelTable& kernel);

/// True if each task packs its columns of b, before any row is multiplied or with the first rows.
bool is_packed_by_tasks(const Product& product, const kernels::KernelTable& kernel);

/// Rows first … first + k - 1 of b.
RightBlock right_of(const Product& product, Index first, Index k, const kernels::KernelTable& kernel);

}  // namespace headlane::internal
