// softmax and log_softmax: NumPy's broadcasting of mask, bias and lengths.
#include <headlane/softmax.hpp>

#include "core/array_kinds.hpp"
#include "core/call.hpp"
#include "core/functions.hpp"

namespace headlane::python {
namespace {

/// An argument broadcast to a shape, aligned to the right; none if it was not given.
template <class T>
AnyView<const T> broadcast(const char* function, const std::optional<Array>& array, const T* data,
                           const std::vector<Index>& shape) {
  if (!array) return {};
  const int rank = static_cast<int>(shape.size()), missing = rank - array->rank();
  static constexpr T nothing{};  // PyTorch's empty tensors have no address, which would mean that there is none
  AnyView<const T> view;
  view.data = data != nullptr ? data : &nothing;
  view.rank = rank;
  bool fits = missing >= 0;
  for (int axis = 0; fits && axis < rank; ++axis) {
    const auto at = static_cast<std::size_t>(axis);
    const Index size = axis < missing ? 1 : array->size(axis - missing);
    fits = size == 1 || size == shape[at];
    view.shape[at] = shape[at];
    view.strides[at] = size == 1 ? 0 : array->stride(axis - missing);
  }
  require(fits, function, ": ", array->name(), " of shape ", *array, " does not broadcast to ", shape);
  return view;
}

}  // namespace

nb::object softmax_over(bool log, nb::handle x, nb::handle given_axis, nb::handle scale, nb::handle mask,
                        nb::handle bias, nb::handle lengths, nb::handle causal, nb::handle causal_offset,
                        nb::handle out, nb::handle num_threads) {
  const char* function = log ? "log_softmax" : "softmax";
  const Array from(function, "x", x);
  from.require_float();
  const int rank = from.rank();
  require(rank >= 1, function, ": x has no axis");
  const Index axis = integer_of(function, "axis", given_axis);
  require(-rank <= axis && axis < rank, function, ": axis is ", axis, ", x has shape ", from);
  std::optional<Array> of_mask, of_bias, of_lengths;
  if (!mask.is_none()) of_mask.emplace(function, "mask", mask);
  if (!bias.is_none()) of_bias.emplace(function, "bias", bias);
  if (!lengths.is_none()) of_lengths.emplace(function, "lengths", int64_array(function, "lengths", lengths));
  if (of_mask) of_mask->require_bool();
  if (of_bias) of_bias->require_float();
  SoftmaxOptions options{.scale = float_of(function, "scale", scale),
                         .log = log,
                         .axis = static_cast<int>(axis),
                         .causal = flag_of(function, "causal", causal),
                         .causal_offset = integer_of(function, "causal_offset", causal_offset),
                         .num_threads = threads_of(function, num_threads)};
  std::vector<Index> shape = from.shape();
  options.mask = broadcast<bool>(function, of_mask, of_mask ? of_mask->bools() : nullptr, shape);
  options.bias = broadcast<float>(function, of_bias, of_bias ? of_bias->floats() : nullptr, shape);
  shape.erase(shape.begin() + (axis < 0 ? axis + rank : axis));
  options.lengths = broadcast<Index>(function, of_lengths, of_lengths ? of_lengths->integers() : nullptr, shape);
  const Result result(function, x, out, from.shape());
  compute(function, [&] { softmax(any_view<const float>(from), any_view<float>(result.array()), options); });
  return result.object();
}

}  // namespace headlane::python
