// The common axes of several arrays, joined where strides allow: some are passed to the library,
// the others are walked over.
#pragma once

#include <headlane/index.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace headlane::python {

template <std::size_t Arrays>
class CommonAxes {
 public:
  /// A number for each array: its stride, or the offset of an element from its first one.
  using Steps = std::array<Index, Arrays>;

  struct Axis {
    Index size = 1;
    Steps strides{};
  };

  /// Adds the next axis, from the outermost to the innermost. It is joined to the axis before it if
  /// it continues that in every array.
  void add(Index size, const Steps& strides) {
    if (size == 1) return;
    if (!axes_.empty() && continues(size, strides)) axes_.back() = {axes_.back().size * size, strides};
    else axes_.push_back({size, strides});
  }

  /// Removes and returns the longest axis; one of size 1 if there is none left.
  Axis take_longest() {
    if (axes_.empty()) return {};
    const auto longest =
        std::max_element(axes_.begin(), axes_.end(), [](const Axis& a, const Axis& b) { return a.size < b.size; });
    const Axis axis = *longest;
    axes_.erase(longest);
    return axis;
  }

  /// Calls f(offsets) for every position along the remaining axes.
  template <class F>
  void for_each(F f) const {
    Index positions = 1;
    for (const Axis& axis : axes_) positions *= axis.size;
    for (Index position = 0; position < positions; ++position) {
      Steps offsets{};
      Index rest = position;
      for (std::size_t i = axes_.size(); i-- > 0; rest /= axes_[i].size)
        for (std::size_t array = 0; array < Arrays; ++array)
          offsets[array] += rest % axes_[i].size * axes_[i].strides[array];
      f(std::as_const(offsets));
    }
  }

 private:
  [[nodiscard]] bool continues(Index size, const Steps& strides) const {
    const Steps& outer = axes_.back().strides;
    return std::equal(outer.begin(), outer.end(), strides.begin(), [&](Index o, Index i) { return o == size * i; });
  }

  std::vector<Axis> axes_;
};

}  // namespace headlane::python
