// layer_norm and rms_norm: the walk over the rows of any views, and the parallel loop. Checks are
// in norm_check.cpp, the arithmetic in kernels/rowwise/norm_row.hpp.
#include <headlane/norm.hpp>

#include "core/call_scope.hpp"
#include "core/dispatch.hpp"
#include "core/half_blocks.hpp"
#include "core/parallel.hpp"
#include "core/round.hpp"
#include "core/scratch.hpp"
#include "core/view_rows.hpp"
#include "kernels/table.hpp"
#include "rowwise/norm_check.hpp"

namespace headlane {

using namespace internal;

namespace {

using kernels::KernelTable;

/// 1024 rows of 64 take 29 µs, 128 rows of 512 take 11 (layer norm, AVX-512, Zen 4).
constexpr RowCost row_cost{.row = 2200, .element = 16};

/// Rows that are copied at a time: as many as elements fill a cache line.
constexpr Index block_rows = kernels::lanes;

/// Calls f(view) for each of the views; views that are not given have the shape of x and strides of
/// 0.
template <class F>
void for_views(Norm& norm, const F& f) {
  f(norm.x), f(norm.y), f(norm.residual), f(norm.sum);
}

template <class T>
void erase_axis(AnyView<T>& view, int axis) {
  move_axis(view, axis, view.rank - 1);
  --view.rank;
}

/// Reorders rows: where rows are not contiguous, the axis with the smallest stride comes before the
/// last one; axes are merged where strides allow.
void order_axes(Norm& norm) {
  const auto given = [&](auto& view) {
    if (view) return;
    view.rank = norm.x.rank;
    view.shape = norm.x.shape;
    view.strides = {};
  };
  for_views(norm, given);
  if (norm.x.rank == 1) {
    for_views(norm, [](auto& view) { append_axis(view), move_axis(view, 0, 1); });
    return;
  }
  int innermost = norm.x.rank - 2;
  for_views(norm, [&](const auto& view) {
    if (view && !is_contiguous(view)) innermost = closest_axis(view);
  });
  for_views(norm, [&](auto& view) { move_axis(view, innermost, view.rank - 2); });
  while (norm.x.rank > 2) {
    const int inner = norm.x.rank - 2, outer = inner - 1;
    const auto i = static_cast<std::size_t>(inner), o = static_cast<std::size_t>(outer);
    const bool one = norm.x.shape[i] == 1 || norm.x.shape[o] == 1;  // its stride is arbitrary
    bool adjoin = !one;
    for_views(norm, [&](const auto& view) { adjoin = adjoin && view.strides[o] == view.shape[i] * view.strides[i]; });
    if (!one && !adjoin) return;
    const int other = norm.x.shape[i] == 1 ? inner : outer;
    for_views(norm, [&](auto& view) {
      if (!one) view.shape[i] *= view.shape[o];
      erase_axis(view, other);
    });
  }
}

template <class T>
T* row_or_null(const AnyView<T>& view, Index row) {
  return !view ? nullptr : row_start(view, row);
}

template <class T>
bool is_dense(const AnyView<T>& view) {
  return !view || is_contiguous(view);
}

/// `rows` rows that are one step apart, in place.
kernels::NormRows rows_from(const Norm& norm, Index row, Index rows) {
  return {row_start(norm.x, row),
          row_start(norm.y, row),
          row_or_null(norm.residual, row),
          row_or_null(norm.sum, row),
          step(norm.x, -2),
          step(norm.y, -2),
          step(norm.residual, -2),
          step(norm.sum, -2),
          rows,
          norm.x.shape[static_cast<std::size_t>(norm.x.rank - 1)],
          norm.weight.data,
          norm.bias.data,
          norm.eps,
          norm.centred};
}

/// At most block_rows rows, by way of copies where elements are not contiguous: one for x and y,
/// one for residual and sum.
void norm_block(const KernelTable& kernel, const Norm& norm, Index row, Index rows) {
  const kernels::NormRows at = rows_from(norm, row, rows);
  kernels::NormRows call = at;
  const Index copy_step = step_of_copy(at.n);
  float* const copy = scratch(Purpose::block, 2 * block_rows * copy_step);
  float* const second = copy + block_rows * copy_step;
  const auto through = [&](bool dense, auto*& data, Index& data_step, float* to) {
    if (dense) return false;
    data = to;
    data_step = copy_step;
    return true;
  };
  if (through(is_dense(norm.x), call.x, call.x_step, copy))
    kernel.copy_rows({at.x, rows, at.n, at.x_step, step(norm.x, -1)}, copy, copy_step, 1);
  if (through(is_dense(norm.residual), call.residual, call.residual_step, second))
    kernel.copy_rows({at.residual, rows, at.n, at.residual_step, step(norm.residual, -1)}, second, copy_step, 1);
  const bool copy_y = through(is_dense(norm.y), call.y, call.y_step, copy);
  const bool copy_sum = through(is_dense(norm.sum), call.sum, call.sum_step, second);
  kernel.norm_rows(call);
  if (copy_y) kernel.copy_rows({copy, rows, at.n, copy_step, 1}, at.y, at.y_step, step(norm.y, -1));
  if (copy_sum) kernel.copy_rows({second, rows, at.n, copy_step, 1}, at.sum, at.sum_step, step(norm.sum, -1));
}

/// Gives a vector the stride 1, by a copy to `to` if it has another one.
void make_dense(View<const float, 1>& vector, float* to) {
  if (!vector || vector.size(0) == 1 || vector.stride(0) == 1) return;
  for (Index i = 0; i < vector.size(0); ++i) to[i] = vector(i);
  vector.data = to;
}

int threads_for(Index elements, Index n, const Norm& norm) {
  return useful_threads(row_cost, elements, n, norm.num_threads);
}

void run(Norm norm) {
  const CallScope scope;
  check_norm(norm, norm.caller.operand("x", norm.x), norm.caller.operand("y", norm.y));
  const KernelTable& kernel = active();
  if (is_empty(norm.x)) return;
  order_axes(norm);
  const auto last = static_cast<std::size_t>(norm.x.rank - 1);
  const Index n = norm.x.shape[last], together = norm.x.shape[last - 1];
  Index rows = 1;
  for (std::size_t axis = 0; axis < last; ++axis) rows *= norm.x.shape[axis];
  float* const vectors = scratch(Purpose::shared, 2 * n);
  make_dense(norm.weight, vectors);
  make_dense(norm.bias, vectors + n);

  bool dense = true;
  for_views(norm, [&](const auto& view) { dense = dense && is_dense(view); });
  parallel_parts(rows, dense ? 1 : block_rows, threads_for(n * rows, n, norm), [&](Index first, Index end) {
    for (Index row = first; row < end;) {
      const Index left = std::min(end - row, together - row % together),
                  count = dense ? left : std::min(left, block_rows);
      if (dense) kernel.norm_rows(rows_from(norm, row, count));
      else norm_block(kernel, norm, row, count);
      row += count;
    }
  });
}

/// The same for x and y of 16 bits; `norm` has its options.
void run(const Norm& norm, const HalfInput& x, const HalfOutput& y) {
  const CallScope scope;
  check_norm(norm, norm.caller.operand("x", x), norm.caller.operand("y", y));
  const KernelTable& kernel = active();
  if (is_empty(x)) return;
  const int last = x.rank - 1;
  const int threads = threads_for(number_of_elements(x), x.shape[static_cast<std::size_t>(last)], norm);
  for_half_blocks(kernel, &x, y, order_with_last(x.rank, last), threads,
                  [&](const Block& block, const AnyView<float>& rows) {
                    Norm part = norm;
                    part.x = as_input(rows);
                    part.y = rows;
                    part.residual = block.of(norm.residual);
                    part.sum = block.of(norm.sum);
                    part.num_threads = 1;
                    run(part);
                  });
}

Norm norm_of(const LayerNormOptions& options) {
  return {"layer_norm", {},          {},   options.residual,   options.sum, options.weight,
          options.bias, options.eps, true, options.num_threads};
}
Norm norm_of(const RmsNormOptions& options) {
  return {"rms_norm", {},          {},    options.residual,   options.sum, options.weight,
          {},         options.eps, false, options.num_threads};
}

void run(Norm norm, const AnyView<const float>& x, const AnyView<float>& y) {
  norm.x = x;
  norm.y = y;
  run(norm);
}

}  // namespace

void layer_norm(AnyView<const float> x, AnyView<float> y, const LayerNormOptions& options) {
  run(norm_of(options), x, y);
}
void layer_norm(AnyView<const bfloat16> x, AnyView<bfloat16> y, const LayerNormOptions& options) {
  run(norm_of(options), HalfInput(x), HalfOutput(y));
}
void layer_norm(AnyView<const float16> x, AnyView<float16> y, const LayerNormOptions& options) {
  run(norm_of(options), HalfInput(x), HalfOutput(y));
}

void rms_norm(AnyView<const float> x, AnyView<float> y, const RmsNormOptions& options) { run(norm_of(options), x, y); }
void rms_norm(AnyView<const bfloat16> x, AnyView<bfloat16> y, const RmsNormOptions& options) {
  run(norm_of(options), HalfInput(x), HalfOutput(y));
}
void rms_norm(AnyView<const float16> x, AnyView<float16> y, const RmsNormOptions& options) {
  run(norm_of(options), HalfInput(x), HalfOutput(y));
}

}  // namespace headlane
