// activate: checks, the walk over views of any strides, and the parallel loop. The arithmetic is in
// kernels/simd/activation.hpp.
#include <headlane/activation.hpp>

#include "core/call_scope.hpp"
#include "core/check.hpp"
#include "core/dispatch.hpp"
#include "core/half_blocks.hpp"
#include "core/parallel.hpp"
#include "core/scratch.hpp"
#include "core/walk.hpp"
#include "kernels/table.hpp"

namespace headlane {

using namespace internal;

namespace {

constexpr Caller caller("activate");
/// Weighs the work against the cost of starting threads.
constexpr double operations_per_element = 40.0;
/// Elements that a kernel processes at once: 16 KiB, which stay in the L1 even by way of a copy.
constexpr Index piece = 4096;

/// n elements, x_step and y_step apart.
void activate_piece(const kernels::KernelTable& kernel, Activation activation, const float* x, Index x_step, float* y,
                    Index y_step, Index n) {
  if (x_step == 1 && y_step == 1) return kernel.activate(activation, x, y, n);
  float* copy = scratch(Purpose::block, piece);
  for (Index i = 0; i < n; ++i) copy[i] = x[i * x_step];
  kernel.activate(activation, copy, copy, n);
  for (Index i = 0; i < n; ++i) y[i * y_step] = copy[i];
}

void check(const Operand& x, const Operand& y, Activation activation, const ActivateOptions& options) {
  check_elementwise(x, y);
  x.caller.require(activation > Activation::none && activation <= Activation::erf, "activation is ",
                   static_cast<Index>(activation), ", which is none of relu … erf");
  check_threads(x.caller, options.num_threads);
}

int threads_for(Index elements, const ActivateOptions& options) {
  return useful_threads(operations_per_element * static_cast<double>(elements), 0, options.num_threads);
}

void activate_halves(const HalfInput& x, const HalfOutput& y, Activation activation, const ActivateOptions& options) {
  const CallScope scope;
  check(caller.operand("x", x), caller.operand("y", y), activation, options);
  const kernels::KernelTable& kernel = active();
  if (is_empty(y)) return;
  for_half_blocks(kernel, &x, y, order_by_step(y), threads_for(number_of_elements(y), options),
                  [&](const Block&, const AnyView<float>& rows) {
                    kernel.activate(activation, rows.data, rows.data, number_of_elements(rows));
                  });
}

}  // namespace

void activate(AnyView<const float> x, AnyView<float> y, Activation activation, const ActivateOptions& options) {
  const CallScope scope;
  check(caller.operand("x", x), caller.operand("y", y), activation, options);
  const kernels::KernelTable& kernel = active();
  if (is_empty(y)) return;
  const Walk<float, float> walk(x, y);
  parallel_parts(walk.units(piece), 1, threads_for(number_of_elements(y), options), [&](Index begin, Index end) {
    walk.for_units(piece, begin, end, [&](const float* from, float* to, Index n) {
      activate_piece(kernel, activation, from, walk.x_step(), to, walk.y_step(), n);
    });
  });
}
void activate(AnyView<const bfloat16> x, AnyView<bfloat16> y, Activation activation, const ActivateOptions& options) {
  activate_halves(HalfInput(x), HalfOutput(y), activation, options);
}
void activate(AnyView<const float16> x, AnyView<float16> y, Activation activation, const ActivateOptions& options) {
  activate_halves(HalfInput(x), HalfOutput(y), activation, options);
}

}  // namespace headlane
