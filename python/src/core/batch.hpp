// Batch axes: all axes of an array but the last two or three, broadcast by NumPy's rules with
// stride 0.
#pragma once

#include "core/result.hpp"

#include <algorithm>

namespace headlane::python {

class Batch {
 public:
  /// `inner`: the number of axes at the end that are not batch axes.
  explicit Batch(int inner) : inner_(inner) {}

  /// Includes the batch axes of an operand; throws ValueError if they do not broadcast to those so
  /// far.
  void widen(const Array& operand) {
    const int axes = std::max(0, operand.rank() - inner_);
    if (axes > rank_) {  // align to the right
      std::move_backward(sizes_.begin(), sizes_.begin() + rank_, sizes_.begin() + axes);
      std::fill(sizes_.begin(), sizes_.begin() + (axes - rank_), 1);
      rank_ = axes;
    }
    for (int i = 0; i < axes; ++i) {
      const Index size = operand.size(i);
      Index& common = sizes_[static_cast<std::size_t>(i + rank_ - axes)];
      if (common == 1) common = size;
      operand.call().require(size == 1 || size == common, "axis ", i, " of ", operand.name(), " of shape ", operand,
                             " does not broadcast: it has ", size, " elements, other arguments have ", common);
    }
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] Index size(int axis) const { return sizes_[static_cast<std::size_t>(axis)]; }

  /// The operand's stride along a batch axis: 0 where it is broadcast.
  [[nodiscard]] Index stride(const Array& operand, int axis) const {
    const int own = axis - (rank_ - (operand.rank() - inner_));
    return own < 0 || operand.size(own) == 1 ? 0 : operand.stride(own);
  }

  /// Calls f(at) for every position along the first `axes` axes.
  template <class F>
  void for_each(int axes, F f) const {
    Position at{};
    for (int axis = 0; axis < axes; ++axis)
      if (size(axis) == 0) return;
    while (true) {
      f(std::as_const(at));
      int axis = axes;
      while (axis > 0 && ++at[static_cast<std::size_t>(axis - 1)] == size(axis - 1))
        at[static_cast<std::size_t>(--axis)] = 0;
      if (axis == 0) return;
    }
  }

  using Position = std::array<Index, static_cast<std::size_t>(max_rank)>;

  /// The offset of the operand's matrix at a position from the operand's first element.
  [[nodiscard]] Index offset(const Array& operand, int axes, const Position& at) const {
    Index offset = 0;
    for (int axis = 0; axis < axes; ++axis) offset += at[static_cast<std::size_t>(axis)] * stride(operand, axis);
    return offset;
  }

 private:
  int inner_;
  int rank_ = 0;
  Position sizes_{};
};

}  // namespace headlane::python
