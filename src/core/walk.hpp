// The elements of two views of one shape, in an order that suits the output.
#pragma once

#include "core/check.hpp"
#include "core/round.hpp"
#include "core/view_rows.hpp"

#include <headlane/view.hpp>

#include <algorithm>
#include <functional>
#include <numeric>

namespace headlane::internal {

/// Both views with axes by falling stride of y, and adjacent axes merged where strides allow. The
/// last axis is the inner one; all others count as rows.
template <class X, class Y>
struct Walk {
  AnyView<const X> x;
  AnyView<Y> y;

  Walk(const AnyView<const X>& from, const AnyView<Y>& to) : x(from), y(to) {
    x.rank = y.rank = 0;
    const Axes axes = axes_by_step(Caller("").operand("", to));
    for (std::size_t i = axes.count; i-- > 0;) {
      const auto axis = static_cast<std::size_t>(axes.axis[i]);
      append(to.shape[axis], from.strides[axis], to.strides[axis]);
    }
    if (y.rank == 0) append(1, 1, 1);
  }

  [[nodiscard]] Index inner() const { return y.shape[static_cast<std::size_t>(y.rank - 1)]; }
  [[nodiscard]] Index x_step() const { return x.strides[static_cast<std::size_t>(x.rank - 1)]; }
  [[nodiscard]] Index y_step() const { return y.strides[static_cast<std::size_t>(y.rank - 1)]; }
  [[nodiscard]] Index rows() const {
    return std::accumulate(y.shape.begin(), y.shape.begin() + y.rank - 1, Index{1}, std::multiplies<>());
  }

  /// Calls f(from, to, n) for pieces of at most `piece` elements along the inner axis, as
  /// parallel_parts has them with so many units.
  [[nodiscard]] Index units(Index piece) const { return rows() * ceil_div(inner(), piece); }
  template <class F>
  void for_units(Index piece, Index begin, Index end, const F& f) const {
    const Index pieces = ceil_div(inner(), piece);
    for (Index unit = begin; unit < end; ++unit) {
      const Index row = unit / pieces, first = unit % pieces * piece;
      f(row_start(x, row) + first * x_step(), row_start(y, row) + first * y_step(), std::min(piece, inner() - first));
    }
  }

 private:
  void append(Index size, Index x_stride, Index y_stride) {
    const auto last = static_cast<std::size_t>(y.rank - 1);
    if (y.rank > 0 && x.strides[last] == size * x_stride && y.strides[last] == size * y_stride) {
      y.shape[last] *= size;
      x.shape[last] = y.shape[last];
      x.strides[last] = x_stride;
      y.strides[last] = y_stride;
      return;
    }
    const auto at = static_cast<std::size_t>(y.rank++);
    x.rank = y.rank;
    x.shape[at] = y.shape[at] = size;
    x.strides[at] = x_stride;
    y.strides[at] = y_stride;
  }
};

}  // namespace headlane::internal
