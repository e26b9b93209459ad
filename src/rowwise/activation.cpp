// activate: checks, the walk over views of any strides, and the parallel loop. The arithmetic is in
// kernels/simd/activation.hpp.
#include <headlane/activation.hpp>

#include "core/call_scope.hpp"
#include "core/check.hpp"
#include "core/dispatch.hpp"
#include "core/parallel.hpp"
#include "core/round.hpp"
#include "core/scratch.hpp"
#include "core/view_rows.hpp"
#include "kernels/table.hpp"

#include <numeric>

namespace headlane {

using namespace internal;

namespace {

/// Weighs the work against the cost of starting threads.
constexpr double operations_per_element = 40.0;
/// Elements that a kernel processes at once: 16 KiB, which stay in the L1 even by way of a copy.
constexpr Index piece = 4096;

/// The elements of x and y in another order: axes by falling stride of y, and adjacent axes merged
/// where strides allow.
struct Walk {
  AnyView<const float> x;
  AnyView<float> y;

  Walk(const AnyView<const float>& from, const AnyView<float>& to) : x(from), y(to) {
    x.rank = y.rank = 0;
    const Axes axes = axes_by_step(Caller("activate").operand("y", to));
    for (std::size_t i = axes.count; i-- > 0;) {
      const auto axis = static_cast<std::size_t>(axes.axis[i]);
      append(to.shape[axis], from.strides[axis], to.strides[axis]);
    }
    if (y.rank == 0) append(1, 1, 1);
  }

  [[nodiscard]] Index inner() const { return y.shape[static_cast<std::size_t>(y.rank - 1)]; }
  [[nodiscard]] Index rows() const {
    return std::accumulate(y.shape.begin(), y.shape.begin() + y.rank - 1, Index{1}, std::multiplies<>());
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

/// Elements first … first + n - 1 of row `row`.
void activate_piece(const kernels::KernelTable& kernel, const Walk& walk, Activation activation, Index row, Index first,
                    Index n) {
  const auto last = static_cast<std::size_t>(walk.y.rank - 1);
  const Index x_step = walk.x.strides[last], y_step = walk.y.strides[last];
  const float* x = row_start(walk.x, row) + first * x_step;
  float* y = row_start(walk.y, row) + first * y_step;
  if (x_step == 1 && y_step == 1) return kernel.activate(activation, x, y, n);
  float* copy = scratch(Purpose::block, piece);
  for (Index i = 0; i < n; ++i) copy[i] = x[i * x_step];
  kernel.activate(activation, copy, copy, n);
  for (Index i = 0; i < n; ++i) y[i * y_step] = copy[i];
}

}  // namespace

void activate(AnyView<const float> x, AnyView<float> y, Activation activation, const ActivateOptions& options) {
  const CallScope scope;
  constexpr Caller caller("activate");
  check_elementwise(caller.operand("x", x), caller.operand("y", y));
  caller.require(activation > Activation::none && activation <= Activation::erf, "activation is ",
                 static_cast<Index>(activation), ", which is none of relu … erf");
  check_threads(caller, options.num_threads);
  const kernels::KernelTable& kernel = active();
  if (is_empty(y)) return;

  const Walk walk(x, y);
  const Index inner = walk.inner(), pieces = ceil_div(inner, piece), units = walk.rows() * pieces;
  const double elements = static_cast<double>(inner) * static_cast<double>(walk.rows());
  const int threads = useful_threads(operations_per_element * elements, 0, options.num_threads);
  parallel_parts(units, 1, threads, [&](Index begin, Index end) {
    for (Index unit = begin; unit < end; ++unit) {
      const Index first = unit % pieces * piece;
      activate_piece(kernel, walk, activation, unit / pieces, first, std::min(piece, inner - first));
    }
  });
}

}  // namespace headlane
