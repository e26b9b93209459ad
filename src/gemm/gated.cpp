// gemm_gated: checks, and how its two products share the work. Part by part, the second product waits in scratch memory until the first
// one ends with it as a factor.
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

/// Of a block that both products compute one after the other: columns of both packed weights (512 KiB with 512 rows), rows of a (384 KiB)
/// and of the waiting product (96 KiB) share an L2.
constexpr Index block_rows = 192, block_columns = 128;

void compute_block(const Product& gate, const Product& up, const Part& block, const kernels::KernelTable& kernel) {
  float* factor = scratch(Purpose::factor, block.rows * block.columns);
  Product waiting = cut(up, block);
  waiting.c = {factor, {block.rows, block.columns}};
  compute(waiting, kernel);
  Product result = cut(gate, block);
  result.finish.factor = factor;
  result.finish.factor_row_step = block.columns;
  compute(result, kernel);
}

void compute_part(const Product& gate, const Product& up, const Part& part, const kernels::KernelTable& kernel) {
  for (Index column = 0; column < part.columns; column += block_columns)
    for (Index row = 0; row < part.rows; row += block_rows)
      compute_block(gate, up,
                    {part.row + row, std::min(block_rows, part.rows - row), part.column + column,
                     std::min(block_columns, part.columns - column)},
                    kernel);
}

/// The weights, packed or not, and what the messages call them.
struct Weights {
  const char* name;
  View<const float, 2> view;
  const PackedMatrix* packed;
  const char* bias_name;
  const View<const float, 1>& bias;
};

void gated_checked(const View<const float, 2>& a, const Weights& gate, const Weights& up, const View<float, 2>& c,
                   const GemmGatedOptions& options) {
  const CallScope scope;
  constexpr Caller caller("gemm_gated");
  const Operand of_a = caller.operand("a", a), of_c = caller.operand("c", c);
  const View<const float, 2> no_view;
  const Operand no_residual = caller.operand("residual", no_view);
  for (const Weights* w : {&gate, &up}) {
    check_product(of_a, caller.operand(w->name, w->view), w->packed != nullptr, of_c);
    check_finish(of_c, caller.operand(w->bias_name, w->bias), options.activation, no_residual);
  }
  check_threads(caller, options.num_threads);
  const kernels::KernelTable& kernel = active();
  const Index m = c.shape[0], n = c.shape[1];
  if (m == 0 || n == 0) return;
  const auto product = [&](const Weights& w, Activation activation) {
    Product p{.a = with_safe_strides(a),
              .b = with_safe_strides(w.view),
              .packed = {},
              .c = c,
              .alpha = 1,
              .beta = 0,
              .finish = {}};
    if (w.packed != nullptr) p.packed = packed_columns(*w.packed);
    p.finish.bias = w.bias.data;
    p.finish.bias_step = w.bias.strides[0];
    p.finish.activation = activation;
    return p;
  };
  const Product of_gate = product(gate, options.activation), of_up = product(up, Activation::none);
  const Work work = work_of(m, n, a.shape[1]);
  const int threads = useful_threads(2 * work.operations, 2 * work.elements, options.num_threads);
  const Grid grid(m, n, a.shape[1], 1, 1, threads);
  parallel_for(grid.parts(), threads, [&](Index i) { compute_part(of_gate, of_up, grid.part(i), kernel); });
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
