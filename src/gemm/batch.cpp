// gemm_batch of tensors: the entries. A batch with one right operand is a single product, if
// strides allow.
#include "core/call_scope.hpp"
#include "core/dispatch.hpp"
#include "core/parallel.hpp"
#include "core/view_rows.hpp"
#include "gemm/check.hpp"
#include "gemm/half.hpp"

#include <headlane/gemm_batch.hpp>

#include <cstdint>
#include <utility>

namespace headlane {

using namespace internal;

namespace {

constexpr Caller caller("gemm_batch");

/// True if a batch with one right operand and one bias is a single product of all its rows, which
/// it then returns.
bool as_one_product(const View<const float, 3>& a, bool one_b, const View<float, 3>& c, const GemmBatchOptions& options,
                    View<const float, 2>& stacked_a, View<float, 2>& stacked_c,
                    View<const float, 2>& stacked_residual) {
  const bool one_bias = !options.bias || options.bias.shape[0] == 1 || options.bias.strides[0] == 0;
  return one_b && one_bias && all_rows(a, stacked_a) && all_rows(c, stacked_c) &&
         (!options.residual || all_rows(options.residual.of<float>(), stacked_residual));
}

template <class T>
void check_batch(const View<const T, 3>& a, const View<const T, 3>& b, const PackedMatrix* packed, const View<T, 3>& c,
                 const GemmBatchOptions& options) {
  const Operand of_a = caller.operand("a", a), of_b = caller.operand("b", b), of_c = caller.operand("c", c);
  const Operand bias = caller.operand("bias", options.bias), residual = caller.operand("residual", options.residual);
  check_gemm_by(of_a, of_b, packed, of_c, bias, residual, options.activation, options.activations);
  check_same(of_c, 0, "products", of_a, 0, "products");
  if (packed == nullptr) check_same(of_c, 0, "products", of_b, 0, "products");
  if (bias) check_same(bias, 0, "products", of_c, 0, "products");
  if (residual) check_same(residual, 0, "products", of_c, 0, "products");
  check_threads(caller, options.num_threads);
}

/// The products of a batch that is checked and not empty, whose residuals are of float32.
Batch batch_of(const View<const float, 3>& a, const View<const float, 3>& b, const PackedMatrix* packed,
               const View<float, 3>& c, const GemmBatchOptions& options) {
  GemmOptions each{.alpha = options.alpha,
                   .beta = options.beta,
                   .activation = options.activation,
                   .activations = options.activations};
  if (options.bias) each.bias = options.bias.select(0, 0);
  const View<const float, 2> first_b = b.select(0, 0);
  const bool one_b = b.shape[0] == 1 || b.strides[0] == 0;
  View<const float, 2> stacked_a, residual;
  View<float, 2> stacked_c;
  const bool is_one = as_one_product(a, one_b, c, options, stacked_a, stacked_c, residual);
  if (!is_one && options.residual) residual = options.residual.of<float>().select(0, 0);
  each.residual = residual;
  if (is_one) return {.first = product_of(stacked_a, first_b, packed, stacked_c, each)};
  const View<float, 2> first_c = c.select(0, 0);
  Batch batch{.first = product_of(a.select(0, 0), first_b, packed, first_c, each),
              .count = c.shape[0],
              .a_step = a.strides[0],
              .b_step = b.strides[0],
              .c_step = c.strides[0],
              .bias_step = options.bias.strides[0],
              .residual_step = options.residual.strides[0]};
  if (is_transposed(first_c, packed, each)) std::swap(batch.a_step, batch.b_step);
  return batch;
}

/// Checks and computes a batch. If b is packed, given_b is its shape, broadcast along the batch.
void run_batch(const View<const float, 3>& given_a, const View<const float, 3>& given_b, const PackedMatrix* packed,
               const View<float, 3>& c, const GemmBatchOptions& options) {
  const CallScope scope;
  const View<const float, 3> a = with_safe_strides(given_a), b = with_safe_strides(given_b);
  check_batch(a, b, packed, c, options);
  const kernels::KernelTable& kernel = active();
  if (is_empty(c)) return;
  if (is_half(options.residual))
    return run_batch(given_a, given_b, packed, c, with_wide(options, &GemmBatchOptions::residual));
  const Batch batch = batch_of(a, b, packed, c, options);
  const Work work = work_of(c.shape[1], c.shape[2], a.shape[2]);
  const auto products = static_cast<double>(c.shape[0]);
  run_gemm({&batch, 1}, kernel,
           useful_threads(products * work.operations, products * work.elements, options.num_threads));
}

/// The same for operands of 16 bits, by way of copies.
void run_halves(const View<const std::uint16_t, 3>& given_a, const View<const std::uint16_t, 3>& given_b,
                const PackedMatrix* packed, const View<std::uint16_t, 3>& c, DType type,
                const GemmBatchOptions& options) {
  const CallScope scope;
  const View<const std::uint16_t, 3> a = with_safe_strides(given_a), b = with_safe_strides(given_b);
  check_batch(a, b, packed, c, options);
  const kernels::KernelTable& kernel = active();
  if (is_empty(c)) return;
  HalfCopies copies(kernel, options.num_threads);
  copies.reserve(AnyView<const std::uint16_t>(a));
  if (packed == nullptr) copies.reserve(AnyView<const std::uint16_t>(b));
  copies.reserve(AnyView<const std::uint16_t>(c));
  copies.allocate();
  const bool reads_product = options.alpha != 0;
  const View<const float, 3> wide_a = copy_of(copies, a, type, reads_product);
  const View<float, 3> wide_c = copy_of(copies, c, type, options.beta != 0);
  if (packed != nullptr) gemm_batch(wide_a, *packed, wide_c, options);
  else gemm_batch(wide_a, copy_of(copies, b, type, reads_product), wide_c, options);
  copies.round(AnyView<const float>(wide_c), {AnyView<std::uint16_t>(c), type});
}

}  // namespace

void gemm_batch(View<const float, 3> a, View<const float, 3> b, View<float, 3> c, const GemmBatchOptions& options) {
  run_batch(a, b, nullptr, c, options);
}

void gemm_batch(View<const float, 3> a, const PackedMatrix& b, View<float, 3> c, const GemmBatchOptions& options) {
  run_batch(a, shape_of(b).broadcast(0, c.shape[0]), &b, c, options);
}

void gemm_batch(View<const bfloat16, 3> a, View<const bfloat16, 3> b, View<bfloat16, 3> c,
                const GemmBatchOptions& options) {
  run_halves(bits_of(a), bits_of(b), nullptr, bits_of(c), DType::bfloat16, options);
}
void gemm_batch(View<const float16, 3> a, View<const float16, 3> b, View<float16, 3> c,
                const GemmBatchOptions& options) {
  run_halves(bits_of(a), bits_of(b), nullptr, bits_of(c), DType::float16, options);
}
void gemm_batch(View<const bfloat16, 3> a, const PackedMatrix& b, View<bfloat16, 3> c,
                const GemmBatchOptions& options) {
  run_halves(bits_of(a), {}, &b, bits_of(c), DType::bfloat16, options);
}
void gemm_batch(View<const float16, 3> a, const PackedMatrix& b, View<float16, 3> c, const GemmBatchOptions& options) {
  run_halves(bits_of(a), {}, &b, bits_of(c), DType::float16, options);
}

}  // namespace headlane
