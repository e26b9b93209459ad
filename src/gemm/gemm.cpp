// gemm: the entry. Checks are in check.cpp, the partition into tasks in partition.cpp, a task in
// block_loop.cpp.
#include <headlane/gemm.hpp>

#include "core/call_scope.hpp"
#include "core/convert.hpp"
#include "core/dispatch.hpp"
#include "core/parallel.hpp"
#include "gemm/block_sizes.hpp"
#include "gemm/check.hpp"

#include <algorithm>

namespace headlane {
namespace internal {
namespace {

void run(const Batch& batch, int num_threads) {
  const kernels::KernelTable& kernel = active();
  const Product& product = batch.first;
  const Index m = product.c.shape[0], n = product.c.shape[1];
  if (m == 0 || n == 0) return;
  const Work work = work_of(m, n, product.a.shape[1]);
  run_gemm({&batch, 1}, kernel, useful_threads(work.operations, work.elements, num_threads));
}

/// True if x has 1 … limit rows and columns, rows of adjacent elements that follow one another, and
/// data.
template <class T>
bool is_plain(const View<T, 2>& x, Index limit) {
  constexpr Index max_stride = Index{1} << 40;
  return x.shape[0] >= 1 && x.shape[0] <= limit && x.shape[1] >= 1 && x.shape[1] <= limit && x.strides[1] == 1 &&
         x.strides[0] >= x.shape[1] && x.strides[0] <= max_stride && x.data != nullptr &&
         (reinterpret_cast<std::uintptr_t>(x.data) & (sizeof(T) - 1)) == 0;
}

/// True if no element of either lies between the first and the last one of the other. Both are
/// plain.
bool are_apart(const View<float, 2>& x, const View<const float, 2>& y) {
  const auto address = [](const float* p) { return reinterpret_cast<std::uintptr_t>(p); };
  const auto size = [](const auto& view) {
    return static_cast<std::uintptr_t>((view.shape[0] - 1) * view.strides[0] + view.shape[1]) * sizeof(float);
  };
  return address(x.data) + size(x) <= address(y.data) || address(y.data) + size(y) <= address(x.data);
}

/// Computes a small product of plain operands in one block of the kernel, and returns true;
/// otherwise does nothing. It tests that the checks, the partition and the loops over blocks would
/// find nothing to do, in a quarter of their time (Zen 4: 4 × 16 × 1 in 0.05 instead of 0.23 µs).
bool gemm_small(const View<const float, 2>& a, const View<const float, 2>& b, const View<float, 2>& c,
                const GemmOptions& o) {
  // Rows that are packed, as in block_loop.cpp and right_operand.cpp, are left to these.
  constexpr Index limit = 128, max_floats_of_b = 32768;
  const bool is_default = o.alpha == 1.0f && o.beta == 0.0f && !o.bias && !o.residual &&
                          o.activation == Activation::none && o.activations == DType::float32 && o.num_threads >= 0;
  if (!is_default || !is_plain(a, limit) || !is_plain(b, limit) || !is_plain(c, limit)) return false;
  const Index m = c.shape[0], n = c.shape[1], k = a.shape[1];
  if (a.shape[0] != m || b.shape[0] != k || b.shape[1] != n || !are_apart(c, a) || !are_apart(c, b)) return false;
  if (are_in_one_set(a.strides[0]) || k * b.strides[0] > max_floats_of_b) return false;
  // Few columns of many rows are transposed, in block_loop.cpp: 32, 64 and 128 × 1 by
  // 64 take 0.76, 0.58 and 0.46 of the time, 64 and 128 × 2 by 64 0.86 and 0.67, 128 × 3 by 64 0.79
  // (Emerald Rapids, AVX-512).
  const kernels::KernelTable& kernel = active();
  if (n <= std::min(max_transposed_columns, kernel.rows_by_columns) && m >= min_transposed_rows * n) return false;
  const Work work = work_of(m, n, k);
  if (useful_threads(work.operations, work.elements, o.num_threads) > 1) return false;
  kernels::GemmBlock block{};
  block.m = m;
  block.n = n;
  block.k = k;
  block.a = a.data;
  block.a_row_step = a.strides[0];
  block.b = b.data;
  block.b_row_step = b.strides[0];
  block.b_panel_step = kernels::panel_columns;
  block.c = c.data;
  block.c_row_step = c.strides[0];
  block.alpha = 1;
  kernel.gemm_block(block);
  return true;
}

}  // namespace

void gemm_in_scope(const View<const float, 2>& a, const View<const float, 2>& b, const PackedMatrix* packed,
                   const View<float, 2>& c, const GemmOptions& options) {
  if (packed == nullptr && gemm_small(a, b, c, options)) return;
  constexpr Caller caller("gemm");
  check_gemm(caller.operand("a", a), caller.operand("b", b), packed, caller.operand("c", c),
             caller.operand("bias", options.bias), caller.operand("residual", options.residual), options.activation,
             options.activations);
  check_threads(caller, options.num_threads);
  if (is_half(options.residual)) return gemm_in_scope(a, b, packed, c, with_wide(options, &GemmOptions::residual));
  run({.first = product_of(a, b, packed, c, options)}, options.num_threads);
}

void multiply(const View<const float, 2>& a, const PackedMatrix& b, Index first, const View<float, 2>& c,
              const GemmOptions& options) {
  Batch batch{.first = product_of(a, {shape_of(b).data, {b.rows(), c.shape[1]}}, &b, c, options)};
  batch.first.packed.column = first;
  run(batch, options.num_threads);
}

}  // namespace internal

using namespace internal;

void gemm(View<const float, 2> a, View<const float, 2> b, View<float, 2> c, const GemmOptions& options) {
  const CallScope scope;
  gemm_in_scope(a, b, nullptr, c, options);
}

void gemm(View<const float, 2> a, const PackedMatrix& b, View<float, 2> c, const GemmOptions& options) {
  const CallScope scope;
  gemm_in_scope(a, shape_of(b), &b, c, options);
}

}  // namespace headlane
