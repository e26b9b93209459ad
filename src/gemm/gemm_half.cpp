// gemm of bfloat16 and float16: products of float32 copies, whose results are rounded.
#include "core/call_scope.hpp"
#include "core/dispatch.hpp"
#include "gemm/check.hpp"
#include "gemm/half.hpp"

#include <headlane/gemm.hpp>

namespace headlane {

using namespace internal;

namespace {

/// The operands: b of 16 bits, or packed.
struct Halves {
  View<const std::uint16_t, 2> a, b;
  const PackedMatrix* packed;
  View<std::uint16_t, 2> c;
  DType type;
};

void run(Halves x, const GemmOptions& options) {
  const CallScope scope;
  constexpr Caller caller("gemm");
  check_gemm_by(caller.operand("a", x.a), caller.operand("b", x.b), x.packed, caller.operand("c", x.c),
                caller.operand("bias", options.bias), caller.operand("residual", options.residual), options.activation,
                options.activations);
  check_threads(caller, options.num_threads);
  const kernels::KernelTable& kernel = active();
  if (is_empty(x.c)) return;
  x.b = with_safe_strides(x.b);
  const bool reads_product = options.alpha != 0;
  const HalfBlocks blocks{with_safe_strides(x.a), x.c, x.type, reads_product, options.beta != 0};
  HalfCopies copies(kernel, options.num_threads);
  if (x.packed == nullptr) copies.reserve(x.b);
  blocks.reserve(copies);
  copies.allocate();
  const View<const float, 2> b = x.packed == nullptr ? copy_of(copies, x.b, x.type, reads_product) : View<float, 2>();
  blocks.for_each(copies, [&](const View<const float, 2>& a, const View<float, 2>& c, Index first) {
    GemmOptions part = options;
    if (options.residual) part.residual = options.residual.slice(0, first, first + c.shape[0]);
    x.packed == nullptr ? gemm(a, b, c, part) : gemm(a, *x.packed, c, part);
  });
}

template <class T>
Halves halves(const View<const T, 2>& a, const View<const T, 2>& b, const PackedMatrix* packed, const View<T, 2>& c) {
  return {bits_of(a), bits_of(b), packed, bits_of(c), type_of<T>};
}

}  // namespace

void gemm(View<const bfloat16, 2> a, View<const bfloat16, 2> b, View<bfloat16, 2> c, const GemmOptions& options) {
  run(halves(a, b, nullptr, c), options);
}
void gemm(View<const float16, 2> a, View<const float16, 2> b, View<float16, 2> c, const GemmOptions& options) {
  run(halves(a, b, nullptr, c), options);
}

void gemm(View<const bfloat16, 2> a, const PackedMatrix& b, View<bfloat16, 2> c, const GemmOptions& options) {
  run(halves(a, {}, &b, c), options);
}
void gemm(View<const float16, 2> a, const PackedMatrix& b, View<float16, 2> c, const GemmOptions& options) {
  run(halves(a, {}, &b, c), options);
}

}  // namespace headlane
