// View: a pointer, a shape and strides. It owns nothing and copies nothing; a transpose, a head of
// a packed QKV buffer or a broadcast is another View on the same memory.
#pragma once

#include <headlane/export.h>
#include <headlane/index.hpp>

#include <array>
#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <type_traits>

namespace headlane {

/// The highest rank that any function accepts.
inline constexpr int max_rank = 8;

namespace detail {

[[noreturn]] HEADLANE_HIDDEN inline void view_error(const char* function, const char* argument,
                                                    Index value, Index limit) {
  char text[128];  // a sum of strings took 4 KB of code in each file
  std::snprintf(text, sizeof(text), "View::%s: %s is %lld, the limit is %lld", function, argument,
                static_cast<long long>(value), static_cast<long long>(limit));
  throw std::invalid_argument(text);
}

HEADLANE_HIDDEN constexpr void check_range(const char* function, const char* argument, Index value,
                                           Index low, Index high) {
  if (value < low || value > high) view_error(function, argument, value, value < low ? low : high);
}

// Wraps instead of overflowing: a function reports a view that is too large for memory.
HEADLANE_HIDDEN constexpr Index wrapping_product(Index a, Index b) {
  return static_cast<Index>(static_cast<std::size_t>(a) * static_cast<std::size_t>(b));
}

// Strides of a dense row-major array.
template <std::size_t Rank>
HEADLANE_HIDDEN constexpr std::array<Index, Rank> dense_strides(
    const std::array<Index, Rank>& shape) {
  std::array<Index, Rank> strides{};
  Index stride = 1;
  for (std::size_t axis = Rank; axis-- > 0;) {
    strides[axis] = stride;
    stride = wrapping_product(stride, shape[axis]);
  }
  return strides;
}

}  // namespace detail

/// A strided array of `Rank` axes. Element [i, j, …] is at `data[i·strides[0] + j·strides[1] + …]`.
/// Strides may be 0 (broadcast, inputs only) or negative. Copying a View copies no elements.
template <class T, int Rank>
struct View {
  static_assert(Rank >= 1 && Rank <= max_rank);
  using Extents = std::array<Index, static_cast<std::size_t>(Rank)>;

  T* data = nullptr;
  Extents shape{};
  Extents strides{};

  HEADLANE_HIDDEN constexpr View() = default;

  /// Dense, row-major: the last axis has stride 1.
  HEADLANE_HIDDEN constexpr View(T* data_, const Extents& shape_)
      : data(data_), shape(shape_), strides(detail::dense_strides(shape_)) {}

  HEADLANE_HIDDEN constexpr View(T* data_, const Extents& shape_, const Extents& strides_)
      : data(data_), shape(shape_), strides(strides_) {}

  /// View<float, R> converts to View<const float, R>.
  template <class U>
    requires(std::is_same_v<T, const U> && !std::is_const_v<U>)
  // NOLINTNEXTLINE(google-explicit-constructor): it converts
  HEADLANE_HIDDEN constexpr View(const View<U, Rank>& other)
      : data(other.data), shape(other.shape), strides(other.strides) {}

  /// True if data is not null. An option that is not given is a view without data.
  HEADLANE_HIDDEN constexpr explicit operator bool() const { return data != nullptr; }

  /// Number of elements along an axis; a negative axis counts from the last one.
  [[nodiscard]] HEADLANE_HIDDEN constexpr Index size(int axis) const {
    return shape[position(axis)];
  }
  [[nodiscard]] HEADLANE_HIDDEN constexpr Index stride(int axis) const {
    return strides[position(axis)];
  }

  /// One element. Not checked.
  template <class... Positions>
    requires(sizeof...(Positions) == static_cast<std::size_t>(Rank))
  HEADLANE_HIDDEN constexpr T& operator()(Positions... positions) const {
    const Extents at{static_cast<Index>(positions)...};
    Index offset = 0;
    for (std::size_t axis = 0; axis < at.size(); ++axis) offset += at[axis] * strides[axis];
    return data[offset];
  }

  /// Exchanges the last two axes.
  [[nodiscard]] HEADLANE_HIDDEN constexpr View transposed() const
    requires(Rank >= 2)
  {
    View result = *this;
    constexpr auto last = static_cast<std::size_t>(Rank - 1);
    result.shape[last] = shape[last - 1];
    result.shape[last - 1] = shape[last];
    result.strides[last] = strides[last - 1];
    result.strides[last - 1] = strides[last];
    return result;
  }

  /// Axis `i` of the result is axis `axes[i]` of this view. Throws std::invalid_argument if `axes`
  /// is not a permutation.
  [[nodiscard]] HEADLANE_HIDDEN constexpr View permuted(
      const std::array<int, static_cast<std::size_t>(Rank)>& axes) const {
    View result = *this;
    unsigned named = 0;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      detail::check_range("permuted", "axis", axes[i], 0, Rank - 1);
      named |= 1u << static_cast<unsigned>(axes[i]);
      result.shape[i] = shape[static_cast<std::size_t>(axes[i])];
      result.strides[i] = strides[static_cast<std::size_t>(axes[i])];
    }
    if (named != (1u << Rank) - 1)
      throw std::invalid_argument("View::permuted: an axis is named twice");
    return result;
  }

