// gemm_gated: the entry. Block by block, the product with `up` is computed into scratch memory;
// then the product with `gate` is computed and multiplied by it in its epilogue.
#include "core/call_scope.hpp"
#include "core/dispatch.hpp"
#include "core/parallel.hpp"
#include "core/scratch.hpp"
#include "gemm/check.hpp"

#include <headlane/gemm_gated.hpp>

#include <algorithm>

namespace headlane {

using namespace internal;

namespace {

/// Sizes of a block, which both products compute one after the other: columns of both packed
/// weights (512 KiB with 512 rows), rows of a (384 KiB) and the intermediate product (96 KiB) share
/// an L2.
constexpr Index block_rows = 192, block_columns = 128;

void compute_block(const Product& gate, const Product& up, const Region& block, const kernels::KernelTable& kernel) {
  float* factor = scratch(Purpose::factor, block.rows * block.columns);
  Product factors = restricted(up, block);
  factors.c = {factor, {block.rows, block.columns}};
  compute(factors, kernel);
  Product result = restricted(gate, block);
  result.epilogue.factor = factor;
  result.epilogue.factor_row_step = block.columns;
  compute(result, kernel);
}

void compute_region(const Product& gate, const Product& up, const Region& region, const kernels::KernelTable& kernel) {
  for (Index column = 0; column < region.columns; column += block_columns)
    for (Index row = 0; row < region.rows; row += block_rows)
      compute_block(gate, up,
                    {region.row + row, std::min(block_rows, region.rows - row), region.column + column,
                     std::min(block_columns, region.columns - column)},
                    kernel);
}

/// One of the two right operands, packed or not, with its bias and the names of both for messages.
struct Branch {
  const char* name;
  View<const float, 2> weights;
  const PackedMatrix* packed;
  const char* bias_name;
  const View<const float, 1>& bias;
};

void gated_checked(const View<const float, 2>& a, const Branch& gate, const Branch& up, const View<float, 2>& c,
                   const GemmGatedOptions& options) {
  const CallScope scope;
  constexpr Caller caller("gemm_gated");
  const Operand of_a = caller.operand("a", a), of_c = caller.operand("c", c);
  const View<const float, 2> no_view;
  const Operand no_residual = caller.operand("residual", no_view);
  for (const Branch* w : {&gate, &up}) {
    const Operand of_w = caller.operand(w->name, w->weights);
    check_product(of_a, of_w, w->packed != nullptr, of_c);
    check_activations(of_w, w->packed, options.activations);
    check_epilogue(of_c, caller.operand(w->bias_name, w->bias), options.activation, no_residual);
  }
  check_threads(caller, options.num_threads);
  const kernels::KernelTable& kernel = active();
  const Index m = c.shape[0], n = c.shape[1];
  if (m == 0 || n == 0) return;
  const auto product = [&](const Branch& w, Activation activation) {
    Product p{.a = with_safe_strides(a),
              .b = with_safe_strides(w.weights),
              .packed = {},
              .c = c,
              .alpha = 1,
              .beta = 0,
              .activations = options.activations,
              .epilogue = {}};
    if (w.packed != nullptr) p.packed = packed_columns(*w.packed);
    p.epilogue.bias = w.bias.data;
    p.epilogue.bias_step = w.bias.strides[0];
    p.epilogue.activation = activation;
    return p;
  };
  const Product of_gate = product(gate, options.activation), of_up = product(up, Activation::none);
  const Work work = work_of(m, n, a.shape[1]);
  const int threads = useful_threads(2 * work.operations, 2 * work.elements, options.num_threads);
  const Partition partition(m, n, a.shape[1], 1, 1, threads);
  parallel_for(partition.count(), threads,
               [&](Index i) { compute_region(of_gate, of_up, partition.region(i), kernel); });
}

}  // namespace

void gemm_gated(View<const float, 2> a, View<const float, 2> gate, View<const float, 2> up, View<float, 2> c,
                const GemmGatedOptions& options) {
  gated_checked(a, {"gate", gate, nullptr, "gate_bias", options.gate_bias},
                {"up", up, nullptr, "up_bias", options.up_bias}, c, options);
}

void gemm_gated(View<const float, 2> a, const PackedMatrix& gate, const PackedMatrix& up, View<float, 2> c,
                const GemmGatedOptions& options) {
  gated_checked(a, {"gate", shape_of(gate), &gate, "gate_bias", options.gate_bias},
                {"up", shape_of(up), &up, "up_bias", options.up_bias}, c, options);
}

}  // namespace headlane
