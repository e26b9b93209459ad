// sinusoidal_encoding and add_sinusoidal_encoding: checks, and a parallel loop over tiles of rows.
// The arithmetic is in angles.cpp and kernels/simd/sin_cos.hpp.
#include "core/call_scope.hpp"
#include "core/check.hpp"
#include "core/half_blocks.hpp"
#include "core/parallel.hpp"
#include "core/view_rows.hpp"
#include "position/angles.hpp"

#include <headlane/position.hpp>

#include <algorithm>
#include <cmath>

namespace headlane {

using namespace internal;

namespace {

using kernels::KernelTable;

/// Weighs the work against the cost of starting threads.
constexpr double operations_per_element = 10.0;
/// Elements of a tile: 16 KiB, which stay in the L1.
constexpr Index tile_elements = 4096;

void check_options(Caller caller, const SinusoidalOptions& options, Index length) {
  check_base(caller, options.base);
  check_positions(caller, "offset", options.offset, length);
  caller.require(options.exponent == SinusoidalExponent::paper || options.exponent == SinusoidalExponent::doubled,
                 "exponent is ", static_cast<Index>(options.exponent), ", which is neither paper nor doubled");
  check_threads(caller, options.num_threads);
}

void check_encoding(const Operand& y, const SinusoidalOptions& options) {
  check_output(y);
  check_options(y.caller, options, y.shape[0]);
  y.caller.require(options.scale == 1, "scale is ", options.scale, ", but there is nothing to scale: it must be 1");
}

void check_addition(const Operand& x, const Operand& y, const SinusoidalOptions& options) {
  x.caller.require(x.rank >= 2, "x has rank ", x.rank, ", the minimum is 2");
  check_elementwise(x, y);
  check_options(x.caller, options, y.shape[y.rank - 2]);
}

int threads_for(Index elements, const SinusoidalOptions& options) {
  return useful_threads(operations_per_element * static_cast<double>(elements), 0, options.num_threads);
}

Frequencies frequencies_for(const SinusoidalOptions& options, Index d_model) {
  return frequencies_of_base(options.base, options.exponent == SinusoidalExponent::paper ? 2 : 4, d_model);
}

/// Computes the encoding of consecutive rows; `row` counts from the offset.
void encode(const KernelTable& kernel, Angles& angles, const SinusoidalOptions& options, Index row, Index rows,
            Index d_model, float* y, Index step) {
  float* cosines = options.interleaved ? nullptr : y + ceil_div(d_model, 2);
  angles.rows(kernel, options.offset + row, rows, y, cosines, step, d_model);
}

}  // namespace

void sinusoidal_encoding(View<float, 2> y, const SinusoidalOptions& options) {
  const CallScope scope;
  check_encoding(Caller("sinusoidal_encoding").operand("y", y), options);
  const KernelTable& kernel = active();
  if (is_empty(y)) return;
  const Index length = y.size(0), d_model = y.size(1);
  const Index tile = std::max<Index>(tile_elements / d_model, 1);
  const Frequencies frequencies = frequencies_for(options, d_model);
  parallel_parts(length, tile, threads_for(length * d_model, options), [&](Index first, Index end) {
    Angles angles(frequencies, scratch(Purpose::rows, Angles::floats_for(frequencies.count)));
    for (Index row = first; row < end; row += tile) {
      const Index rows = std::min(tile, end - row);
      const RowsOfView<float> to{y.data + row * y.strides[0], y.strides[0], y.strides[1]};
      with_dense_rows(kernel, to, rows, d_model,
                      [&](float* at, Index step) { encode(kernel, angles, options, row, rows, d_model, at, step); });
    }
  });
}

void add_sinusoidal_encoding(AnyView<const float> x, AnyView<float> y, const SinusoidalOptions& options) {
  const CallScope scope;
  constexpr Caller caller("add_sinusoidal_encoding");
  check_addition(caller.operand("x", x), caller.operand("y", y), options);
  const auto last = static_cast<std::size_t>(y.rank - 1);
  const Index length = y.shape[last - 1], d_model = y.shape[last];
  const KernelTable& kernel = active();
  if (is_empty(y)) return;
  Index batch = 1;
  for (std::size_t axis = 0; axis + 1 < last; ++axis) batch *= y.shape[axis];
  const float scale = options.scale == 0 ? static_cast<float>(std::sqrt(static_cast<double>(d_model))) : options.scale;
  const Index tile = std::max<Index>(tile_elements / d_model, 1), step = round_up(d_model, kernels::lanes);
  const Frequencies frequencies = frequencies_for(options, d_model);
  parallel_parts(length, tile, threads_for(length * d_model * batch, options), [&](Index first, Index end) {
    float* memory = scratch(Purpose::rows, Angles::floats_for(frequencies.count) + tile * step);
    Angles angles(frequencies, memory);
    float* table = memory + Angles::floats_for(frequencies.count);
    for (Index row = first; row < end; row += tile) {
      const Index rows = std::min(tile, end - row);
      encode(kernel, angles, options, row, rows, d_model, table, step);
      for (Index b = 0; b < batch; ++b) {
        const RowsOfView<const float> from{row_start(x, b * length + row), x.strides[last - 1], x.strides[last]};
        const RowsOfView<float> to{row_start(y, b * length + row), y.strides[last - 1], y.strides[last]};
        with_dense_rows(kernel, from, to, rows, d_model, [&](const float* p, Index p_step, float* q, Index q_step) {
          kernel.scale_add_rows({p, q, p_step, q_step, rows, d_model, scale, table, step});
        });
      }
    }
  });
}

namespace {

/// The options of a block of tensors [..., length, d_model].
SinusoidalOptions options_of(const Block& block, const SinusoidalOptions& options, int rank) {
  SinusoidalOptions part = options;
  part.offset += block.first[static_cast<std::size_t>(rank - 2)];
  part.num_threads = 1;
  return part;
}

void encoding_of_halves(const HalfOutput& y, const SinusoidalOptions& options) {
  const CallScope scope;
  check_encoding(Caller("sinusoidal_encoding").operand("y", y), options);
  const KernelTable& kernel = active();
  if (is_empty(y)) return;
  for_half_blocks(kernel, nullptr, y, order_with_last(2, 1), threads_for(number_of_elements(y), options),
                  [&](const Block& block, const AnyView<float>& rows) {
                    sinusoidal_encoding(as_view<2>(rows), options_of(block, options, 2));
                  });
}

void add_to_halves(const HalfInput& x, const HalfOutput& y, const SinusoidalOptions& options) {
  const CallScope scope;
  constexpr Caller caller("add_sinusoidal_encoding");
  check_addition(caller.operand("x", x), caller.operand("y", y), options);
  const KernelTable& kernel = active();
  if (is_empty(y)) return;
  AxisOrder order = order_with_last(x.rank, x.rank - 1);  // positions outermost: what shares them is in a block
  std::rotate(order.axis.begin(), order.axis.begin() + x.rank - 2, order.axis.begin() + x.rank - 1);
  for_half_blocks(kernel, &x, y, order, threads_for(number_of_elements(y), options),
                  [&](const Block& block, const AnyView<float>& rows) {
                    add_sinusoidal_encoding(as_input(rows), rows, options_of(block, options, x.rank));
                  });
}

}  // namespace

void sinusoidal_encoding(View<bfloat16, 2> y, const SinusoidalOptions& options) {
  encoding_of_halves(HalfOutput(AnyView<bfloat16>(y)), options);
}
void sinusoidal_encoding(View<float16, 2> y, const SinusoidalOptions& options) {
  encoding_of_halves(HalfOutput(AnyView<float16>(y)), options);
}

void add_sinusoidal_encoding(AnyView<const bfloat16> x, AnyView<bfloat16> y, const SinusoidalOptions& options) {
  add_to_halves(HalfInput(x), HalfOutput(y), options);
}
void add_sinusoidal_encoding(AnyView<const float16> x, AnyView<float16> y, const SinusoidalOptions& options) {
  add_to_halves(HalfInput(x), HalfOutput(y), options);
}

}  // namespace headlane