  /// Elements begin … end - 1 along one axis. Throws std::invalid_argument unless
  /// 0 <= begin <= end <= size.
  [[nodiscard]] HEADLANE_HIDDEN constexpr View slice(int axis, Index begin, Index end) const {
    const std::size_t at = position(axis);
    detail::check_range("slice", "end", end, 0, shape[at]);
    detail::check_range("slice", "begin", begin, 0, end);
    View result = *this;
    result.shape[at] = end - begin;
    result.data = result.start(at, begin);
    return result;
  }

  /// Position `i` along one axis, which is removed. Throws std::invalid_argument
  /// unless 0 <= i < size.
  [[nodiscard]] HEADLANE_HIDDEN constexpr View<T, Rank - 1> select(int axis, Index i) const
    requires(Rank >= 2)
  {
    const std::size_t at = position(axis);
    detail::check_range("select", "position", i, 0, shape[at] - 1);
    View<T, Rank - 1> result;
    result.data = start(at, i);
    for (std::size_t from = 0, to = 0; from < shape.size(); ++from) {
      if (from == at) continue;
      result.shape[to] = shape[from];
      result.strides[to++] = strides[from];
    }
    return result;
  }

  /// Splits an axis of n elements into [n / inner, inner]. [L, 512].split(1, 64) is [L, 8, 64]:
  /// head h has the columns 64·h … 64·h + 63. Throws std::invalid_argument unless inner > 0 and
  /// inner divides n.
  [[nodiscard]] HEADLANE_HIDDEN constexpr View<T, Rank + 1> split(int axis, Index inner) const
    requires(Rank < max_rank)
  {
    const std::size_t at = position(axis);
    detail::check_range("split", "inner", inner, 1, shape[at] > 0 ? shape[at] : 1);
    if (shape[at] % inner != 0)
      detail::view_error("split", "size modulo inner", shape[at] % inner, 0);
    View<T, Rank + 1> result;
    result.data = data;
    for (std::size_t from = 0, to = 0; from < shape.size(); ++from) {
      result.shape[to] = from == at ? shape[from] / inner : shape[from];
      result.strides[to++] =
          from == at ? detail::wrapping_product(strides[from], inner) : strides[from];
      if (from != at) continue;
      result.shape[to] = inner;
      result.strides[to++] = strides[from];
    }
    return result;
  }

  /// Inserts an axis of size n and stride 0 before axis `axis` (0 … Rank): all positions along it
  /// are the same element.
  [[nodiscard]] HEADLANE_HIDDEN constexpr View<T, Rank + 1> broadcast(int axis, Index n) const
    requires(Rank < max_rank)
  {
    detail::check_range("broadcast", "axis", axis, 0, Rank);
    View<T, Rank + 1> result;
    result.data = data;
    for (std::size_t from = 0, to = 0; to < result.shape.size(); ++to) {
      const bool added = to == static_cast<std::size_t>(axis);
      result.shape[to] = added ? n : shape[from];
      result.strides[to] = added ? 0 : strides[from];
      from += added ? 0 : 1;
    }
    return result;
  }

 private:
  HEADLANE_HIDDEN static constexpr std::size_t position(int axis) {
    const int at = axis < 0 ? axis + Rank : axis;
    detail::check_range("axis", "axis", at, 0, Rank - 1);
    return static_cast<std::size_t>(at);
  }

  // The address of position `i` along an axis. Without elements it is `data` as it is, which may be
  // null and has no other addresses.
  [[nodiscard]] HEADLANE_HIDDEN constexpr T* start(std::size_t axis, Index i) const {
    for (const Index n : shape)
      if (n == 0) return data;
    return data + i * strides[axis];
  }
};

/// A View whose rank is known only at run time, for functions that accept any rank. A View converts
/// to it.
template <class T>
struct AnyView {
  T* data = nullptr;
  int rank = 0;
  std::array<Index, static_cast<std::size_t>(max_rank)> shape{};
  std::array<Index, static_cast<std::size_t>(max_rank)> strides{};

  AnyView() = default;

  template <class U, int Rank>
    requires(std::is_same_v<T, U> || std::is_same_v<T, const U>)
  // NOLINTNEXTLINE(google-explicit-constructor): it converts
  HEADLANE_HIDDEN AnyView(const View<U, Rank>& view) : data(view.data), rank(Rank) {
    for (std::size_t axis = 0; axis < view.shape.size(); ++axis) {
      shape[axis] = view.shape[axis];
      strides[axis] = view.strides[axis];
    }
  }

  /// True if data is not null, as View.
  HEADLANE_HIDDEN constexpr explicit operator bool() const { return data != nullptr; }
};

}  // namespace headlane
