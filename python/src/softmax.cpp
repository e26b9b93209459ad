// softmax and log_softmax along any axis: the library's works along the last one, so the view is permuted.
#include <headlane/softmax.hpp>

#include "call.hpp"
#include "functions.hpp"

#include <algorithm>

namespace headlane::python {
namespace {

template <class T>
AnyView<T> view_of(const Array& x, int axis) {
  AnyView<T> view = any_view<T>(x);
  const auto to_last = [&](auto& of_axis) {
    std::rotate(of_axis.begin() + axis, of_axis.begin() + axis + 1, of_axis.begin() + view.rank);
  };
  to_last(view.shape);
  to_last(view.strides);
  return view;
}

}  // namespace

nb::object softmax_over(bool log, nb::handle x, int axis, float scale, nb::handle out, std::optional<int> num_threads) {
  const char* function = log ? "log_softmax" : "softmax";
  const Array from(function, "x", x);
  from.require_float();
  const int rank = from.rank();
  require(rank >= 1, function, ": x has no axis");
  require(-rank <= axis && axis < rank, function, ": axis is ", axis, ", x has shape ", from);
  const Result result(function, x, out, from.shape());
  const SoftmaxOptions options{.scale = scale, .log = log, .num_threads = threads_of(function, num_threads)};
  const int at = axis < 0 ? axis + rank : axis;
  compute(function, [&] { softmax(view_of<const float>(from, at), view_of<float>(result.array(), at), options); });
  return result.object();
}

}  // namespace headlane::python
