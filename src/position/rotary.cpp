// rotary_embedding: checks, and a parallel loop over tiles of rows, whose sines and cosines all
// heads share. The arithmetic is in angles.cpp, kernels/simd/sin_cos.hpp and
// kernels/position/rotary.hpp.
#include "core/call_scope.hpp"
#include "core/check.hpp"
#include "core/half_blocks.hpp"
#include "core/parallel.hpp"
#include "core/view_rows.hpp"
#include "position/angles.hpp"

#include <headlane/position.hpp>

#include <algorithm>

namespace headlane {

using namespace internal;

namespace {

using kernels::KernelTable;

constexpr Caller caller("rotary_embedding");
/// Weighs the work against the cost of starting threads.
constexpr double operations_per_element = 10.0;
/// Elements of a tile's sines and cosines: 8 KiB, which stay in the L1 beside the rows that they
/// rotate.
constexpr Index tile_elements = 2048;

void check_given_positions(const AnyView<const Index>& positions, const Operand& y, Index offset) {
  const Operand given = caller.operand("positions", positions);
  given.require(positions.rank == 1 || positions.rank == 2, " has rank ", positions.rank, ", wanted 1 or 2");
  check_operand(given);
  check_same(given, 0, "batch elements", y, 0, "batch elements");
  if (positions.rank == 2) check_same(given, 1, "rows", y, 2, "rows");
  check_no_overlap(y, given);
  if (is_empty(given) || is_empty(y)) return;
  for (Index b = 0; b < positions.shape[0]; ++b) {
    for (Index i = 0; i < (positions.rank == 2 ? positions.shape[1] : 1); ++i) {
      const Index position = positions.data[b * positions.strides[0] + i * positions.strides[1]];
      given.require(-max_position <= position && position <= max_position, " has ", position, ", it may be ",
                    -max_position, " to ", max_position);
      check_positions(caller, "offset + positions", offset + position, positions.rank == 2 ? 1 : y.shape[2]);
    }
  }
}

void check_frequencies(const View<const float, 1>& frequencies, const Operand& y, Index pairs) {
  const Operand given = caller.operand("frequencies", frequencies);
  check_operand(given);
  given.require(frequencies.size(0) == pairs, " has ", frequencies.size(0), " elements, there are ", pairs,
                " pairs to rotate");
  check_no_overlap(y, given);
  for (Index j = 0; j < pairs; ++j)
    given.require(-max_frequency <= frequencies(j) && frequencies(j) <= max_frequency, " has ", frequencies(j),
                  ", it may be -65536 to 65536");
}

/// Checks the arguments and returns the number of elements of a row that are rotated.
Index check(const Operand& x, const Operand& y, const RotaryOptions& options) {
  check_elementwise(x, y);
  const Index head_dim = x.shape[3], dim = options.rotary_dim == 0 ? head_dim : options.rotary_dim;
  caller.require(0 <= dim && dim <= head_dim, "rotary_dim is ", dim, ", x has ", head_dim, " columns");
  caller.require(dim % 2 == 0, "rotary_dim is ", dim, ", wanted an even number (x has ", head_dim, " columns)");
  check_base(caller, options.base);
  check_positions(caller, "offset", options.offset, !options.positions ? x.shape[2] : 1);
  check_threads(caller, options.num_threads);
  if (options.positions) check_given_positions(options.positions, y, options.offset);
  if (options.frequencies) check_frequencies(options.frequencies, y, dim / 2);
  return dim;
}

int threads_for(Index elements, const RotaryOptions& options) {
  return useful_threads(operations_per_element * static_cast<double>(elements), 0, options.num_threads);
}

/// The call, shared by all tasks. A group is some heads of one batch element, or, without
/// positions, some heads of all.
struct Problem {
  const KernelTable& kernel;
  AnyView<const float> x;
  AnyView<float> y;
  const RotaryOptions& options;
  Index dim, length, tile;
  Index heads;  ///< with the same positions
  Frequencies frequencies;
};

/// Sines and cosines of `rows` rows from `row` on, of batch element b if positions are given.
void fill_table(const Problem& p, Angles& angles, Index b, Index row, Index rows, float* sin, float* cos, Index step) {
  const AnyView<const Index>& given = p.options.positions;
  const auto position = [&](Index i) {
    if (!given) return p.options.offset + i;
    const Index own = given.data[b * given.strides[0] + (given.rank == 2 ? i * given.strides[1] : 0)];
    return p.options.offset + own + (given.rank == 2 ? 0 : i);
  };
  for (Index i = 0; i < rows;) {
    Index run = 1;
    while (i + run < rows && position(row + i + run) == position(row + i) + run) ++run;
    angles.rows(p.kernel, position(row + i), run, sin + i * step, cos + i * step, step, p.dim);
    i += run;
  }
}

/// One tile of rows of heads first … end - 1 among those with the same positions.
void rotate_tile(const Problem& p, Angles& angles, float* table, Index b, Index row, Index first, Index end) {
  const Index rows = std::min(p.tile, p.length - row), step = round_up(p.dim / 2, kernels::lanes);
  float *sin = table, *cos = table + p.tile * step;
  if (p.dim > 0) fill_table(p, angles, b, row, rows, sin, cos, step);
  for (Index head = first; head < end; ++head) {
    const Index at = (b * p.heads + head) * p.length + row;
    with_dense_rows(p.kernel, {row_start(p.x, at), p.x.strides[2], p.x.strides[3]},
                    {row_start(p.y, at), p.y.strides[2], p.y.strides[3]}, rows, p.x.shape[3],
                    [&](const float* x, Index x_step, float* y, Index y_step) {
                      p.kernel.rotary_rows(
                          {x, y, x_step, y_step, rows, p.x.shape[3], p.dim / 2, sin, cos, step, p.options.interleaved});
                    });
  }
}

}  // namespace

void rotary_embedding(View<const float, 4> x, View<float, 4> y, const RotaryOptions& options) {
  const CallScope scope;
  const Index dim = check(caller.operand("x", x), caller.operand("y", y), options);
  const KernelTable& kernel = active();
  if (is_empty(y)) return;
  const bool shared = !options.positions;
  const Index length = x.size(2), batch = shared ? 1 : x.size(0), heads = shared ? x.size(0) * x.size(1) : x.size(1);
  const Index tile = std::clamp<Index>(tile_elements / std::max<Index>(dim, 1), 1, length);
  const Problem p{
      kernel,
      x,
      y,
      options,
      dim,
      length,
      tile,
      heads,
      options.frequencies ? frequencies_of(options.frequencies) : frequencies_of_base(options.base, 2, dim)};

  const int threads = threads_for(batch * heads * length * x.size(3), options);
  const Index tiles = ceil_div(length, tile), wanted = threads == 1 ? 1 : 4 * threads;
  const Index groups =
      std::min(ceil_div(wanted, tiles * batch), heads);  // heads are divided only where there are few rows
  const Index units = batch * groups * tiles, tasks = std::min(wanted, units);
  parallel_for(tasks, threads, [&](Index task) {
    const Index angle_floats = Angles::floats_for(p.frequencies.count);
    float* memory = scratch(Purpose::rows, angle_floats + 2 * tile * round_up(dim / 2, kernels::lanes));
    Angles angles(p.frequencies, memory);
    for (Index unit = task * units / tasks; unit < (task + 1) * units / tasks; ++unit) {
      const Index group = unit / tiles % groups;
      rotate_tile(p, angles, memory + angle_floats, unit / tiles / groups, unit % tiles * tile, group * heads / groups,
                  (group + 1) * heads / groups);
    }
  });
}

namespace {

/// The options of a block: positions are given for each batch element or each of its rows, or count
/// from the offset.
RotaryOptions options_of(const Block& block, const RotaryOptions& options) {
  RotaryOptions part = options;
  part.num_threads = 1;
  AnyView<const Index>& positions = part.positions;
  if (!positions || positions.rank == 1) part.offset += block.first[2];
  if (!positions) return part;
  for (std::size_t i = 0; i < static_cast<std::size_t>(positions.rank); ++i) {  // of axes 0 and 2
    positions.data += block.first[2 * i] * positions.strides[i];
    positions.shape[i] = block.count[2 * i];
  }
  return part;
}

void rotate_halves(const HalfInput& x, const HalfOutput& y, const RotaryOptions& options) {
  const CallScope scope;
  check(caller.operand("x", x), caller.operand("y", y), options);
  const KernelTable& kernel = active();
  if (is_empty(y)) return;
  const AxisOrder order{.axis = {0, 2, 1, 3}, .rank = 4};  // heads, which share positions, are in a block
  for_half_blocks(kernel, &x, y, order, threads_for(number_of_elements(y), options),
                  [&](const Block& block, const AnyView<float>& rows) {
                    const View<float, 4> view = as_view<4>(rows);
                    rotary_embedding(view, view, options_of(block, options));
                  });
}

}  // namespace

void rotary_embedding(View<const bfloat16, 4> x, View<bfloat16, 4> y, const RotaryOptions& options) {
  rotate_halves(HalfInput(AnyView<const bfloat16>(x)), HalfOutput(AnyView<bfloat16>(y)), options);
}
void rotary_embedding(View<const float16, 4> x, View<float16, 4> y, const RotaryOptions& options) {
  rotate_halves(HalfInput(AnyView<const float16>(x)), HalfOutput(AnyView<float16>(y)), options);
}

}  // namespace headlane
