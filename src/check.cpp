#include "check.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <numeric>

namespace headlane {
namespace {

constexpr index most = std::numeric_limits<index>::max();

bool is_empty(const Operand& operand) {
  return std::any_of(operand.shape, operand.shape + operand.rank, [](index size) { return size == 0; });
}

/// The lowest and the highest element, relative to data, in elements. Throws if they cannot be addressed.
struct Span {
  index low = 0, high = 0;
};

Span span_of(const Operand& operand) {
  Span span;
  index count = 1;
  bool fits = true;
  for (int axis = 0; axis < operand.rank; ++axis) {
    const index steps = operand.shape[axis] - 1, stride = operand.strides[axis];
    index reach = 0;
    fits = fits && !__builtin_mul_overflow(count, operand.shape[axis], &count);
    fits = fits && !__builtin_mul_overflow(steps, stride, &reach);
    index& end = reach < 0 ? span.low : span.high;
    fits = fits && !__builtin_add_overflow(end, reach, &end);
  }
  const index limit = most / static_cast<index>(operand.element_size) / 2;
  require(fits && count <= limit && span.high <= limit && span.low >= -limit, operand.function, ": ", operand.name, " of shape ",
          operand, " does not fit into memory: at most ", limit, " elements can be addressed");
  return span;
}

/// Addresses in units of bytes, as integers: pointers into different arrays may not be compared.
struct Range {
  std::uintptr_t first, end;
};

Range range_of(const Operand& operand) {
  const Span span = span_of(operand);
  const auto data = reinterpret_cast<std::uintptr_t>(operand.data);
  return {data + static_cast<std::uintptr_t>(span.low) * operand.element_size,
          data + static_cast<std::uintptr_t>(span.high + 1) * operand.element_size};
}

/// The length of the run of neighbouring elements along the axis of stride 1, 1 if there is no such axis.
index run_length(const Operand& operand) {
  for (int axis = 0; axis < operand.rank; ++axis)
    if (operand.strides[axis] == 1 && operand.shape[axis] > 1) return operand.shape[axis];
  return 1;
}

/// The greatest common divisor of all strides but that of the run.
index pitch(const Operand& operand, index so_far) {
  bool run = false;
  for (int axis = 0; axis < operand.rank; ++axis) {
    if (operand.shape[axis] <= 1) continue;
    if (operand.strides[axis] == 1 && !run) run = true;
    else so_far = std::gcd(so_far, operand.strides[axis]);
  }
  return so_far;
}

/// Both operands are runs that repeat with a common pitch; they are apart if the runs are, modulo that pitch.
bool interleave(const Operand& a, const Operand& b) {
  const index common = pitch(a, pitch(b, 0));
  const index bytes = static_cast<index>(a.element_size);
  const index distance = static_cast<index>(reinterpret_cast<std::uintptr_t>(b.data) - reinterpret_cast<std::uintptr_t>(a.data));
  if (common == 0 || distance % bytes != 0) return false;
  const index offset = (distance / bytes % common + common) % common;  // of b's runs behind a's
  return run_length(a) <= offset && offset + run_length(b) <= common;
}

}  // namespace

void append(std::string& message, std::string_view text) { message += text; }

void append(std::string& message, index number) { message += std::to_string(number); }

void append(std::string& message, const Operand& operand) {
  message += "[";
  for (int axis = 0; axis < operand.rank; ++axis) {
    if (axis > 0) message += ", ";
    message += std::to_string(operand.shape[axis]);
  }
  message += "]";
}

void check_operand(const Operand& operand) {
  for (int axis = 0; axis < operand.rank; ++axis)
    require(operand.shape[axis] >= 0, operand.function, ": ", operand.name, " has shape ", operand, ", axis ", axis,
            " is negative: ", operand.shape[axis]);
  if (is_empty(operand)) return;
  span_of(operand);
  require(operand.data != nullptr, operand.function, ": ", operand.name, " has shape ", operand,
          " and no data (null)");
  const std::uintptr_t excess = reinterpret_cast<std::uintptr_t>(operand.data) % operand.element_size;
  require(excess == 0, operand.function, ": ", operand.name, " is misaligned: its address is ", static_cast<index>(excess),
          " modulo ", static_cast<index>(operand.element_size));
}

void check_output(const Operand& operand) {
  check_operand(operand);
  if (is_empty(operand)) return;
  const auto step = [&](int axis) { return operand.strides[axis] < 0 ? -operand.strides[axis] : operand.strides[axis]; };
  std::array<int, static_cast<std::size_t>(max_rank)> axes{};  // by rising step
  for (int axis = 0; axis < operand.rank; ++axis) {
    auto at = static_cast<std::size_t>(axis);
    for (; at > 0 && step(axes[at - 1]) > step(axis); --at) axes[at] = axes[at - 1];
    axes[at] = axis;
  }
  index reach = 0;  // from the first to the last element of the axes so far
  for (int i = 0; i < operand.rank; ++i) {
    const int axis = axes[static_cast<std::size_t>(i)];
    if (operand.shape[axis] == 1) continue;
    require(step(axis) > reach, operand.function, ": ", operand.name, " of shape ", operand,
            " overlaps itself: axis ", axis, " has stride ", operand.strides[axis], ", the axes within it span ", reach + 1,
            " elements");
    reach += (operand.shape[axis] - 1) * step(axis);
  }
}

void check_no_overlap(const Operand& output, const Operand& input) {
  if (is_empty(output) || is_empty(input)) return;
  const Range written = range_of(output), read = range_of(input);
  if (written.end <= read.first || read.end <= written.first) return;
  require(interleave(output, input), output.function, ": ", output.name, " of shape ", output, " overlaps ",
          input.name, " of shape ", input);
}

void check_same(const Operand& first, int a, const char* what_a, const Operand& second, int b, const char* what_b) {
  require(first.shape[a] == second.shape[b], first.function, ": ", first.name, " has ", first.shape[a], " ", what_a, ", ",
          second.name, " has ", second.shape[b], " ", what_b);
}

}  // namespace headlane
