// Checks of arguments. All of them throw std::invalid_argument with a message that names the function, the argument and the
// sizes; none writes anything.
#pragma once

#include <headlane/view.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace headlane::internal {

/// What the checks look at: a view of any rank, with a name for the messages.
struct Operand {
  const char* function;
  const char* name;
  const void* data;
  int rank;
  const Index* shape;
  const Index* strides;
  std::size_t element_size;

  explicit operator bool() const { return data != nullptr; }
};

template <class T, int Rank>
Operand operand(const char* function, const char* name, const View<T, Rank>& view) {
  return {function, name, view.data, Rank, view.shape.data(), view.strides.data(), sizeof(T)};
}

template <class T>
Operand operand(const char* function, const char* name, const AnyView<T>& view) {
  return {function, name, view.data, view.rank, view.shape.data(), view.strides.data(), sizeof(T)};
}

/// The axes of more than one element, by rising step (the magnitude of the stride).
struct Axes {
  std::array<int, static_cast<std::size_t>(max_rank)> axis{};
  std::size_t count = 0;
};
Axes axes_by_step(const Operand& operand);

/// Appends a part of a message: text, a number, or the shape of an operand.
void append(std::string& message, std::string_view text);
void append(std::string& message, Index number);
void append(std::string& message, const Operand& operand);

/// Throws an error, std::invalid_argument unless told; the parts are joined to the message.
template <class Error = std::invalid_argument, class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail(const Parts&... parts) {
  std::string message;
  (append(message, parts), ...);
  throw Error(message);
}

template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) fail(parts...);
}

/// It has no elements.
bool is_empty(const Operand& operand);

/// The view; if it has no elements, with strides of 0: its own are not checked, and multiples of them might overflow.
template <class T, int Rank>
View<T, Rank> with_safe_strides(const View<T, Rank>& view) {
  return is_empty(operand("", "", view)) ? View<T, Rank>(view.data, view.shape, {}) : view;
}

/// Addresses in units of bytes, as integers: pointers into different arrays may not be compared.
struct Range {
  std::uintptr_t first, end;
};

/// From the first byte of a checked operand that is not empty to behind the last one.
Range range_of(const Operand& operand);

/// An operand as runs of `length` neighbouring elements that start at multiples of a pitch, from data on; pitch 0: one run.
struct Runs {
  Index length = 1, pitch = 0;
};
Runs runs_of(const Operand& operand);

/// The rank is one that there is, sizes are not negative, data is there and aligned to its type, all elements lie within the address space.
void check_operand(const Operand& operand);

/// As check_operand, and no two elements are the same: strides nest (each axis steps beyond all smaller ones).
void check_output(const Operand& operand);

/// No element of `output` is one of `input`. Knows apart operands that interleave, such as columns of one buffer.
void check_no_overlap(const Operand& output, const Operand& input);

/// Axis `a` of one operand is as long as axis `b` of the other: "gemm: a has 3 columns, b has 4 rows" if not.
void check_same(const Operand& first, int a, const char* what_a, const Operand& second, int b, const char* what_b);

/// Two that are [batch, heads, rows, …] are alike in these axes.
void check_same_rows(const Operand& first, const Operand& second);

/// Input x and output y have the same shape, of at least one axis, and are the same elements or do not overlap.
void check_elementwise(const Operand& x, const Operand& y);

/// If data is not null: lengths [sequences], each 0 to `max`, the number of `what` that `of` has for a sequence.
void check_token_lengths(const char* function, const char* name, const View<const Index, 1>& lengths, Index sequences,
                         const char* of, Index max, const char* what);

/// The option num_threads is not negative.
void check_threads(const char* function, int threads);

}  // namespace headlane::internal
