// gemm of bfloat16 and float16: products of float32 copies, whose results are rounded. Some rows at
// a time, so that their copies stay in the caches.
#include "core/call_scope.hpp"
#include "core/convert.hpp"
#include "core/dispatch.hpp"
#include "gemm/check.hpp"

#include <headlane/gemm.hpp>

#include <algorithm>

namespace headlane {

using namespace internal;

namespace {

constexpr Caller caller("gemm");
/// Elements of the copies of a and c: 8 MiB.
constexpr Index max_elements = Index{1} << 21;
/// Fewer rows would not be worth packing b, which is done for each block of rows.
constexpr Index min_rows = 256;

/// The operands: b of 16 bits, or packed.
struct Halves {
  View<const std::uint16_t, 2> a, b;
  const PackedMatrix* packed;
  View<std::uint16_t, 2> c;
  DType type;
};

void check(const Halves& x, const GemmOptions& options) {
  const Operand of_c = caller.operand("c", x.c);
  const View<const float, 2> packed = x.packed != nullptr ? shape_of(*x.packed) : View<const float, 2>();
  const Operand of_b = x.packed != nullptr ? caller.operand("b", packed) : caller.operand("b", x.b);
  check_product(caller.operand("a", x.a), of_b, x.packed != nullptr, of_c);
  check_activations(of_b, x.packed, options.activations);
  check_epilogue(of_c, caller.operand("bias", options.bias), options.activation,
                 caller.operand("residual", options.residual));
  check_threads(caller, options.num_threads);
}

/// A copy, or only its memory if it is not read.
template <int Rank, class Bits>
View<float, Rank> copy_of(HalfCopies& copies, const View<Bits, Rank>& x, DType type, bool is_read) {
  const AnyView<const std::uint16_t> any(x);
  return as_view<Rank>(is_read ? copies.add({any, type}) : copies.room(any));
}

void run(Halves x, const GemmOptions& options) {
  const CallScope scope;
  check(x, options);
  const kernels::KernelTable& kernel = active();
  if (is_empty(x.c)) return;
  x.a = with_safe_strides(x.a);
  x.b = with_safe_strides(x.b);
  const Index m = x.c.shape[0], fit = max_elements / (x.a.shape[1] + x.c.shape[1]),
              rows = std::min(m, std::max(fit, min_rows));
  const bool reads_product = options.alpha != 0;
  HalfCopies copies(kernel, options.num_threads);
  if (x.packed == nullptr) copies.reserve(AnyView<const std::uint16_t>(x.b));
  copies.reserve(AnyView<const std::uint16_t>(x.a.slice(0, 0, rows)));
  copies.reserve(AnyView<const std::uint16_t>(x.c.slice(0, 0, rows)));
  copies.allocate();
  const View<const float, 2> b =
      x.packed == nullptr ? copy_of<2>(copies, x.b, x.type, reads_product) : View<float, 2>();
  for (Index first = 0; first < m; first += rows) {
    const Index end = std::min(first + rows, m);
    HalfCopies block = copies;
    const View<std::uint16_t, 2> to = x.c.slice(0, first, end);
    const View<const float, 2> a = copy_of<2>(block, x.a.slice(0, first, end), x.type, reads_product);
    const View<float, 2> c = copy_of<2>(block, to, x.type, options.beta != 0);
    GemmOptions part = options;
    if (options.residual) part.residual = options.residual.slice(0, first, end);
    x.packed == nullptr ? gemm(a, b, c, part) : gemm(a, *x.packed, c, part);
    block.round(c, {to, x.type});
  }
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
