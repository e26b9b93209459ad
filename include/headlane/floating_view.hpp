// FloatingView and AnyFloatingView: views whose element type, float32, bfloat16 or float16, is
// known only at run time.
#pragma once

#include <headlane/dtype.hpp>
#include <headlane/export.h>
#include <headlane/view.hpp>

#include <array>
#include <cstddef>
#include <type_traits>

namespace headlane {

namespace detail {

template <class T>
HEADLANE_HIDDEN constexpr DType floating_type() {
  using Element = std::remove_const_t<T>;
  static_assert(std::is_same_v<Element, float> || std::is_same_v<Element, bfloat16> ||
                std::is_same_v<Element, float16>);
  return std::is_same_v<Element, float>      ? DType::float32
         : std::is_same_v<Element, bfloat16> ? DType::bfloat16
                                             : DType::float16;
}

}  // namespace detail

/// An input that may be of float32, bfloat16 or float16. A View of any of these converts to it.
template <int Rank>
struct FloatingView {
  using Extents = typename View<const float, Rank>::Extents;

  const void* data = nullptr;
  DType type = DType::float32;
  Extents shape{};
  Extents strides{};

  HEADLANE_HIDDEN constexpr FloatingView() = default;

  template <class T>
  // NOLINTNEXTLINE(google-explicit-constructor): it converts
  HEADLANE_HIDDEN constexpr FloatingView(const View<T, Rank>& view)
      : data(view.data),
        type(detail::floating_type<T>()),
        shape(view.shape),
        strides(view.strides) {}
  template <class T>
  HEADLANE_HIDDEN constexpr FloatingView(const T* data_, const Extents& shape_)
      : FloatingView(View<const T, Rank>(data_, shape_)) {}
  template <class T>
  HEADLANE_HIDDEN constexpr FloatingView(const T* data_, const Extents& shape_,
                                         const Extents& strides_)
      : FloatingView(View<const T, Rank>(data_, shape_, strides_)) {}

  /// True if data is not null.
  HEADLANE_HIDDEN constexpr explicit operator bool() const { return data != nullptr; }

  /// The same elements as a View. T is float, bfloat16 or float16, as `type` says: not checked.
  template <class T>
  [[nodiscard]] HEADLANE_HIDDEN View<const T, Rank> of() const {
    return {static_cast<const T*>(data), shape, strides};
  }

  /// Returns f(view), where view is a View of the elements' type.
  template <class F>
  HEADLANE_HIDDEN auto visit(const F& f) const {
    if (type == DType::bfloat16) return f(of<bfloat16>());
    if (type == DType::float16) return f(of<float16>());
    return f(of<float>());
  }

  /// One element, widened exactly. Not checked.
  template <class... Positions>
  HEADLANE_HIDDEN float operator()(Positions... positions) const {
    return visit([&](const auto& view) { return static_cast<float>(view(positions...)); });
  }

  /// As View::slice.
  [[nodiscard]] HEADLANE_HIDDEN FloatingView slice(int axis, Index begin, Index end) const {
    return visit([&](const auto& view) { return FloatingView(view.slice(axis, begin, end)); });
  }
};

/// A FloatingView whose rank is known only at run time. A View or AnyView of these types and a
/// FloatingView convert to it.
struct AnyFloatingView {
  const void* data = nullptr;
  DType type = DType::float32;
  int rank = 0;
  std::array<Index, static_cast<std::size_t>(max_rank)> shape{};
  std::array<Index, static_cast<std::size_t>(max_rank)> strides{};

  AnyFloatingView() = default;

  template <class T>
  // NOLINTNEXTLINE(google-explicit-constructor): it converts
  HEADLANE_HIDDEN AnyFloatingView(const AnyView<T>& view)
      : data(view.data),
        type(detail::floating_type<T>()),
        rank(view.rank),
        shape(view.shape),
        strides(view.strides) {}
  template <class T, int Rank>
  // NOLINTNEXTLINE(google-explicit-constructor): it converts
  HEADLANE_HIDDEN AnyFloatingView(const View<T, Rank>& view) : AnyFloatingView(AnyView<T>(view)) {}
  template <int Rank>
  // NOLINTNEXTLINE(google-explicit-constructor): it converts
  HEADLANE_HIDDEN AnyFloatingView(const FloatingView<Rank>& view)
      : AnyFloatingView(view.template of<float>()) {
    type = view.type;
  }

  /// True if data is not null.
  HEADLANE_HIDDEN constexpr explicit operator bool() const { return data != nullptr; }

  /// As FloatingView::of.
  template <class T>
  [[nodiscard]] HEADLANE_HIDDEN AnyView<const T> of() const {
    AnyView<const T> view;
    view.data = static_cast<const T*>(data);
    view.rank = rank;
    view.shape = shape;
    view.strides = strides;
    return view;
  }

  /// As FloatingView::visit.
  template <class F>
  HEADLANE_HIDDEN auto visit(const F& f) const {
    if (type == DType::bfloat16) return f(of<bfloat16>());
    if (type == DType::float16) return f(of<float16>());
    return f(of<float>());
  }
};

}  // namespace headlane
