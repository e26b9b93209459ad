// convert: checks, the walk over views of any strides, and the parallel loop. The conversions are
// in kernels/simd/half.hpp.
#include "core/convert.hpp"

#include "core/call_scope.hpp"
#include "core/dispatch.hpp"
#include "core/parallel.hpp"
#include "core/walk.hpp"

#include <headlane/convert.hpp>

namespace headlane {
namespace internal {
namespace {

/// Elements of a task's smallest part.
constexpr Index piece = 4096;

/// convert(from, to, n) for n elements, some steps apart: by way of copies if need be, which stay
/// on the stack.
template <class From, class To, class F>
void with_contiguous(const From* from, Index from_step, To* to, Index to_step, Index n, const F& convert) {
  if (from_step == 1 && to_step == 1) return convert(from, to, n);
  constexpr Index some = 256;
  From in[some];
  To out[some];
  for (Index first = 0; first < n; first += some) {
    const Index count = std::min(some, n - first);
    const From* x = from + first * from_step;
    To* y = to + first * to_step;
    if (from_step != 1)
      for (Index i = 0; i < count; ++i) in[i] = x[i * from_step];
    convert(from_step == 1 ? x : in, to_step == 1 ? y : out, count);
    if (to_step != 1)
      for (Index i = 0; i < count; ++i) y[i * to_step] = out[i];
  }
}

template <class From, class To, class F>
void walk_all(const AnyView<const From>& from, const AnyView<To>& to, int threads, const F& convert) {
  const Walk<From, To> walk(from, to);
  parallel_parts(walk.units(piece), 1, threads, [&](Index begin, Index end) {
    walk.for_units(piece, begin, end, [&](const From* x, To* y, Index n) {
      with_contiguous(x, walk.x_step(), y, walk.y_step(), n, convert);
    });
  });
}

/// Checks the arguments and converts.
template <class From, class To>
void run(const From& from, const To& to, const ConvertOptions& options) {
  const CallScope scope;
  constexpr Caller caller("convert");
  check_elementwise(caller.operand("from", from), caller.operand("to", to));
  check_threads(caller, options.num_threads);
  const kernels::KernelTable& kernel = active();
  if (is_empty(to)) return;
  const auto elements = static_cast<double>(number_of_elements(to));
  convert_all(kernel, from, to, useful_threads(0, elements, options.num_threads));
}

}  // namespace

void convert_all(const kernels::KernelTable& kernel, const HalfInput& from, const AnyView<float>& to, int threads) {
  walk_all<std::uint16_t, float>(from, to, threads,
                                 [&](const std::uint16_t* x, float* y, Index n) { kernel.widen(x, from.type, y, n); });
}

void convert_all(const kernels::KernelTable& kernel, const AnyView<const float>& from, const HalfOutput& to,
                 int threads) {
  walk_all<float, std::uint16_t>(from, to, threads,
                                 [&](const float* x, std::uint16_t* y, Index n) { kernel.round(x, y, to.type, n); });
}

}  // namespace internal

using namespace internal;

void convert(AnyView<const bfloat16> from, AnyView<float> to, const ConvertOptions& options) {
  run(HalfInput(from), to, options);
}
void convert(AnyView<const float16> from, AnyView<float> to, const ConvertOptions& options) {
  run(HalfInput(from), to, options);
}
void convert(AnyView<const float> from, AnyView<bfloat16> to, const ConvertOptions& options) {
  run(from, HalfOutput(to), options);
}
void convert(AnyView<const float> from, AnyView<float16> to, const ConvertOptions& options) {
  run(from, HalfOutput(to), options);
}

}  // namespace headlane
