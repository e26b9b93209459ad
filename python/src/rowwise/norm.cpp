// layer_norm and rms_norm, with the residual addition before them.
#include <headlane/norm.hpp>

#include "core/call.hpp"
#include "core/functions.hpp"

namespace headlane::python {
namespace {

/// A vector as long as x's last axis; none if it was not given.
View<const float, 1> vector_of(const char* function, const std::optional<Array>& array, Index n) {
  if (!array) return {};
  array->require_float();
  require(array->rank() == 1 && array->size(0) == n, function, ": ", array->name(), " has shape ", *array,
          ", wanted: [", n, "], the last axis of x");
  static constexpr float nothing = 0;  // PyTorch's empty tensors have no address, which would mean that there is none
  const float* data = array->floats();
  return {data != nullptr ? data : &nothing, {n}, {array->stride(0)}};
}

}  // namespace

nb::object norm_over(bool centred, nb::handle x, nb::handle weight, nb::handle bias, nb::handle given_eps,
                     nb::handle residual, nb::handle sum, nb::handle out, nb::handle num_threads) {
  const char* function = centred ? "layer_norm" : "rms_norm";
  const Array from(function, "x", x);
  from.require_float();
  require(from.rank() >= 1, function, ": x has no axis");
  const Index n = from.size(-1);
  std::optional<Array> of_weight, of_bias, of_residual;
  if (!weight.is_none()) of_weight.emplace(function, "weight", weight);
  if (!bias.is_none()) of_bias.emplace(function, "bias", bias);
  const float eps = float_of(function, "eps", given_eps);
  LayerNormOptions options{.eps = eps, .num_threads = threads_of(function, num_threads)};
  options.weight = vector_of(function, of_weight, n);
  options.bias = vector_of(function, of_bias, n);
  if (!residual.is_none()) {
    of_residual.emplace(function, "residual", residual);
    of_residual->require_float();
    options.residual = any_view<const float>(*of_residual);
  }
  const Result result(function, x, out, from.shape());
  std::optional<Result> of_sum;
  const bool new_sum = sum.is(nb::bool_(true));
  if (new_sum || !sum.is(nb::bool_(false))) {
    const bool scalar = PyLong_Check(sum.ptr()) || PyFloat_Check(sum.ptr()) || PyUnicode_Check(sum.ptr());
    if (!new_sum && (sum.is_none() || scalar)) fail_as_type(function, "return_sum", sum, "True, False or an array");
    of_sum.emplace(function, x, new_sum ? nb::none() : nb::borrow(sum), from.shape());
    options.sum = any_view<float>(of_sum->array());
  }
  compute(function, [&] {
    const AnyView<const float> given = any_view<const float>(from);
    const AnyView<float> to = any_view<float>(result.array());
    if (centred) layer_norm(given, to, options);
    else rms_norm(given, to, {eps, options.weight, options.residual, options.sum, options.num_threads});
  });
  if (!of_sum) return result.object();
  return nb::make_tuple(result.object(), of_sum->object());
}

}  // namespace headlane::python
