// Rows of [batch, length, width] as matrices.
#pragma once

#include "core/check.hpp"
#include "core/scratch.hpp"
#include "core/view_rows.hpp"

#include <headlane/view.hpp>

#include <vector>

namespace headlane::internal {

/// Null data if there are no elements.
inline View<const float, 1> view_of(const std::vector<float>& v) {
  return {v.empty() ? nullptr : v.data(), {static_cast<Index>(v.size())}};
}

/// Scratch memory as [batch, length, width]. Throws std::bad_alloc if its size overflows.
View<float, 3> scratch_rows(Purpose purpose, Index batch, Index length, Index width);

/// Calls f(x, y, residual) with matrices: once for all rows if the strides allow it, otherwise
/// once for each batch element. The residual may have null data.
template <class F>
void for_each_matrix(const View<const float, 3>& x, const View<float, 3>& y, const View<const float, 3>& residual,
                     const F& f) {
  if (is_empty(y)) return;
  const View<const float, 3> from = with_safe_strides(x);
  View<const float, 2> x2, residual2;
  View<float, 2> y2;
  if (all_rows(from, x2) && all_rows(y, y2) && (!residual || all_rows(residual, residual2)))
    return f(x2, y2, residual2);
  for (Index b = 0; b < x.shape[0]; ++b)
    f(from.select(0, b), y.select(0, b), residual ? residual.select(0, b) : View<const float, 2>{});
}

}  // namespace headlane::internal
