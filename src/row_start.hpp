// The rows of a view of any rank.
#pragma once

#include <headlane/view.hpp>

namespace headlane {

/// Where row `row` starts, all axes but the last counted in row-major order.
template <class T>
T* row_start(const AnyView<T>& view, Index row) {
  Index offset = 0;
  for (int axis = view.rank - 2; axis >= 0; --axis) {
    const auto at = static_cast<std::size_t>(axis);
    offset += row % view.shape[at] * view.strides[at];
    row /= view.shape[at];
  }
  return view.data + offset;
}

}  // namespace headlane
