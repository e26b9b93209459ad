// gemm_gated. All axes of a but the last are rows, of one call of the library as far as strides
// allow.
#include "core/axes.hpp"
#include "core/dtype.hpp"
#include "core/functions.hpp"
#include "gemm/products.hpp"

#include <headlane/gemm_gated.hpp>

namespace headlane::python {
namespace {

/// One of the two products: its weights and its bias.
struct Branch {
  Right weights;
  std::optional<Array> bias;

  Branch(const Call& call, const char* name, nb::handle matrix, const char* bias_name, nb::handle bias_object)
      : weights(call, name, matrix), bias(optional_array(call, bias_name, bias_object, Element::float32)) {}

  [[nodiscard]] View<const float, 1> bias_view() const {
    return bias ? view_of<const float, 1>(*bias) : View<const float, 1>{};
  }
};

void multiply(const Array& a, const Right& gate, const Right& up, const Array& out, const GemmGatedOptions& options) {
  CommonAxes<2> axes;
  for (int i = 0; i < a.rank() - 1; ++i) axes.add(a.size(i), {a.stride(i), out.stride(i)});
  const auto rows = axes.take_longest();
  axes.for_each([&](const auto& offsets) {
    const auto view = [&](const Array& array, std::size_t i) {
      return View<float, 2>(array.data<float>() + offsets[i], {rows.size, array.size(-1)},
                            {rows.strides[i], array.stride(-1)});
    };
    if (gate.packed() != nullptr) gemm_gated(view(a, 0), *gate.packed(), *up.packed(), view(out, 1), options);
    else
      gemm_gated(view(a, 0), view_of<const float, 2>(*gate.array()), view_of<const float, 2>(*up.array()), view(out, 1),
                 options);
  });
}

}  // namespace

nb::object gemm_gated_of(nb::handle a, nb::handle gate, nb::handle up, nb::handle gate_bias, nb::handle up_bias,
                         nb::handle activation, nb::handle activations, nb::handle out, nb::handle num_threads) {
  const Call call("gemm_gated");
  const Array x(call, "a", a, Element::float32);
  require_axis(x);
  const Branch of_gate(call, "gate", gate, "gate_bias", gate_bias), of_up(call, "up", up, "up_bias", up_bias);
  if ((of_gate.weights.packed() != nullptr) != (of_up.weights.packed() != nullptr))
    call.fail_as_type("of gate and up one is a PackedMatrix; pass both packed, or both as arrays");
  const DType type = activations_named(call, activations);
  std::vector<Index> shape = x.shape();
  shape.back() = of_gate.weights.columns();
  for (const Branch* branch : {&of_gate, &of_up}) {
    require_fitting(x, branch->weights);
    require_stored_for(call, type, branch->weights.name(), branch->weights.packed());
    call.require(branch->weights.columns() == shape.back(), "gate has ", shape.back(), " columns, up has ",
                 branch->weights.columns());
    if (branch->bias) require_bias(*branch->bias, shape);
  }
  const Result result(call, x.like(), out, shape);
  result.require_apart(
      {&x, of_gate.weights.array(), of_up.weights.array(), pointer_to(of_gate.bias), pointer_to(of_up.bias)});
  const GemmGatedOptions options{.activation = activation_named(call, activation),
                                 .gate_bias = of_gate.bias_view(),
                                 .up_bias = of_up.bias_view(),
                                 .activations = type,
                                 .num_threads = call.threads(num_threads)};
  call.compute([&] { multiply(x, of_gate.weights, of_up.weights, result.array(), options); });
  return result.object();
}

}  // namespace headlane::python
