// The library's views of arrays.
#pragma once

#include "core/array.hpp"

#include <algorithm>
#include <span>

namespace headlane::python {

/// All axes of an array; an array without axes is one element.
template <class T>
AnyView<T> any_view(const Array& x) {
  AnyView<T> view;
  view.data = x.data<T>();
  view.rank = std::max(1, x.rank());
  view.shape[0] = 1;
  for (int axis = 0; axis < x.rank(); ++axis) {
    view.shape[static_cast<std::size_t>(axis)] = x.size(axis);
    view.strides[static_cast<std::size_t>(axis)] = x.stride(axis);
  }
  return view;
}

/// All axes of an array that has at most Rank of them; the missing ones come first, with size 1.
template <class T, int Rank>
View<T, Rank> view_of(const Array& x) {
  View<T, Rank> view;
  view.data = x.data<T>();
  for (int axis = 0; axis < Rank; ++axis) {
    const int own = axis - (Rank - x.rank());
    view.shape[static_cast<std::size_t>(axis)] = own < 0 ? 1 : x.size(own);
    view.strides[static_cast<std::size_t>(axis)] = own < 0 ? 0 : x.stride(own);
  }
  return view;
}

/// A view of floats, with the type that the elements of the array have.
inline AnyFloatingView typed(AnyFloatingView view, const Array& x) {
  view.type = x.type();
  return view;
}
template <int Rank>
FloatingView<Rank> typed(const View<const float, Rank>& floats, const Array& x) {
  FloatingView<Rank> view = floats;
  view.type = x.type();
  return view;
}

/// NumPy's broadcasting: writes the strides with which `x` is read as an array of `shape`. Throws
/// ValueError if it does not broadcast to it; the message names that array with `what`.
inline void broadcast_strides(const Array& x, std::span<const Index> shape, Index* strides,
                              std::string_view what = "") {
  const int missing = static_cast<int>(shape.size()) - x.rank();
  bool fits = missing >= 0;
  for (int axis = 0; fits && axis < static_cast<int>(shape.size()); ++axis) {
    const auto at = static_cast<std::size_t>(axis);
    const Index size = axis < missing ? 1 : x.size(axis - missing);
    fits = size == 1 || size == shape[at];
    strides[at] = size == 1 ? 0 : x.stride(axis - missing);
  }
  x.require(fits, " of shape ", x, " does not broadcast to ", what, shape);
}

}  // namespace headlane::python
