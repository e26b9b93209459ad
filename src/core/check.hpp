// Checks of arguments. All of them throw std::invalid_argument with a message that names the
// function, the argument and the sizes; none writes anything.
#pragma once

#include "core/message.hpp"

#include <headlane/floating_view.hpp>
#include <headlane/view.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace headlane::internal {

struct Operand;

/// The function whose arguments are checked. Each message begins with its name: "gemm: …".
class Caller {
 public:
  // Implicit: a function that takes a Caller is called with a name.
  constexpr Caller(const char* function) : function_(function) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] constexpr const char* function() const { return function_; }

  /// An argument of the function. The view must outlive the operand.
  template <class T, int Rank>
  [[nodiscard]] Operand operand(const char* name, const View<T, Rank>& view) const;
  template <class T>
  [[nodiscard]] Operand operand(const char* name, const AnyView<T>& view) const;
  template <int Rank>
  [[nodiscard]] Operand operand(const char* name, const FloatingView<Rank>& view) const;
  [[nodiscard]] Operand operand(const char* name, const AnyFloatingView& view) const;

  /// Throws "function: " and the parts unless `condition`.
  template <class... Parts>
  [[gnu::always_inline]] void require(bool condition, const Parts&... parts) const {
    if (!condition) fail(function_, ": ", parts...);
  }

 private:
  /// Bytes of an element of a FloatingView. Throws if its type, which anyone may have set, is none
  /// of those that it may be.
  [[nodiscard]] std::size_t floating_size(const char* name, DType type) const;

  const char* function_;
};

/// An argument as the checks see it: a view of any rank and element type, with a name for the
/// messages.
struct Operand {
  Caller caller = "";
  const char* name = "";
  const void* data = nullptr;
  int rank = 0;
  const Index* shape = nullptr;
  const Index* strides = nullptr;
  std::size_t element_size = 0;  ///< a power of two

  explicit operator bool() const { return data != nullptr; }

  /// Throws "function: name" and the parts unless `condition`.
  template <class... Parts>
  [[gnu::always_inline]] void require(bool condition, const Parts&... parts) const {
    if (!condition) fail(caller.function(), ": ", name, parts...);
  }
};

template <class T, int Rank>
Operand Caller::operand(const char* name, const View<T, Rank>& view) const {
  return {*this, name, view.data, Rank, view.shape.data(), view.strides.data(), sizeof(T)};
}

template <int Rank>
Operand Caller::operand(const char* name, const FloatingView<Rank>& view) const {
  return {*this, name, view.data, Rank, view.shape.data(), view.strides.data(), floating_size(name, view.type)};
}

template <class T>
Operand Caller::operand(const char* name, const AnyView<T>& view) const {
  return {*this, name, view.data, view.rank, view.shape.data(), view.strides.data(), sizeof(T)};
}

inline Operand Caller::operand(const char* name, const AnyFloatingView& view) const {
  return {*this, name, view.data, view.rank, view.shape.data(), view.strides.data(), floating_size(name, view.type)};
}

/// The axes of more than one element, by rising step (the magnitude of the stride).
struct Axes {
  std::array<int, static_cast<std::size_t>(max_rank)> axis{};
  std::size_t count = 0;
};
Axes axes_by_step(const Operand& operand);

/// In a message, an operand is its shape.
inline MessagePart part_of(const Operand& operand) {
  return part_of(std::span(operand.shape, static_cast<std::size_t>(operand.rank)));
}

/// True if there are no elements.
bool is_empty(std::span<const Index> shape);
inline bool is_empty(const Operand& operand) {
  return is_empty(std::span(operand.shape, static_cast<std::size_t>(operand.rank)));
}
template <class T, int Rank>
bool is_empty(const View<T, Rank>& view) {
  return is_empty(std::span<const Index>(view.shape));
}
template <class T>
bool is_empty(const AnyView<T>& view) {
  return is_empty(std::span(view.shape.data(), static_cast<std::size_t>(view.rank)));
}

/// The view; if it has no elements, with strides of 0: its own are not checked, and multiples of
/// them might overflow.
template <class T, int Rank>
View<T, Rank> with_safe_strides(const View<T, Rank>& view) {
  return is_empty(view) ? View<T, Rank>(view.data, view.shape, {}) : view;
}

/// Addresses in bytes, as integers: pointers into different arrays may not be compared.
struct Range {
  std::uintptr_t first, end;
};

/// From the first byte of a checked operand that is not empty to behind the last one.
Range range_of(const Operand& operand);

/// An operand as runs of `length` adjacent elements that start at multiples of a pitch, from
/// data + first on; pitch 0: one run.
struct Runs {
  Index first = 0, length = 1, pitch = 0;
};
Runs runs_of(const Operand& operand);

/// The rank is 0 to max_rank, sizes are not negative, data is given and aligned to its type, and
/// all elements lie within the address space.
void check_operand(const Operand& operand);

/// As check_operand, and no two elements are the same: strides nest (each axis steps beyond all
/// smaller ones).
void check_output(const Operand& operand);

/// No element of `output` is one of `input`. Accepts operands that interleave, such as columns of
/// one buffer.
void check_no_overlap(const Operand& output, const Operand& input);

/// Axis `a` of one operand is as long as axis `b` of the other: "gemm: a has 3 columns, b has 4
/// rows" if not.
void check_same(const Operand& first, int a, const char* what_a, const Operand& second, int b, const char* what_b);

/// Both are [batch, heads, rows, …] with the same sizes of these three axes.
void check_same_rows(const Operand& first, const Operand& second);

/// Input x and output y have the same shape, of at least one axis, and are the same elements or do
/// not overlap.
void check_elementwise(const Operand& x, const Operand& y);

/// Unless data is null: lengths [sequences], each 0 to `max`, the number of `what` that `of` has
/// for a sequence.
void check_token_lengths(Caller caller, const char* name, const View<const Index, 1>& lengths, Index sequences,
                         const char* of, Index max, const char* what);

/// The option num_threads is not negative.
void check_threads(Caller caller, int threads);

}  // namespace headlane::internal
