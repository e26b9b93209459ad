// softmax and log_softmax. Mask, bias and lengths broadcast by NumPy's rules.
#include <headlane/softmax.hpp>

#include "core/array_kinds.hpp"
#include "core/functions.hpp"
#include "core/result.hpp"

namespace headlane::python {
namespace {

/// An argument broadcast to a shape, or no view for None.
template <class T>
AnyView<const T> broadcast(const std::optional<Array>& array, const std::vector<Index>& shape) {
  if (!array) return {};
  AnyView<const T> view;
  view.data = array->data<T>();
  view.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), view.shape.begin());
  broadcast_strides(*array, shape, view.strides.data());
  return view;
}

}  // namespace

nb::object softmax_over(bool log, nb::handle x, nb::handle given_axis, nb::handle scale, nb::handle mask,
                        nb::handle bias, nb::handle lengths, nb::handle causal, nb::handle causal_offset,
                        nb::handle out, nb::handle num_threads) {
  const Call call(log ? "log_softmax" : "softmax");
  Array from(call, "x", x, Floats());
  const int rank = from.rank();
  from.require(rank >= 1, " has no axis");
  const Index axis = call.integer("axis", given_axis);
  call.require(-rank <= axis && axis < rank, "axis is ", axis, ", x has shape ", from);
  const std::optional<Array> of_mask = optional_array(call, "mask", mask, Element::boolean),
                             of_bias = optional_array(call, "bias", bias, Floats()),
                             of_lengths = optional_integers(call, "lengths", lengths);
  SoftmaxOptions options{.scale = call.float32("scale", scale),
                         .log = log,
                         .axis = static_cast<int>(axis),
                         .causal = call.flag("causal", causal),
                         .causal_offset = call.integer("causal_offset", causal_offset),
                         .num_threads = call.threads(num_threads)};
  std::vector<Index> shape = from.shape();
  options.mask = broadcast<bool>(of_mask, shape);
  if (of_bias) options.bias = typed(broadcast<float>(of_bias, shape), *of_bias);
  shape.erase(shape.begin() + (axis < 0 ? axis + rank : axis));
  options.lengths = broadcast<Index>(of_lengths, shape);
  Result result(call, from.like(), out, from.shape(), Floats());
  compute_in_own_type(call, {&from}, result,
                      [&]<class T>(T) { softmax(any_view<const T>(from), any_view<T>(result.array()), options); });
  return result.object();
}

}  // namespace headlane::python
