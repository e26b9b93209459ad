// The rows of a view of any rank, and the order of its axes.
#pragma once

#include <headlane/view.hpp>

#include <algorithm>
#include <cstdlib>
#include <limits>

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

/// Appends an axis of one element.
template <class T>
void append_axis(AnyView<T>& view) {
  const auto at = static_cast<std::size_t>(view.rank++);
  view.shape[at] = 1;
  view.strides[at] = 0;
}

/// Brings an axis to a later place; those between move one to the front.
template <class T>
void move_axis(AnyView<T>& view, int from, int to) {
  for (auto* of_axis : {&view.shape, &view.strides})
    std::rotate(of_axis->begin() + from, of_axis->begin() + from + 1, of_axis->begin() + to + 1);
}

/// The stride of one of the last axes, -1 or -2. One element is its own neighbour, whatever the stride.
template <class T>
Index step(const AnyView<T>& view, int axis) {
  const int from_front = view.rank + axis;
  const auto at = static_cast<std::size_t>(from_front);
  return view.shape[at] == 1 ? 1 : view.strides[at];
}

template <class T>
bool is_contiguous(const AnyView<T>& view) {
  return step(view, -1) == 1;
}

/// Of the axes before the last, the one along which elements lie closest.
template <class T>
int closest_axis(const AnyView<T>& view) {
  const auto distance = [&](int axis) {
    const auto at = static_cast<std::size_t>(axis);
    const bool apart = view.shape[at] > 1 && view.strides[at] != 0;
    return apart ? std::abs(view.strides[at]) : std::numeric_limits<Index>::max();
  };
  int closest = view.rank - 2;
  for (int axis = closest - 1; axis >= 0; --axis) closest = distance(axis) < distance(closest) ? axis : closest;
  return closest;
}

}  // namespace headlane
