// Softmax: checks, the walk over the rows of any view, and what runs in parallel. The arithmetic is in kernels/softmax_row.hpp.
#include <headlane/softmax.hpp>

#include "check.hpp"
#include "dispatch.hpp"
#include "kernels/table.hpp"
#include "parallel.hpp"
#include "scratch.hpp"

namespace headlane {
namespace {

/// Additions, multiplications and the like for an exponential, to weigh the work against the start of threads.
constexpr double flops_per_element = 30.0;

/// Where row `row` starts, all axes but the last counted in row-major order.
template <class T>
T* row_start(const AnyView<T>& view, index row) {
  index offset = 0;
  for (int axis = view.rank - 2; axis >= 0; --axis) {
    const auto at = static_cast<std::size_t>(axis);
    offset += row % view.shape[at] * view.strides[at];
    row /= view.shape[at];
  }
  return view.data + offset;
}

/// y is x, in place.
bool same_elements(const AnyView<const float>& x, const AnyView<float>& y) {
  bool same = x.data == y.data;
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(x.rank); ++axis)
    same = same && (x.strides[axis] == y.strides[axis] || x.shape[axis] <= 1);
  return same;
}

/// One row; if its elements are not contiguous, by way of a copy.
void softmax_row(const kernels::KernelTable& kernel, const float* x, index x_step, float* y, index y_step, index n,
                 const SoftmaxOptions& options) {
  if (x_step == 1 && y_step == 1) return kernel.softmax_row({x, y, n, options.scale, options.log});
  float* copy = scratch(Purpose::block, n);
  for (index i = 0; i < n; ++i) copy[i] = x[i * x_step];
  kernel.softmax_row({copy, copy, n, options.scale, options.log});
  for (index i = 0; i < n; ++i) y[i * y_step] = copy[i];
}

}  // namespace

void softmax(AnyView<const float> x, AnyView<float> y, const SoftmaxOptions& options) {
  const Operand of_x = operand("softmax", "x", x), of_y = operand("softmax", "y", y);
  require(x.rank >= 1 && x.rank == y.rank, "softmax: x has rank ", x.rank, ", y has rank ", y.rank);
  check_operand(of_x);
  check_output(of_y);
  for (int axis = 0; axis < x.rank; ++axis) {
    const std::string what = "elements along axis " + std::to_string(axis);
    check_same(of_x, axis, what.c_str(), of_y, axis, what.c_str());
  }
  if (!same_elements(x, y)) check_no_overlap(of_y, of_x);
  const kernels::KernelTable& kernel = active();

  const auto last = static_cast<std::size_t>(x.rank - 1);
  const index n = x.shape[last];
  if (std::find(x.shape.begin(), x.shape.begin() + x.rank, 0) != x.shape.begin() + x.rank) return;
  index rows = 1;
  for (std::size_t axis = 0; axis < last; ++axis) rows *= x.shape[axis];
  const int threads = useful_threads(flops_per_element * static_cast<double>(n) * static_cast<double>(rows));
  const index tasks = threads == 1 ? 1 : std::min<index>(rows, 8 * threads);
  parallel_for(tasks, threads, [&](index task) {
    for (index row = task * rows / tasks; row < (task + 1) * rows / tasks; ++row)
      softmax_row(kernel, row_start(x, row), x.strides[last], row_start(y, row), y.strides[last], n, options);
  });
}

}  // namespace headlane
