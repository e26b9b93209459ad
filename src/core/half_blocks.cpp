#include "core/half_blocks.hpp"

#include "core/check.hpp"
#include "core/parallel.hpp"
#include "core/round.hpp"
#include "core/scratch.hpp"

#include <algorithm>
#include <cstdlib>

namespace headlane::internal {
namespace {

/// 32 KiB of float32, which stay in a near cache beside the 16-bit numbers.
constexpr Index block_elements = 8192;
/// As many 16-bit numbers as fill a cache line.
constexpr Index line = 32;

/// The stride of an axis of one element is arbitrary.
Index magnitude_of_step(const HalfOutput& view, int axis) {
  const auto at = static_cast<std::size_t>(axis);
  return view.shape[at] == 1 ? 0 : std::abs(view.strides[at]);
}

/// The blocks of a tensor that is not empty. A block has some thousand elements: all of the inner
/// axes, some positions of the next one, and one of each that is further out.
class Blocks {
 public:
  Blocks(const HalfOutput& view, const AxisOrder& order);

  [[nodiscard]] Index count() const { return count_; }
  [[nodiscard]] Index max_elements() const { return max_elements_; }
  [[nodiscard]] Block operator[](Index block) const;

 private:
  std::array<Index, static_cast<std::size_t>(max_rank)> shape_{}, step_{};  // of the axes; positions of a block
  AxisOrder order_;
  Index count_ = 1, max_elements_ = 1;
};

Blocks::Blocks(const HalfOutput& view, const AxisOrder& order) : shape_(view.shape), order_(order) {
  step_.fill(1);
  const std::size_t last = order.rank - 1;
  for (std::size_t i = order.rank; i-- > 0;) {
    const auto axis = static_cast<std::size_t>(order.axis[i]);
    const Index size = shape_[axis], room = std::max<Index>(block_elements / max_elements_, 1);
    const bool is_closer = magnitude_of_step(view, order.axis[i]) < magnitude_of_step(view, order.axis[last]);
    const bool is_whole = i == last && !order.divides_last;
    step_[axis] = is_whole ? size : std::min(std::max(room, is_closer ? line : Index{1}), size);
    max_elements_ *= step_[axis];
    if (step_[axis] == size) continue;
    for (std::size_t outer = 0; outer < i; ++outer) count_ *= shape_[static_cast<std::size_t>(order.axis[outer])];
    count_ *= ceil_div(size, step_[axis]);
    return;
  }
}

Block Blocks::operator[](Index block) const {
  Block result;
  for (std::size_t i = order_.rank; i-- > 0;) {
    const auto axis = static_cast<std::size_t>(order_.axis[i]);
    const Index parts = ceil_div(shape_[axis], step_[axis]);
    result.first[axis] = block % parts * step_[axis];
    result.count[axis] = std::min(step_[axis], shape_[axis] - result.first[axis]);
    block /= parts;
  }
  return result;
}

}  // namespace

AxisOrder order_with_last(int rank, int last) {
  AxisOrder order;
  for (int axis = 0; axis < rank; ++axis)
    if (axis != last) order.axis[order.rank++] = axis;
  order.axis[order.rank++] = last;
  return order;
}

AxisOrder order_by_step(const HalfOutput& view) {
  AxisOrder order{.divides_last = true};
  const Axes axes = axes_by_step(Caller("").operand("", view));
  for (std::size_t i = axes.count; i-- > 0;) order.axis[order.rank++] = axes.axis[i];
  return order;
}

void for_half_blocks(const kernels::KernelTable& kernel, const HalfInput* x, const HalfOutput& y,
                     const AxisOrder& order, int threads, BlockFunction f, const void* context) {
  const Blocks blocks(y, order);
  parallel_parts(blocks.count(), 1, threads, [&](Index first, Index end) {
    float* memory = scratch(Purpose::half, blocks.max_elements());
    for (Index i = first; i < end; ++i) {
      const Block block = blocks[i];
      const HalfOutput to(block.of<std::uint16_t>(y), y.type);
      const AnyView<float> rows = dense_like(as_input(to), memory);
      if (x != nullptr) convert_all(kernel, HalfInput(block.of<const std::uint16_t>(*x), x->type), rows, 1);
      f(context, block, rows);
      convert_all(kernel, as_input(rows), to, 1);
    }
  });
}

}  // namespace headlane::internal
