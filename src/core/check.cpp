#include "core/check.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

namespace headlane::internal {
namespace {

/// The lowest and the highest element, relative to data, in elements.
struct Span {
  Index low = 0, high = 0;
};

/// Every element can be addressed. Without divisions, and without a choice of what to add to: a
/// small product takes no longer than its checks.
void check_span(const Operand& operand) {
  Span span;
  Index count = 1;
  bool fits = true;
  for (int axis = 0; axis < operand.rank; ++axis) {
    const Index steps = operand.shape[axis] - 1, stride = operand.strides[axis];
    Index reach = 0;
    fits = fits && !__builtin_mul_overflow(count, operand.shape[axis], &count);
    fits = fits && !__builtin_mul_overflow(steps, stride, &reach);
    fits = fits && !__builtin_add_overflow(span.low, std::min<Index>(reach, 0), &span.low);
    fits = fits && !__builtin_add_overflow(span.high, std::max<Index>(reach, 0), &span.high);
  }
  const int log_of_size = std::min(std::countr_zero(operand.element_size), 3);  // elements have 1 to 8 bytes
  const Index limit = std::numeric_limits<Index>::max() >> (log_of_size + 1);
  operand.require(fits && count <= limit && span.high <= limit && span.low >= -limit, " of shape ", operand,
                  " does not fit into memory: at most ", limit, " elements can be addressed");
}

Index step(const Operand& operand, int axis) {
  const Index stride = operand.strides[axis];
  return stride < 0 ? -stride : stride;
}

/// True if both operands are runs that repeat with a common pitch, and the runs do not meet modulo
/// that pitch.
bool interleave(const Operand& a, const Operand& b) {
  if (a.element_size != b.element_size) return false;  // floats and flags in one buffer: not worth telling apart
  const Runs of_a = runs_of(a), of_b = runs_of(b);
  const Index common = std::gcd(of_a.pitch, of_b.pitch);
  const Index bytes = static_cast<Index>(a.element_size);
  const Index distance =
      static_cast<Index>(reinterpret_cast<std::uintptr_t>(b.data) - reinterpret_cast<std::uintptr_t>(a.data));
  if (common == 0) return false;
  const Index offset =
      ((distance / bytes + of_b.first - of_a.first) % common + common) % common;  // of b's runs from a's
  return of_a.length <= offset && offset + of_b.length <= common;
}

}  // namespace

std::size_t Caller::floating_size(const char* name, DType type) const {
  require(type <= DType::float16, name, " has elements of DType ", static_cast<Index>(type),
          ", they may be float32, bfloat16 or float16");
  return static_cast<std::size_t>(size_of(type));
}

bool is_empty(std::span<const Index> shape) {
  return std::any_of(shape.begin(), shape.end(), [](Index size) { return size == 0; });
}

Range range_of(const Operand& operand) {
  Span span;
  for (int axis = 0; axis < operand.rank; ++axis) {
    const Index reach = (operand.shape[axis] - 1) * operand.strides[axis];
    span.low += std::min<Index>(reach, 0);
    span.high += std::max<Index>(reach, 0);
  }
  const auto data = reinterpret_cast<std::uintptr_t>(operand.data);
  return {data + static_cast<std::uintptr_t>(span.low) * operand.element_size,
          data + static_cast<std::uintptr_t>(span.high + 1) * operand.element_size};
}

Runs runs_of(const Operand& operand) {
  Runs runs;
  const Axes axes = axes_by_step(operand);
  for (std::size_t i = 0; i < axes.count; ++i) {
    const int axis = axes.axis[i];
    if (step(operand, axis) != runs.length) {
      runs.pitch = std::gcd(runs.pitch, operand.strides[axis]);
      continue;
    }
    if (operand.strides[axis] < 0) runs.first -= (operand.shape[axis] - 1) * runs.length;
    runs.length *= operand.shape[axis];
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

void check_operand(const Operand& operand) {
  operand.require(operand.rank >= 0 && operand.rank <= max_rank, " has rank ", operand.rank, ", it may be 0 to ",
                  max_rank);
  for (int axis = 0; axis < operand.rank; ++axis)
    operand.require(operand.shape[axis] >= 0, " has shape ", operand, ", axis ", axis,
                    " is negative: ", operand.shape[axis]);
  if (is_empty(operand)) return;
  check_span(operand);
  operand.require(operand.data != nullptr, " has shape ", operand, " and no data (null)");
  const std::uintptr_t excess = reinterpret_cast<std::uintptr_t>(operand.data) & (operand.element_size - 1);
  operand.require(excess == 0, " is misaligned: its address is ", excess, " modulo ", operand.element_size);
}

void check_output(const Operand& operand) {
  check_operand(operand);
  if (is_empty(operand)) return;
  const Axes axes = axes_by_step(operand);
  Index reach = 0;  // from the first to the last element of the axes so far
  for (std::size_t i = 0; i < axes.count; ++i) {
    const int axis = axes.axis[i];
    operand.require(step(operand, axis) > reach, " of shape ", operand, " overlaps itself: axis ", axis, " has stride ",
                    operand.strides[axis], ", the axes within it span ", reach + 1, " elements");
    reach += (operand.shape[axis] - 1) * step(operand, axis);
  }
}

void check_no_overlap(const Operand& output, const Operand& input) {
  if (is_empty(output) || is_empty(input)) return;
  const Range written = range_of(output), read = range_of(input);
  if (written.end <= read.first || read.end <= written.first) return;
  output.require(interleave(output, input), " of shape ", output, " overlaps ", input.name, " of shape ", input);
}

void check_same(const Operand& first, int a, const char* what_a, const Operand& second, int b, const char* what_b) {
  first.require(first.shape[a] == second.shape[b], " has ", first.shape[a], " ", what_a, ", ", second.name, " has ",
                second.shape[b], " ", what_b);
}

void check_same_rows(const Operand& first, const Operand& second) {
  check_same(first, 0, "batch elements", second, 0, "batch elements");
  check_same(first, 1, "heads", second, 1, "heads");
  check_same(first, 2, "rows", second, 2, "rows");
}

void check_elementwise(const Operand& x, const Operand& y) {
  x.require(x.rank >= 1 && x.rank <= max_rank && x.rank == y.rank, " has rank ", x.rank, ", ", y.name, " has rank ",
            y.rank, ", it may be 1 to ", max_rank);
  check_operand(x);
  check_output(y);
  bool same = x.data == y.data && x.element_size == y.element_size;
  for (int axis = 0; axis < x.rank; ++axis) {
    x.require(x.shape[axis] == y.shape[axis], " has ", x.shape[axis], " elements along axis ", axis, ", ", y.name,
              " has ", y.shape[axis]);
    same = same && (x.strides[axis] == y.strides[axis] || x.shape[axis] == 1);
  }
  if (!same) check_no_overlap(y, x);
}

void check_token_lengths(Caller caller, const char* name, const View<const Index, 1>& lengths, Index sequences,
                         const char* of, Index max, const char* what) {
  if (!lengths) return;
  const Operand given = caller.operand(name, lengths);
  check_operand(given);
  given.require(lengths.shape[0] == sequences, " has ", lengths.shape[0], " elements, sequences ", sequences);
  for (Index i = 0; i < sequences; ++i)
    given.require(lengths(i) >= 0 && lengths(i) <= max, "[", i, "] is ", lengths(i), ", ", of, " has ", max, " ", what);
}

void check_threads(Caller caller, int threads) {
  caller.require(threads >= 0, "num_threads is ", threads, ", the minimum is 0");
}

}  // namespace headlane::internal
