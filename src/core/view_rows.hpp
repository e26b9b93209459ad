// Rows of a view of any rank: where they start, the order of axes, and access to rows whose
// elements are not contiguous.
#pragma once

#include "core/round.hpp"
#include "core/scratch.hpp"
#include "kernels/table.hpp"

#include <headlane/view.hpp>

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace headlane::internal {

/// The first element of row `row`, where rows count in row-major order over all axes but the last.
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

/// The view is checked: the number does not overflow.
template <class T>
Index number_of_elements(const AnyView<T>& view) {
  Index count = 1;
  for (int axis = 0; axis < view.rank; ++axis) count *= view.shape[static_cast<std::size_t>(axis)];
  return count;
}

/// Appends an axis of one element.
template <class T>
void append_axis(AnyView<T>& view) {
  const auto at = static_cast<std::size_t>(view.rank++);
  view.shape[at] = 1;
  view.strides[at] = 0;
}

/// Moves an axis to a later position; the axes in between move forward by one.
template <class T>
void move_axis(AnyView<T>& view, int from, int to) {
  for (auto* of_axis : {&view.shape, &view.strides})
    std::rotate(of_axis->begin() + from, of_axis->begin() + from + 1, of_axis->begin() + to + 1);
}

/// The stride of one of the last axes, -1 or -2; 1 for an axis of one element, whose stride is
/// arbitrary.
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

/// The axis before the last with the smallest stride.
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

/// Row stride of a copy, such that rows fall into different sets of the L1.
inline Index step_of_copy(Index columns) { return round_up(columns, kernels::lanes) + kernels::lanes; }

/// The rows of a [batch, rows, columns] as one matrix, if they are evenly apart throughout;
/// otherwise returns false.
template <class T>
bool all_rows(const View<T, 3>& view, View<T, 2>& matrix) {
  const auto [batch, rows, columns] = view.shape;
  const auto [batch_step, row_step, column_step] = view.strides;
  if (batch > 1 && rows > 1 && batch_step != rows * row_step) return false;
  matrix = {view.data, {batch * rows, columns}, {rows > 1 ? row_step : batch_step, column_step}};
  return true;
}

/// Some rows of the last two axes of a view.
template <class T>
struct RowsOfView {
  T* data;
  Index row_step, column_step;
};

/// Calls f(x, x_step, y, y_step) for rows × columns elements of column stride 1, by way of a copy
/// if need be; y may be x.
template <class F>
void with_dense_rows(const kernels::KernelTable& kernel, const RowsOfView<const float>& x, const RowsOfView<float>& y,
                     Index rows, Index columns, const F& f) {
  const auto dense = [&](Index column_step) { return columns == 1 || column_step == 1; };
  if (dense(x.column_step) && dense(y.column_step)) return f(x.data, x.row_step, y.data, y.row_step);
  const Index step = step_of_copy(columns);
  float* copy = scratch(Purpose::block, rows * step);
  const bool copies_x = !dense(x.column_step), copies_y = !dense(y.column_step);
  if (copies_x) kernel.copy_rows({x.data, rows, columns, x.row_step, x.column_step}, copy, step, 1);
  f(copies_x ? copy : x.data, copies_x ? step : x.row_step, copies_y ? copy : y.data, copies_y ? step : y.row_step);
  if (copies_y) kernel.copy_rows({copy, rows, columns, step, 1}, y.data, y.row_step, y.column_step);
}

/// Calls f(y, y_step) for rows × columns elements that f writes.
template <class F>
void with_dense_rows(const kernels::KernelTable& kernel, const RowsOfView<float>& y, Index rows, Index columns,
                     const F& f) {
  const RowsOfView<const float> nothing{y.data, y.row_step, 1};
  with_dense_rows(kernel, nothing, y, rows, columns, [&](const float*, Index, float* to, Index step) { f(to, step); });
}

}  // namespace headlane::internal
