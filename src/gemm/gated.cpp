// gemm_gated: the entry. Block by block, the product with `up` is computed into scratch memory;
// then the product with `gate` is computed and multiplied by it in its epilogue.
#include "core/call_scope.hpp"
#include "core/dispatch.hpp"
#include "core/parallel.hpp"
#include "core/scratch.hpp"
#include "gemm/check.hpp"
#include "gemm/half.hpp"

#include <headlane/gemm_gated.hpp>

#include <algorithm>
#include <cstdint>

namespace headlane {

using namespace internal;

namespace {

constexpr Caller caller("gemm_gated");

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

/// The same for messages.
struct BranchOperands {
  Operand weights;
  const PackedMatrix* packed;
  Operand bias;
};

BranchOperands operands_of(const Branch& branch) {
  return {caller.operand(branch.name, branch.weights), branch.packed, caller.operand(branch.bias_name, branch.bias)};
}

void check(const Operand& a, const BranchOperands& gate, const BranchOperands& up, const Operand& c,
           const GemmGatedOptions& options) {
  const View<const float, 2> no_view;
  const Operand no_residual = caller.operand("residual", no_view);
  for (const BranchOperands* w : {&gate, &up}) {
    check_product(a, w->weights, w->packed != nullptr, c);
    check_activations(w->weights, w->packed, options.activations);
    check_epilogue(c, w->bias, options.activation, no_residual);
  }
  check_threads(caller, options.num_threads);
}

void gated_checked(const View<const float, 2>& a, const Branch& gate, const Branch& up, const View<float, 2>& c,
                   const GemmGatedOptions& options) {
  const CallScope scope;
  check(caller.operand("a", a), operands_of(gate), operands_of(up), caller.operand("c", c), options);
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

/// The operands of 16 bits; gate and up may be packed instead.
struct HalfGated {
  View<const std::uint16_t, 2> a, gate, up;
  const PackedMatrix *packed_gate, *packed_up;
  View<std::uint16_t, 2> c;
  DType type;
};

void check(const HalfGated& x, const GemmGatedOptions& options) {
  const bool packed = x.packed_gate != nullptr;
  const View<const float, 2> gate = packed ? shape_of(*x.packed_gate) : View<const float, 2>(),
                             up = packed ? shape_of(*x.packed_up) : View<const float, 2>();
  check(caller.operand("a", x.a),
        {packed ? caller.operand("gate", gate) : caller.operand("gate", x.gate), x.packed_gate,
         caller.operand("gate_bias", options.gate_bias)},
        {packed ? caller.operand("up", up) : caller.operand("up", x.up), x.packed_up,
         caller.operand("up_bias", options.up_bias)},
        caller.operand("c", x.c), options);
}

void run_halves(HalfGated x, const GemmGatedOptions& options) {
  const CallScope scope;
  check(x, options);
  const kernels::KernelTable& kernel = active();
  if (is_empty(x.c)) return;
  x.gate = with_safe_strides(x.gate);
  x.up = with_safe_strides(x.up);
  const HalfBlocks blocks{with_safe_strides(x.a), x.c, x.type, true, false};
  const bool packed = x.packed_gate != nullptr;
  HalfCopies copies(kernel, options.num_threads);
  if (!packed) {
    copies.reserve(x.gate);
    copies.reserve(x.up);
  }
  blocks.reserve(copies);
  copies.allocate();
  View<const float, 2> gate, up;
  if (!packed) {
    gate = copy_of(copies, x.gate, x.type);
    up = copy_of(copies, x.up, x.type);
  }
  blocks.for_each(copies, [&](const View<const float, 2>& a, const View<float, 2>& c, Index) {
    packed ? gemm_gated(a, *x.packed_gate, *x.packed_up, c, options) : gemm_gated(a, gate, up, c, options);
  });
}

template <class T>
HalfGated halves(const View<const T, 2>& a, const View<const T, 2>& gate, const View<const T, 2>& up,
                 const View<T, 2>& c) {
  return {bits_of(a), bits_of(gate), bits_of(up), nullptr, nullptr, bits_of(c), type_of<T>};
}
template <class T>
HalfGated halves(const View<const T, 2>& a, const PackedMatrix& gate, const PackedMatrix& up, const View<T, 2>& c) {
  return {bits_of(a), {}, {}, &gate, &up, bits_of(c), type_of<T>};
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

void gemm_gated(View<const bfloat16, 2> a, View<const bfloat16, 2> gate, View<const bfloat16, 2> up,
                View<bfloat16, 2> c, const GemmGatedOptions& options) {
  run_halves(halves(a, gate, up, c), options);
}
void gemm_gated(View<const bfloat16, 2> a, const PackedMatrix& gate, const PackedMatrix& up, View<bfloat16, 2> c,
                const GemmGatedOptions& options) {
  run_halves(halves(a, gate, up, c), options);
}
void gemm_gated(View<const float16, 2> a, View<const float16, 2> gate, View<const float16, 2> up, View<float16, 2> c,
                const GemmGatedOptions& options) {
  run_halves(halves(a, gate, up, c), options);
}
void gemm_gated(View<const float16, 2> a, const PackedMatrix& gate, const PackedMatrix& up, View<float16, 2> c,
                const GemmGatedOptions& options) {
  run_halves(halves(a, gate, up, c), options);
}

}  // namespace headlane
