// softmax and log_softmax. Mask, bias and lengths broadcast by NumPy's rules.
#include <headlane/softmax.hpp>

#include "core/array_kinds.hpp"
#include "core/call.hpp"
#include "core/functions.hpp"

namespace headlane::python {
namespace {

/// An argument broadcast to a shape, or no view for None.
template <class T>
AnyView<const T> broadcast(const char* function, const std::optional<Array>& array, const std::vector<Index>& shape) {
  if (!array) return {};
  AnyView<const T> view;
  view.data = array->data<T>();
  view.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), view.shape.begin());
  require(broadcast_strides(*array, shape, view.strides.data()), function, ": ", array->name(), " of shape ", *array,
          " does not broadcast to ", shape);
  return view;
}

}  // namespace

nb::object softmax_over(bool log, nb::handle x, nb::handle given_axis, nb::handle scale, nb::handle mask,
                        nb::handle bias, nb::handle lengths, nb::handle causal, nb::handle causal_offset,
                        nb::handle out, nb::handle num_threads) {
  const char* function = log ? "log_softmax" : "softmax";
  const Array from(function, "x", x, Element::float32);
  const int rank = from.rank();
  require(rank >= 1, function, ": x has no axis");
  const Index axis = integer_of(function, "axis", given_axis);
  require(-rank <= axis && axis < rank, function, ": axis is ", axis, ", x has shape ", from);
  const std::optional<Array> of_mask = optional_array(function, "mask", mask, Element::boolean),
                             of_bias = optional_array(function, "bias", bias, Element::float32),
                             of_lengths = optional_integers(function, "lengths", lengths);
  SoftmaxOptions options{.scale = float_of(function, "scale", scale),
                         .log = log,
                         .axis = static_cast<int>(axis),
                         .causal = flag_of(function, "causal", causal),
                         .causal_offset = integer_of(function, "causal_offset", causal_offset),
                         .num_threads = threads_of(function, num_threads)};
  std::vector<Index> shape = from.shape();
  options.mask = broadcast<bool>(function, of_mask, shape);
  options.bias = broadcast<float>(function, of_bias, shape);
  shape.erase(shape.begin() + (axis < 0 ? axis + rank : axis));
  options.lengths = broadcast<Index>(function, of_lengths, shape);
  const Result result(function, x, out, from.shape());
  compute(function, [&] { softmax(any_view<const float>(from), any_view<float>(result.array()), options); });
  return result.object();
}

}  // namespace headlane::python
