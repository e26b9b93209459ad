#include "core/check.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

namespace headlane::internal {
namespace {

constexpr Index most = std::numeric_limits<Index>::max();

/// The lowest and the highest element, relative to data, in elements.
struct Span {
  Index low = 0, high = 0;
};

/// All elements can be addressed.
void check_span(const Operand& operand) {
  Span span;
  Index count = 1;
  bool fits = true;
  for (int axis = 0; axis < operand.rank; ++axis) {
    const Index steps = operand.shape[axis] - 1, stride = operand.strides[axis];
    Index reach = 0;
    fits = fits && !__builtin_mul_overflow(count, operand.shape[axis], &count);
    fits = fits && !__builtin_mul_overflow(steps, stride, &reach);
    Index& end = reach < 0 ? span.low : span.high;
    fits = fits && !__builtin_add_overflow(end, reach, &end);
  }
  const Index limit = most / static_cast<Index>(operand.element_size) / 2;
  require(fits && count <= limit && span.high <= limit && span.low >= -limit, operand.function, ": ", operand.name,
          " of shape ", operand, " does not fit into memory: at most ", limit, " elements can be addressed");
}

Index step(const Operand& operand, int axis) {
  const Index stride = operand.strides[axis];
  return stride < 0 ? -stride : stride;
}

/// Both operands are runs that repeat with a common pitch; they are apart if the runs are, modulo that pitch.
bool interleave(const Operand& a, const Operand& b) {
  if (a.element_size != b.element_size) return false;  // floats and flags in one buffer: not worth knowing apart
  const Runs of_a = runs_of(a), of_b = runs_of(b);
  const Index common = std::gcd(of_a.pitch, of_b.pitch);
  const Index bytes = static_cast<Index>(a.element_size);
  const Index distance =
      static_cast<Index>(reinterpret_cast<std::uintptr_t>(b.data) - reinterpret_cast<std::uintptr_t>(a.data));
  if (common == 0) return false;
  const Index offset = (distance / bytes % common + common) % common;  // of b's runs behind a's
  return of_a.length <= offset && offset + of_b.length <= common;
}

}  // namespace

bool is_empty(const Operand& operand) {
  return std::any_of(operand.shape, operand.shape + operand.rank, [](Index size) { return size == 0; });
}

Range range_of(const Operand& operand) {
  Span span;
  for (int axis = 0; axis < operand.rank; ++axis) {
    const Index reach = (operand.shape[axis] - 1) * operand.strides[axis];
    (reach < 0 ? span.low : span.high) += reach;
  }
  const auto data = reinterpret_cast<std::uintptr_t>(operand.data);
  return {data + static_cast<std::uintptr_t>(span.low) * operand.element_size,
          data + static_cast<std::uintptr_t>(span.high + 1) * operand.element_size};
}

Runs runs_of(const Operand& operand) {
  Runs runs;
  const Axes axes = axes_by_step(operand);
  for (std::size_t i = 0; i < axes.count; ++i) {
    const Index stride = operand.strides[axes.axis[i]];
    if (stride == runs.length) runs.length *= operand.shape[axes.axis[i]];
    else runs.pitch = std::gcd(runs.pitch, stride);
  }
  return runs;
}

Axes axes_by_step(const Operand& operand) {
  Axes axes;
  for (int axis = 0; axis < operand.rank; ++axis) {
    if (operand.shape[axis] <= 1) continue;
    std::size_t at = axes.count++;
    for (; at > 0 && step(operand, axes.axis[at - 1]) > step(operand, axis); --at) axes.axis[at] = axes.axis[at - 1];
    axes.axis[at] = axis;
  }
  return axes;
}

void append(std::string& message, std::string_view text) { message += text; }

void append(std::string& message, Index number) { message += std::to_string(number); }

void append(std::string& message, const Operand& operand) {
  message += "[";
  for (int axis = 0; axis < operand.rank; ++axis) {
    if (axis > 0) message += ", ";
    message += std::to_string(operand.shape[axis]);
  }
  message += "]";
}

void check_operand(const Operand& operand) {
  require(operand.rank >= 0 && operand.rank <= max_rank, operand.function, ": ", operand.name, " has rank ",
          operand.rank, ", it may be 0 to ", max_rank);
  for (int axis = 0; axis < operand.rank; ++axis)
    require(operand.shape[axis] >= 0, operand.function, ": ", operand.name, " has shape ", operand, ", axis ", axis,
            " is negative: ", operand.shape[axis]);
  if (is_empty(operand)) return;
  check_span(operand);
  require(operand.data != nullptr, operand.function, ": ", operand.name, " has shape ", operand, " and no data (null)");
  const std::uintptr_t excess = reinterpret_cast<std::uintptr_t>(operand.data) % operand.element_size;
  require(excess == 0, operand.function, ": ", operand.name, " is misaligned: its address is ",
          static_cast<Index>(excess), " modulo ", static_cast<Index>(operand.element_size));
}

void check_output(const Operand& operand) {
  check_operand(operand);
  if (is_empty(operand)) return;
  const Axes axes = axes_by_step(operand);
  Index reach = 0;  // from the first to the last element of the axes so far
  for (std::size_t i = 0; i < axes.count; ++i) {
    const int axis = axes.axis[i];
    require(step(operand, axis) > reach, operand.function, ": ", operand.name, " of shape ", operand,
            " overlaps itself: axis ", axis, " has stride ", operand.strides[axis], ", the axes within it span ",
            reach + 1, " elements");
    reach += (operand.shape[axis] - 1) * step(operand, axis);
  }
}

void check_no_overlap(const Operand& output, const Operand& input) {
  if (is_empty(output) || is_empty(input)) return;
  const Range written = range_of(output), read = range_of(input);
  if (written.end <= read.first || read.end <= written.first) return;
  require(interleave(output, input), output.function, ": ", output.name, " of shape ", output, " overlaps ", input.name,
          " of shape ", input);
}

void check_same(const Operand& first, int a, const char* what_a, const Operand& second, int b, const char* what_b) {
  require(first.shape[a] == second.shape[b], first.function, ": ", first.name, " has ", first.shape[a], " ", what_a,
          ", ", second.name, " has ", second.shape[b], " ", what_b);
}

void check_same_rows(const Operand& first, const Operand& second) {
  check_same(first, 0, "batch elements", second, 0, "batch elements");
  check_same(first, 1, "heads", second, 1, "heads");
  check_same(first, 2, "rows", second, 2, "rows");
}

void check_elementwise(const Operand& x, const Operand& y) {
  require(x.rank >= 1 && x.rank <= max_rank && x.rank == y.rank, x.function, ": ", x.name, " has rank ", x.rank, ", ",
          y.name, " has rank ", y.rank, ", it may be 1 to ", max_rank);
  check_operand(x);
  check_output(y);
  bool same = x.data == y.data;
  for (int axis = 0; axis < x.rank; ++axis) {
    require(x.shape[axis] == y.shape[axis], x.function, ": ", x.name, " has ", x.shape[axis], " elements along axis ",
            axis, ", ", y.name, " has ", y.shape[axis]);
    same = same && (x.strides[axis] == y.strides[axis] || x.shape[axis] == 1);
  }
  if (!same) check_no_overlap(y, x);
}

void check_token_lengths(const char* function, const char* name, const View<const Index, 1>& lengths, Index sequences,
                         const char* of, Index max, const char* what) {
  if (lengths.data == nullptr) return;
  check_operand(operand(function, name, lengths));
  require(lengths.shape[0] == sequences, function, ": ", name, " has ", lengths.shape[0], " elements, sequences ",
          sequences);
  for (Index i = 0; i < sequences; ++i)
    require(lengths(i) >= 0 && lengths(i) <= max, function, ": ", name, "[", i, "] is ", lengths(i), ", ", of, " has ",
            max, " ", what);
}

void check_threads(const char* function, int threads) {
  require(threads >= 0, function, ": num_threads is ", threads, ", the least is 0");
}

}  // namespace headlane::internal
