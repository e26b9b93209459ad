// softmax: the walk over the rows of any view, and the parallel loop. Checks are in
// softmax_check.cpp, the arithmetic in kernels/rowwise/softmax_row.hpp and softmax_masked.hpp.
#include <headlane/softmax.hpp>

#include "core/call_scope.hpp"
#include "core/check.hpp"
#include "core/dispatch.hpp"
#include "core/half_blocks.hpp"
#include "core/parallel.hpp"
#include "core/round.hpp"
#include "core/scratch.hpp"
#include "core/view_rows.hpp"
#include "kernels/table.hpp"
#include "rowwise/softmax_check.hpp"

#include <algorithm>

namespace headlane {

using namespace internal;

namespace {

using kernels::KernelTable;

constexpr Caller caller("softmax");
/// No memory is as slow as the exponentials. 512 rows of 64 take 12 µs, 64 rows of 512 take 8
/// (AVX-512, Zen 4).
constexpr RowCost row_cost{.row = 700, .element = 30};

/// Rows of a block, which are copied together where elements are not contiguous: as many as
/// elements fill a cache line.
constexpr Index block_rows = kernels::lanes;

/// Contiguous unmasked rows first … end - 1, as many at a time as are equally spaced.
void softmax_rows(const KernelTable& kernel, const AnyView<const float>& x, const AnyView<float>& y, Index first,
                  Index end, const SoftmaxOptions& options) {
  const auto last = static_cast<std::size_t>(x.rank - 1);
  const Index run = x.rank > 1 ? x.shape[last - 1] : 1;
  const Index x_step = x.rank > 1 ? x.strides[last - 1] : 0, y_step = x.rank > 1 ? y.strides[last - 1] : 0;
  for (Index row = first; row < end;) {
    const Index rows = std::min(end - row, run - row % run);
    kernel.softmax_rows(
        {row_start(x, row), row_start(y, row), x_step, y_step, rows, x.shape[last], options.scale, options.log});
    row += rows;
  }
}

/// The general case: all views with the axis of the softmax last, and before it the axis along
/// which rows follow each other.
struct Problem {
  AnyView<const float> x;
  AnyView<float> y;
  AnyView<const bool> mask;
  AnyView<const float> bias;
  AnyView<const Index> lengths;  ///< with an axis of one element appended
  Index n, run;                  ///< sizes of these two axes
  bool masked, causal;
  Index queries, same_query, offset;  ///< causal: row r is query r / same_query % queries
};

bool is_masked(const SoftmaxOptions& options) {
  return options.mask || options.bias || options.lengths || options.causal;
}

Problem problem_of(const AnyView<const float>& x, const AnyView<float>& y, const SoftmaxOptions& options, int axis) {
  Problem p{};
  p.x = x;
  p.y = y;
  if (options.mask) p.mask = options.mask;
  if (options.bias) p.bias = options.bias.of<float>();
  if (options.lengths) p.lengths = options.lengths;
  append_axis(p.lengths);
  const auto all = [&](const auto& f) { f(p.x), f(p.y), f(p.mask), f(p.bias), f(p.lengths); };
  if (x.rank == 1) all([](auto& view) { append_axis(view); });
  const int last = p.x.rank - 1;
  const auto to_last = [&](auto&... views) { (move_axis(views, axis, last), ...); };
  to_last(p.x, p.y, p.mask, p.bias);

  const auto before = static_cast<std::size_t>(last - 1);
  p.n = p.x.shape[before + 1];
  p.queries = p.x.shape[before];
  const int innermost = !is_contiguous(p.y) ? closest_axis(p.y) : !is_contiguous(p.x) ? closest_axis(p.x) : last - 1;
  all([&](auto& view) { move_axis(view, innermost, last - 1); });
  p.run = p.x.shape[before];
  p.same_query = innermost == last - 1 ? 1 : p.run;
  p.masked = is_masked(options);
  p.causal = options.causal;
  p.offset = std::clamp(options.causal_offset, -p.queries, p.n);  // beyond them nothing changes
  return p;
}

/// The element from which on the row is masked.
Index end_of_row(const Problem& p, Index row) {
  Index end = !p.lengths ? p.n : *row_start(p.lengths, row);
  if (p.causal) end = std::min(end, std::max<Index>(row / p.same_query % p.queries + 1 + p.offset, 0));
  return end;
}

/// A mask or bias, from a row on.
template <class T>
kernels::PerScore<T> from_row(const AnyView<const T>& view, Index row) {
  if (!view) return {nullptr, 0, 0};
  return {row_start(view, row), step(view, -2), step(view, -1)};
}

/// At most block_rows rows that follow each other; by way of a copy where elements are not
/// contiguous.
void softmax_block(const KernelTable& kernel, const Problem& p, Index row, Index rows, const SoftmaxOptions& options) {
  const float* x = row_start(p.x, row);
  float* y = row_start(p.y, row);
  Index x_step = step(p.x, -2), y_step = step(p.y, -2);
  Index ends[block_rows], shortest = p.n;
  for (Index i = 0; i < rows; ++i) {
    ends[i] = end_of_row(p, row + i);
    shortest = std::min(shortest, ends[i]);
  }

  const Index copy_step = step_of_copy(p.n);
  float* copy = nullptr;
  if (!is_contiguous(p.x) || !is_contiguous(p.y)) copy = scratch(Purpose::block, block_rows * copy_step);
  if (!is_contiguous(p.x)) {
    const Index column = step(p.x, -1);
    kernel.copy_rows({x, rows, shortest, x_step, column}, copy, copy_step, 1);
    for (Index i = 0; i < rows; ++i)
      if (ends[i] > shortest)
        kernel.copy_rows({x + i * x_step + shortest * column, 1, ends[i] - shortest, x_step, column},
                         copy + i * copy_step + shortest, copy_step, 1);
    x = copy;
    x_step = copy_step;
  }
  float* const to = y;
  const Index to_step = y_step;
  if (!is_contiguous(p.y)) {
    y = copy;
    y_step = copy_step;
  }

  if (p.masked) {
    const kernels::PerScore<bool> mask = from_row(p.mask, row);
    const kernels::PerScore<float> bias = from_row(p.bias, row);
    for (Index i = 0; i < rows; ++i)
      kernel.softmax_masked({x + i * x_step, y + i * y_step, p.n, ends[i], mask.data + i * mask.row_step, mask.key_step,
                             bias.data + i * bias.row_step, bias.key_step, options.scale, options.log});
  } else {
    kernel.softmax_rows({x, y, x_step, y_step, rows, p.n, options.scale, options.log});
  }
  if (y != to) kernel.copy_rows({copy, rows, p.n, copy_step, 1}, to, to_step, step(p.y, -1));
}

void softmax_blocks(const KernelTable& kernel, const Problem& p, Index first, Index end,
                    const SoftmaxOptions& options) {
  for (Index row = first; row < end;) {
    const Index rows = std::min({end - row, p.run - row % p.run, block_rows});
    softmax_block(kernel, p, row, rows, options);
    row += rows;
  }
}

/// For an x that is not empty.
template <class Input>
int threads_for(const Input& x, int axis, const SoftmaxOptions& options) {
  return useful_threads(row_cost, number_of_elements(x), x.shape[static_cast<std::size_t>(axis)], options.num_threads);
}

/// The options of a block, in which a row of a causal softmax counts from the first one of the
/// block.
SoftmaxOptions options_of(const Block& block, const SoftmaxOptions& options, const HalfInput& x, int axis) {
  SoftmaxOptions part = options;
  part.num_threads = 1;
  part.mask = block.of(options.mask);
  part.bias = block.of(options.bias);
  part.lengths = block.of(options.lengths, axis);
  if (!options.causal) return part;
  const auto queries = static_cast<std::size_t>(x.rank - 2);
  // beyond these bounds nothing changes
  part.causal_offset =
      std::clamp(options.causal_offset, -x.shape[queries], x.shape[queries + 1]) + block.first[queries];
  return part;
}

void softmax_halves(const HalfInput& x, const HalfOutput& y, const SoftmaxOptions& options) {
  const CallScope scope;
  check_softmax(caller.operand("x", x), caller.operand("y", y), options);
  const KernelTable& kernel = active();
  if (is_empty(x)) return;
  const int axis = axis_of(options, x.rank);
  for_half_blocks(kernel, &x, y, order_with_last(x.rank, axis), threads_for(x, axis, options),
                  [&](const Block& block, const AnyView<float>& rows) {
                    softmax(as_input(rows), rows, options_of(block, options, x, axis));
                  });
}

}  // namespace

void softmax(AnyView<const bfloat16> x, AnyView<bfloat16> y, const SoftmaxOptions& options) {
  softmax_halves(HalfInput(x), HalfOutput(y), options);
}
void softmax(AnyView<const float16> x, AnyView<float16> y, const SoftmaxOptions& options) {
  softmax_halves(HalfInput(x), HalfOutput(y), options);
}

void softmax(AnyView<const float> x, AnyView<float> y, const SoftmaxOptions& options) {
  const CallScope scope;
  check_softmax(caller.operand("x", x), caller.operand("y", y), options);
  const KernelTable& kernel = active();
  if (is_empty(x)) return;
  if (is_half(options.bias)) return softmax(x, y, with_wide(options, &SoftmaxOptions::bias));
  const int axis = axis_of(options, x.rank), threads = threads_for(x, axis, options);
  const Index rows = number_of_elements(x) / x.shape[static_cast<std::size_t>(axis)];
  if (axis == x.rank - 1 && is_contiguous(x) && is_contiguous(y) && !is_masked(options)) {
    parallel_parts(rows, 1, threads, [&](Index first, Index end) { softmax_rows(kernel, x, y, first, end, options); });
  } else {
    const Problem p = problem_of(x, y, options, axis);
    parallel_parts(rows, block_rows, threads,
                   [&](Index first, Index end) { softmax_blocks(kernel, p, first, end, options); });
  }
}

}  // namespace headlane
