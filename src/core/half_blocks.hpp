// Functions of tensors in bfloat16 and float16: block by block, a task widens x to float32 scratch
// that stays in its caches, calls the function of float32 on one thread, and rounds the result.
#pragma once

#include "core/convert.hpp"

#include <headlane/floating_view.hpp>
#include <headlane/view.hpp>

#include <array>
#include <cstddef>

namespace headlane::internal {

/// A box of the positions of a tensor.
struct Block {
  std::array<Index, static_cast<std::size_t>(max_rank)> first{}, count{1, 1, 1, 1, 1, 1, 1, 1};

  /// This part of a view of the same shape, which may lack axis `without`. A view that is not given
  /// stays so.
  template <class T>
  [[nodiscard]] AnyView<T> of(AnyView<T> view, int without = max_rank) const {
    if (!view) return view;
    for (int axis = 0; axis < view.rank; ++axis) {
      const auto at = static_cast<std::size_t>(axis), from = static_cast<std::size_t>(axis < without ? axis : axis + 1);
      view.data += first[from] * view.strides[at];
      view.shape[at] = count[from];
    }
    return view;
  }
  [[nodiscard]] AnyFloatingView of(const AnyFloatingView& view) const {
    return view.visit([&](const auto& typed) { return AnyFloatingView(of(typed)); });
  }
};

/// The axes of a tensor, the outermost first; those of one element may be missing.
struct AxisOrder {
  std::array<int, static_cast<std::size_t>(max_rank)> axis{};
  std::size_t rank = 0;
  bool divides_last = false;  ///< whether the last one may be divided
};
/// As they are, but `last` at the end.
AxisOrder order_with_last(int rank, int last);
/// By falling stride; any axis may be divided.
AxisOrder order_by_step(const HalfOutput& view);

/// Calls f(block, rows) for all blocks: `rows` is the block of x, which f replaces by that of y.
/// Both are checked, and not empty. Without x, f gets memory to fill.
using BlockFunction = void (*)(const void* context, const Block& block, const AnyView<float>& rows);
void for_half_blocks(const kernels::KernelTable& kernel, const HalfInput* x, const HalfOutput& y,
                     const AxisOrder& order, int threads, BlockFunction f, const void* context);
template <class F>
void for_half_blocks(const kernels::KernelTable& kernel, const HalfInput* x, const HalfOutput& y,
                     const AxisOrder& order, int threads, const F& f) {
  const auto call = [](const void* context, const Block& block, const AnyView<float>& rows) {
    (*static_cast<const F*>(context))(block, rows);
  };
  for_half_blocks(kernel, x, y, order, threads, call, &f);
}

}  // namespace headlane::internal
