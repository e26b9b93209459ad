// linear, and matmul with a PackedMatrix. All axes but the last are rows, of one call of the
// library as far as strides allow.
#include "core/axes.hpp"
#include "core/dtype.hpp"
#include "core/functions.hpp"
#include "gemm/products.hpp"

namespace headlane::python {
namespace {

void multiply(const Array& x, const Right& right, const Array& out, const Epilogue& epilogue, DType activations,
              int num_threads) {
  const Array* residual = epilogue.residual();
  CommonAxes<3> axes;
  for (int i = 0; i < x.rank() - 1; ++i)
    axes.add(x.size(i), {x.stride(i), out.stride(i), residual != nullptr ? residual->stride(i) : 0});
  const auto rows = axes.take_longest(), batch = axes.take_longest();
  const auto view = [&](const Array& array, std::size_t i, Index offset) {
    return View<float, 3>(array.data<float>() + offset, {batch.size, rows.size, array.size(-1)},
                          {batch.strides[i], rows.strides[i], array.stride(-1)});
  };
  const GemmOptions each = epilogue.options();
  GemmBatchOptions options{.bias = each.bias.broadcast(0, batch.size),
                           .activation = each.activation,
                           .activations = activations,
                           .num_threads = num_threads};
  axes.for_each([&](const auto& offsets) {
    if (residual != nullptr) {
      options.residual = typed(View<const float, 3>(view(*residual, 2, 0)), *residual);
      options.residual.data = residual->data<char>() + offsets[2] * size_of(residual->type());
    }
    right.multiply(view(x, 0, offsets[0]), view(out, 1, offsets[1]), options);
  });
}

}  // namespace

nb::object rows_times(const Call& call, const char* left, nb::handle a, const char* right, nb::handle b, nb::handle out,
                      const EpilogueArguments& given, nb::handle activations, nb::handle num_threads) {
  const Array x(call, left, a, Element::float32);
  require_axis(x);
  const Right weights(call, right, b);
  require_fitting(x, weights);
  const DType type = activations_named(call, activations);
  require_stored_for(call, type, weights.name(), weights.packed());
  const Epilogue epilogue(call, given);
  std::vector<Index> shape = x.shape();
  shape.back() = weights.columns();
  epilogue.check(shape);
  const Result result(call, x.like(), out, shape);
  result.require_apart({&x, weights.array(), epilogue.bias(), epilogue.residual()});
  const int threads = call.threads(num_threads);
  call.compute([&] { multiply(x, weights, result.array(), epilogue, type, threads); });
  return result.object();
}

nb::object linear(nb::handle x, nb::handle packed, nb::handle bias, nb::handle activation, nb::handle residual,
                  nb::handle out, nb::handle activations, nb::handle num_threads) {
  return rows_times(Call("linear"), "x", x, "packed", packed, out, {bias, residual, activation}, activations,
                    num_threads);
}

}  // namespace headlane::python
