// gemm: the entry. Checks are in check.cpp, the partition into tasks in partition.cpp, a task in
// block_loop.cpp.
#include <headlane/gemm.hpp>

#include "core/call_scope.hpp"
#include "core/convert.hpp"
#include "core/dispatch.hpp"
#include "core/parallel.hpp"
#include "gemm/check.hpp"

namespace headlane {
namespace internal {
namespace {

void run(const Batch& batch, int num_threads) {
  const CallScope scope;
  const kernels::KernelTable& kernel = active();
  const Product& product = batch.first;
  const Index m = product.c.shape[0], n = product.c.shape[1];
  if (m == 0 || n == 0) return;
  const Work work = work_of(m, n, product.a.shape[1]);
  run_gemm({&batch, 1}, kernel, useful_threads(work.operations, work.elements, num_threads));
}

void gemm_checked(const View<const float, 2>& a, const View<const float, 2>& b, const PackedMatrix* packed,
                  const View<float, 2>& c, const GemmOptions& options) {
  constexpr Caller caller("gemm");
  const Operand of_c = caller.operand("c", c);
  const Operand of_b = caller.operand("b", b);
  check_product(caller.operand("a", a), of_b, packed != nullptr, of_c);
  check_activations(of_b, packed, options.activations);
  check_epilogue(of_c, caller.operand("bias", options.bias), options.activation,
                 caller.operand("residual", options.residual));
  check_threads(caller, options.num_threads);
  if (is_half(options.residual)) {
    const CallScope scope;
    return gemm_checked(a, b, packed, c, with_wide(options, &GemmOptions::residual));
  }
  run({.first = product_of(a, b, packed, c, options)}, options.num_threads);
}

}  // namespace

void multiply(const View<const float, 2>& a, const PackedMatrix& b, Index first, const View<float, 2>& c,
              const GemmOptions& options) {
  Batch batch{.first = product_of(a, {shape_of(b).data, {b.rows(), c.shape[1]}}, &b, c, options)};
  batch.first.packed.column = first;
  run(batch, options.num_threads);
}

}  // namespace internal

using namespace internal;

void gemm(View<const float, 2> a, View<const float, 2> b, View<float, 2> c, const GemmOptions& options) {
  gemm_checked(a, b, nullptr, c, options);
}

void gemm(View<const float, 2> a, const PackedMatrix& b, View<float, 2> c, const GemmOptions& options) {
  gemm_checked(a, shape_of(b), &b, c, options);
}

}  // namespace headlane
