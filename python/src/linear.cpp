// linear, and matmul with a PackedMatrix: all axes but the last are rows, of one product as far as strides allow.
#include "functions.hpp"
#include "products.hpp"

#include <algorithm>

namespace headlane::python {
namespace {

/// An axis of rows: its size, and its strides in each array.
struct Rows {
  Index size = 1, x = 0, out = 0, residual = 0;
};

/// The axes before the last one, those that continue each other in every array as one; the longest is the last.
std::vector<Rows> axes_of_rows(const Array& x, const Array& out, const Array* residual) {
  std::vector<Rows> axes;
  for (int i = 0; i < x.rank() - 1; ++i) {
    if (x.size(i) == 1) continue;
    const Rows axis{x.size(i), x.stride(i), out.stride(i), residual != nullptr ? residual->stride(i) : 0};
    const auto continued = [&](Index outer, Index inner) { return outer == axis.size * inner; };
    if (!axes.empty() && continued(axes.back().x, axis.x) && continued(axes.back().out, axis.out) &&
        continued(axes.back().residual, axis.residual))
      axes.back() = {axes.back().size * axis.size, axis.x, axis.out, axis.residual};
    else axes.push_back(axis);
  }
  if (axes.empty()) axes.emplace_back();
  const auto longest =
      std::max_element(axes.begin(), axes.end(), [](const Rows& a, const Rows& b) { return a.size < b.size; });
  std::iter_swap(longest, axes.end() - 1);
  return axes;
}

/// One call of the library for each position along all axes but the last.
void multiply(const Array& x, const Right& right, const Array& out, const Array* residual, GemmOptions options) {
  const std::vector<Rows> axes = axes_of_rows(x, out, residual);
  const Rows& rows = axes.back();
  const std::size_t outer = axes.size() - 1;
  Index calls = 1;
  for (std::size_t axis = 0; axis < outer; ++axis) calls *= axes[axis].size;
  for (Index call = 0; call < calls; ++call) {
    Rows offset;
    Index rest = call;
    for (std::size_t axis = outer; axis-- > 0; rest /= axes[axis].size) {
      const Index at = rest % axes[axis].size;
      offset.x += at * axes[axis].x;
      offset.out += at * axes[axis].out;
      offset.residual += at * axes[axis].residual;
    }
    if (residual != nullptr)
      options.residual = {
          residual->floats() + offset.residual, {rows.size, residual->size(-1)}, {rows.residual, residual->stride(-1)}};
    right.multiply({x.floats() + offset.x, {rows.size, x.size(-1)}, {rows.x, x.stride(-1)}},
                   {out.floats() + offset.out, {rows.size, out.size(-1)}, {rows.out, out.stride(-1)}}, options);
  }
}

}  // namespace

nb::object rows_times(const char* function, const char* left, nb::handle a, const char* right, nb::handle b,
                      nb::handle out, const EndingArguments& given, std::optional<int> num_threads) {
  const Array x(function, left, a);
  x.require_float();
  require(x.rank() >= 1, function, ": ", left, " has no axis");
  const Right weights(function, right, b);
  require(x.size(-1) == weights.rows(), function, ": ", left, " of shape ", x, " has ", x.size(-1), " columns, ", right,
          " has ", weights.rows(), " rows");
  const Ending ending(function, given);
  std::vector<Index> shape = x.shape();
  shape.back() = weights.columns();
  ending.check(shape);
  const Result result(function, a, out, shape);
  require_apart(function, result.array(), {&x, weights.array(), ending.bias(), ending.residual()});
  GemmOptions options = ending.options();
  options.num_threads = threads_of(function, num_threads);
  compute(function, [&] { multiply(x, weights, result.array(), ending.residual(), options); });
  return result.object();
}

nb::object linear(nb::handle x, nb::handle packed, nb::handle bias, std::optional<std::string_view> activation,
                  nb::handle residual, nb::handle out, std::optional<int> num_threads) {
  return rows_times("linear", "x", x, "packed", packed, out, {bias, residual, activation}, num_threads);
}

}  // namespace headlane::python
