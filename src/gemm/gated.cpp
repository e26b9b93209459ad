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

/// The operands, of floats or bits of 16; gate and up may be packed instead.
template <class T>
struct Gated {
  View<const T, 2> a, gate, up;
  const PackedMatrix *packed_gate, *packed_up;
  View<T, 2> c;
};

template <class T>
void check(const Gated<T>& x, const GemmGatedOptions& options) {
  const auto check_branch = [&](const Operand& weights, const PackedMatrix* packed, const Operand& bias) {
    check_gemm_by(caller.operand("a", x.a), weights, packed, caller.operand("c", x.c), bias, {}, options.activation,
                  options.activations);
  };
  check_branch(caller.operand("gate", x.gate), x.packed_gate, caller.operand("gate_bias", options.gate_bias));
  check_branch(caller.operand("up", x.up), x.packed_up, caller.operand("up_bias", options.up_bias));
  check_threads(caller, options.num_threads);
}

void run(const Gated<float>& x, const GemmGatedOptions& options) {
  const CallScope scope;
  check(x, options);
  const kernels::KernelTable& kernel = active();
  const Index m = x.c.shape[0], n = x.c.shape[1], k = x.a.shape[1];
  if (m == 0 || n == 0) return;
  const auto product = [&](const View<const float, 2>& weights, const PackedMatrix* packed,
                           const View<const float, 1>& bias, Activation activation) {
    Product p{.a = with_safe_strides(x.a),
              .b = with_safe_strides(weights),
              .packed = packed != nullptr ? packed_columns(*packed) : PackedColumns(),
              .c = x.c,
              .alpha = 1,
              .beta = 0,
              .activations = options.activations,
              .epilogue = {}};
    p.epilogue.bias = bias.data;
    p.epilogue.bias_step = bias.strides[0];
    p.epilogue.activation = activation;
    return p;
  };
  const Product gate = product(x.gate, x.packed_gate, options.gate_bias, options.activation),
                up = product(x.up, x.packed_up, options.up_bias, Activation::none);
  const Work work = work_of(m, n, k);
  const int threads = useful_threads(2 * work.operations, 2 * work.elements, options.num_threads);
  const Partition partition(m, n, k, 1, 1, threads);
  parallel_for(partition.count(), threads, [&](Index i) { compute_region(gate, up, partition.region(i), kernel); });
}

void run_halves(Gated<std::uint16_t> x, DType type, const GemmGatedOptions& options) {
  const CallScope scope;
  check(x, options);
  const kernels::KernelTable& kernel = active();
  if (is_empty(x.c)) return;
  x.gate = with_safe_strides(x.gate);
  x.up = with_safe_strides(x.up);
  const HalfBlocks blocks{with_safe_strides(x.a), x.c, type, true, false};
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
    gate = copy_of(copies, x.gate, type);
    up = copy_of(copies, x.up, type);
  }
  blocks.for_each(copies, [&](const View<const float, 2>& a, const View<float, 2>& c, Index) {
    packed ? gemm_gated(a, *x.packed_gate, *x.packed_up, c, options) : gemm_gated(a, gate, up, c, options);
  });
}

template <class T>
void run_halves(const View<const T, 2>& a, const View<const T, 2>& gate, const View<const T, 2>& up,
                const View<T, 2>& c, const GemmGatedOptions& options) {
  run_halves({bits_of(a), bits_of(gate), bits_of(up), nullptr, nullptr, bits_of(c)}, type_of<T>, options);
}
template <class T>
void run_halves(const View<const T, 2>& a, const PackedMatrix& gate, const PackedMatrix& up, const View<T, 2>& c,
                const GemmGatedOptions& options) {
  run_halves({bits_of(a), {}, {}, &gate, &up, bits_of(c)}, type_of<T>, options);
}

}  // namespace

void gemm_gated(View<const float, 2> a, View<const float, 2> gate, View<const float, 2> up, View<float, 2> c,
                const GemmGatedOptions& options) {
  run({a, gate, up, nullptr, nullptr, c}, options);
}
void gemm_gated(View<const float, 2> a, const PackedMatrix& gate, const PackedMatrix& up, View<float, 2> c,
                const GemmGatedOptions& options) {
  run({a, shape_of(gate), shape_of(up), &gate, &up, c}, options);
}

void gemm_gated(View<const bfloat16, 2> a, View<const bfloat16, 2> gate, View<const bfloat16, 2> up,
                View<bfloat16, 2> c, const GemmGatedOptions& options) {
  run_halves(a, gate, up, c, options);
}
void gemm_gated(View<const bfloat16, 2> a, const PackedMatrix& gate, const PackedMatrix& up, View<bfloat16, 2> c,
                const GemmGatedOptions& options) {
  run_halves(a, gate, up, c, options);
}
void gemm_gated(View<const float16, 2> a, View<const float16, 2> gate, View<const float16, 2> up, View<float16, 2> c,
                const GemmGatedOptions& options) {
  run_halves(a, gate, up, c, options);
}
void gemm_gated(View<const float16, 2> a, const PackedMatrix& gate, const PackedMatrix& up, View<float16, 2> c,
                const GemmGatedOptions& options) {
  run_halves(a, gate, up, c, options);
}

}  // namespace headlane
