// causal_convolution: one sequence or a batch of them.
#include <headlane/causal_convolution.hpp>

#include "core/define.hpp"
#include "core/functions.hpp"
#include "gemm/products.hpp"
#include "recurrent/recurrent.hpp"

namespace headlane::python {
namespace {

nb::object causal_convolution_of(nb::handle x, nb::handle weight, nb::handle bias, nb::handle activation,
                                 nb::handle state, nb::handle out, nb::handle num_threads) {
  const Call call("causal_convolution");
  Array from(call, "x", x, Floats());
  from.require(from.rank() == 2 || from.rank() == 3, " has shape ", from,
               ", wanted [batch, length, channels] or [length, channels]");
  const Array of_weight(call, "weight", weight, Element::float32);
  of_weight.require(of_weight.rank() == 2, " has shape ", of_weight, ", wanted [channels, width]");
  const std::optional<Array> of_bias = optional_array(call, "bias", bias, Element::float32);
  if (of_bias) of_bias->require(of_bias->rank() == 1, " has shape ", *of_bias, ", wanted [channels]");
  State of_state(call, state, from.rank(), from.rank() == 3 ? "[batch, channels, width - 1]" : "[channels, width - 1]");
  CausalConvolutionOptions options{.activation = activation_named(call, activation),
                                   .num_threads = call.threads(num_threads)};
  Result result(call, from.like(), out, from.shape(), Floats());
  of_state.finish(result);
  if (of_bias) options.bias = view_of<const float, 1>(*of_bias);
  options.state = of_state.view<3>();
  compute_in_own_type(call, {&from}, result, [&]<class T>(T) {
    causal_convolution(view_of<const T, 3>(from), view_of<const float, 2>(of_weight), view_of<T, 3>(result.array()),
                       options);
  });
  of_state.announce();
  return result.object();
}

}  // namespace

void add_causal_convolution(nb::module_& module) {
  define(module, "causal_convolution", &causal_convolution_of, "x", "weight", "bias", "activation", "state", "out",
         "num_threads");
}

}  // namespace headlane::python
