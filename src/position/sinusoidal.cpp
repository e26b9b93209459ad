// sinusoidal_encoding and add_sinusoidal_encoding: checks, and a parallel loop over tiles of rows.
// The arithmetic is in angles.cpp and kernels/simd/sin_cos.hpp.
#include "core/call_scope.hpp"
#include "core/check.hpp"
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
  constexpr Caller caller("sinusoidal_encoding");
  check_output(caller.operand("y", y));
  check_options(caller, options, y.size(0));
  caller.require(options.scale == 1, "scale is ", options.scale, ", but there is nothing to scale: it must be 1");
  const KernelTable& kernel = active();
  if (is_empty(y)) return;
  const Index length = y.size(0), d_model = y.size(1);
  const Index tile = std::max<Index>(tile_elements / d_model, 1);
  const Frequencies frequencies = frequencies_for(options, d_model);
  const double elements = static_cast<double>(length) * static_cast<double>(d_model);
  parallel_parts(length, tile, useful_threads(operations_per_element * elements, 0, options.num_threads),
                 [&](Index first, Index end) {
                   Angles angles(frequencies, scratch(Purpose::rows, Angles::floats_for(frequencies.count)));
                   for (Index row = first; row < end; row += tile) {
                     const Index rows = std::min(tile, end - row);
                     const RowsOfView<float> to{y.data + row * y.strides[0], y.strides[0], y.strides[1]};
                     with_dense_rows(kernel, to, rows, d_model, [&](float* at, Index step) {
                       encode(kernel, angles, options, row, rows, d_model, at, step);
                     });
                   }
                 });
}

void add_sinusoidal_encoding(AnyView<const float> x, AnyView<float> y, const SinusoidalOptions& options) {
  const CallScope scope;
  constexpr Caller caller("add_sinusoidal_encoding");
  caller.require(x.rank >= 2, "x has rank ", x.rank, ", the minimum is 2");
  check_elementwise(caller.operand("x", x), caller.operand("y", y));
  const auto last = static_cast<std::size_t>(y.rank - 1);
  const Index length = y.shape[last - 1], d_model = y.shape[last];
  check_options(caller, options, length);
  const KernelTable& kernel = active();
  if (is_empty(y)) return;
  Index batch = 1;
  for (std::size_t axis = 0; axis + 1 < last; ++axis) batch *= y.shape[axis];
  const float scale = options.scale == 0 ? static_cast<float>(std::sqrt(static_cast<double>(d_model))) : options.scale;
  const Index tile = std::max<Index>(tile_elements / d_model, 1), step = round_up(d_model, kernels::lanes);
  const Frequencies frequencies = frequencies_for(options, d_model);
  const double elements = static_cast<double>(length) * static_cast<double>(d_model) * static_cast<double>(batch);
  const int threads = useful_threads(operations_per_element * elements, 0, options.num_threads);
  parallel_parts(length, tile, threads, [&](Index first, Index end) {
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

}  // namespace headlane
