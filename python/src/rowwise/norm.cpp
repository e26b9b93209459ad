// layer_norm and rms_norm, with the residual added before them.
#include <headlane/norm.hpp>

#include "core/functions.hpp"
#include "core/result.hpp"

namespace headlane::python {
namespace {

/// A vector as long as x's last axis, or no view for None.
View<const float, 1> vector_of(const std::optional<Array>& array, Index n) {
  if (!array) return {};
  array->require(array->rank() == 1 && array->size(0) == n, " has shape ", *array, ", wanted: [", n,
                 "], the last axis of x");
  return view_of<const float, 1>(*array);
}

}  // namespace

nb::object norm_over(bool centred, nb::handle x, nb::handle weight, nb::handle bias, nb::handle given_eps,
                     nb::handle residual, nb::handle sum, nb::handle out, nb::handle num_threads) {
  const Call call(centred ? "layer_norm" : "rms_norm");
  Array from(call, "x", x, Floats());
  from.require(from.rank() >= 1, " has no axis");
  const Index n = from.size(-1);
  const std::optional<Array> of_weight = optional_array(call, "weight", weight, Element::float32),
                             of_bias = optional_array(call, "bias", bias, Element::float32),
                             of_residual = optional_array(call, "residual", residual, Element::float32);
  const float eps = call.float32("eps", given_eps);
  LayerNormOptions options{.eps = eps, .num_threads = call.threads(num_threads)};
  options.weight = vector_of(of_weight, n);
  options.bias = vector_of(of_bias, n);
  if (of_residual) options.residual = any_view<const float>(*of_residual);
  Result result(call, from.like(), out, from.shape(), Floats());
  std::optional<Result> of_sum;
  const bool new_sum = sum.is(nb::bool_(true));
  if (new_sum || !sum.is(nb::bool_(false))) {
    const bool scalar = PyLong_Check(sum.ptr()) || PyFloat_Check(sum.ptr()) || PyUnicode_Check(sum.ptr());
    if (!new_sum && (sum.is_none() || scalar)) call.refuse_value("return_sum", sum, "True, False or an array");
    of_sum.emplace(call, from.like(), new_sum ? nb::none() : nb::borrow(sum), from.shape());
    result.require_apart(*of_sum, "return_sum");
    options.sum = any_view<float>(of_sum->array());
  }
  compute_in_own_type(call, {&from}, result, [&]<class T>(T) {
    const AnyView<const T> given = any_view<const T>(from);
    const AnyView<T> to = any_view<T>(result.array());
    if (centred) layer_norm(given, to, options);
    else rms_norm(given, to, {eps, options.weight, options.residual, options.sum, options.num_threads});
  });
  if (!of_sum) return result.object();
  return nb::make_tuple(result.object(), of_sum->object());
}

}  // namespace headlane::python
