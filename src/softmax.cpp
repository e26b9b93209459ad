// Softmax: checks, the walk over the rows of any view, and what runs in parallel. The arithmetic is in kernels/softmax_row.hpp.
#include <headlane/softmax.hpp>

#include "check.hpp"
#include "dispatch.hpp"
#include "kernels/table.hpp"
#include "parallel.hpp"
#include "row_start.hpp"
#include "scratch.hpp"

namespace headlane {
namespace {

/// To weigh the work against the start of threads; no memory is as slow as the exponentials.
constexpr double operations_per_exponential = 30.0;

/// Rows first … end-1, as many at a time as lie one step apart.
void softmax_rows(const kernels::KernelTable& kernel, const AnyView<const float>& x, const AnyView<float>& y,
                  Index first, Index end, const SoftmaxOptions& options) {
  const auto last = static_cast<std::size_t>(x.rank - 1);
  const Index n = x.shape[last], x_column = x.strides[last], y_column = y.strides[last];
  const Index run = x.rank > 1 ? x.shape[last - 1] : 1;  // rows that are one step apart
  for (Index row = first; row < end;) {
    const float* from = row_start(x, row);
    float* to = row_start(y, row);
    if (x_column == 1 && y_column == 1) {
      const Index rows = std::min(end - row, run - row % run);
      const Index x_step = x.rank > 1 ? x.strides[last - 1] : 0, y_step = x.rank > 1 ? y.strides[last - 1] : 0;
      kernel.softmax_rows({from, to, x_step, y_step, rows, n, options.scale, options.log});
      row += rows;
    } else {  // elements that are not neighbours go through a copy
      float* copy = scratch(Purpose::block, n);
      for (Index i = 0; i < n; ++i) copy[i] = from[i * x_column];
      kernel.softmax_rows({copy, copy, 0, 0, 1, n, options.scale, options.log});
      for (Index i = 0; i < n; ++i) to[i * y_column] = copy[i];
      ++row;
    }
  }
}

}  // namespace

void softmax(AnyView<const float> x, AnyView<float> y, const SoftmaxOptions& options) {
  const Operand of_x = operand("softmax", "x", x), of_y = operand("softmax", "y", y);
  check_elementwise(of_x, of_y);
  check_threads("softmax", options.num_threads);
  const kernels::KernelTable& kernel = active();

  const auto last = static_cast<std::size_t>(x.rank - 1);
  const Index n = x.shape[last];
  if (std::find(x.shape.begin(), x.shape.begin() + x.rank, 0) != x.shape.begin() + x.rank) return;
  Index rows = 1;
  for (std::size_t axis = 0; axis < last; ++axis) rows *= x.shape[axis];
  const double elements = static_cast<double>(n) * static_cast<double>(rows);
  const int threads = useful_threads(operations_per_exponential * elements, 0, options.num_threads);
  const Index tasks = threads == 1 ? 1 : std::min<Index>(rows, 8 * threads);
  parallel_for(tasks, threads, [&](Index task) {
    softmax_rows(kernel, x, y, task * rows / tasks, (task + 1) * rows / tasks, options);
  });
}

}  // namespace headlane
