// Rows whose elements are neighbours, for kernels that know only such: where they stand, or through a copy.
#pragma once

#include "kernels/table.hpp"
#include "round.hpp"
#include "scratch.hpp"

namespace headlane {

/// From row to row of a copy: rows fall into different sets of the L1.
inline Index step_of_copy(Index columns) { return round_up(columns, kernels::lanes) + kernels::lanes; }

/// Some rows of the last two axes of a view.
template <class T>
struct RowsOfView {
  T* data;
  Index row_step, column_step;
};

/// f(x, x_step, y, y_step) for rows × columns elements; y may be x.
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

/// f(y, y_step) for rows × columns elements that f writes.
template <class F>
void with_dense_rows(const kernels::KernelTable& kernel, const RowsOfView<float>& y, Index rows, Index columns,
                     const F& f) {
  const RowsOfView<const float> nothing{y.data, y.row_step, 1};
  with_dense_rows(kernel, nothing, y, rows, columns, [&](const float*, Index, float* to, Index step) { f(to, step); });
}

}  // namespace headlane
