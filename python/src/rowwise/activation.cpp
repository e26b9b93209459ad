// The activations, elementwise on arrays of any shape, and their names.
#include <headlane/activation.hpp>

#include "core/functions.hpp"
#include "core/result.hpp"
#include "gemm/products.hpp"

#include <algorithm>
#include <iterator>

namespace headlane::python {
namespace {

struct Named {
  std::string_view name;
  Activation activation;
};

constexpr Named activations[] = {
    {"relu", Activation::relu}, {"gelu", Activation::gelu},       {"gelu_tanh", Activation::gelu_tanh},
    {"silu", Activation::silu}, {"sigmoid", Activation::sigmoid}, {"tanh", Activation::tanh},
    {"erf", Activation::erf}};

}  // namespace

Activation activation_named(const Call& call, nb::handle given) {
  if (given.is_none()) return Activation::none;
  const std::string name = call.text("activation", given);
  const auto* found =
      std::find_if(std::begin(activations), std::end(activations), [&](const Named& one) { return one.name == name; });
  if (found != std::end(activations)) return found->activation;
  std::string names;
  for (const Named& one : activations) names += std::string(one.name) + ", ";
  throw std::invalid_argument(call.message("activation is '", name, "'; there are ", names, "and None"));
}

nb::object activate_by(const char* function, nb::handle activation, nb::handle x, nb::handle out,
                       nb::handle num_threads) {
  const Call call(function);
  Array from(call, "x", x, Floats());
  Result result(call, from.like(), out, from.shape(), Floats());
  const Activation which = activation_named(call, activation);
  const ActivateOptions options{.num_threads = call.threads(num_threads)};
  compute_in_own_type(call, {&from}, result, [&]<class T>(T) {
    activate(any_view<const T>(from), any_view<T>(result.array()), which, options);
  });
  return result.object();
}

}  // namespace headlane::python
