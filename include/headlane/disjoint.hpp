// Overlap checks for callers that write one output by several calls.
#pragma once

#include <headlane/export.h>
#include <headlane/floating_view.hpp>

#include <array>
#include <cstddef>
#include <span>

namespace headlane {

/// An argument of any element type, and its name for messages.
struct NamedView {
  const char* name = "";
  const void* data = nullptr;
  int rank = 0;
  std::array<Index, static_cast<std::size_t>(max_rank)> shape{};
  std::array<Index, static_cast<std::size_t>(max_rank)> strides{};
  std::size_t element_size = 1;

  template <class T>
  HEADLANE_HIDDEN NamedView(const char* name_, const AnyView<T>& view)
      : name(name_),
        data(view.data),
        rank(view.rank),
        shape(view.shape),
        strides(view.strides),
        element_size(sizeof(T)) {}
  template <class T, int Rank>
  HEADLANE_HIDDEN NamedView(const char* name_, const View<T, Rank>& view)
      : NamedView(name_, AnyView<T>(view)) {}
  HEADLANE_HIDDEN NamedView(const char* name_, const AnyFloatingView& view)
      : NamedView(name_, view.of<float>()) {
    element_size = static_cast<std::size_t>(size_of(view.type));
  }
};

/// Checks that an output neither overlaps itself nor an input.
///
/// Every function of the library checks its own arguments. A caller that walks over the leading
/// axes of larger arrays, and calls a function at each position, checks the whole arrays first: no
/// single call sees that one of them writes what a later one reads.
///
/// Aliasing: arguments that interleave, such as different columns of one buffer, do not overlap if
///   they are apart modulo the greatest common divisor of the strides of both, those of adjacent
///   elements left out; otherwise they count as overlapping. Elements [.., q] of a buffer [m, n, 4]
///   are apart with rows of 16 elements, not with rows of 18. Inputs may overlap each other. An
///   input without data is skipped.
/// Errors: std::invalid_argument, "function: out of shape [2, 3] overlaps a of shape [3]", if there
///   is an overlap, or if the output has no data.
HEADLANE_API void require_disjoint(const char* function, const NamedView& output,
                                   std::span<const NamedView> inputs);

}  // namespace headlane
