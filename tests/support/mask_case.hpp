// Bool masks and float biases with random contents, any layout, broadcast along any axes.
#pragma once

#include "support/attention_case.hpp"

#include <memory>

namespace headlane::test {

/// A copy of a view's strides over flags of its own, which are filled with values that are not read elsewhere.
class Mask {
 public:
  using Shape = std::array<Index, 4>;

  explicit Mask(const Shape& shape, const Layout& layout = {}) : model_(shape, layout) {
    Index low = 0, high = 0;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      const Index reach = std::max<Index>(shape[axis] - 1, 0) * model_.view.strides[axis];
      (reach < 0 ? low : high) += reach;
    }
    flags_ = std::make_unique<bool[]>(static_cast<std::size_t>(high - low + 1));
    view = {flags_.get() - low, shape, model_.view.strides};
  }

  View<bool, 4> view;

 private:
  Tensor<4> model_;  // for its strides
  std::unique_ptr<bool[]> flags_;
};

/// The sizes of scores; bit i of `broadcast` makes axis i 1 long.
inline std::array<Index, 4> score_shape(const AttentionSizes& s, unsigned broadcast = 0) {
  std::array<Index, 4> shape{s.batch, s.q_heads, s.q_length, s.kv_length};
  for (std::size_t axis = 0; axis < 4; ++axis)
    if ((broadcast >> axis & 1u) != 0) shape[axis] = std::min<Index>(shape[axis], 1);
  return shape;
}

/// Axes of one element stretched to `shape`, with stride 0.
template <class T>
View<T, 4> stretched(View<T, 4> view, const std::array<Index, 4>& shape) {
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (view.shape[axis] != shape[axis]) view.strides[axis] = 0;
    view.shape[axis] = shape[axis];
  }
  return view;
}

/// One flag in `one_in` is false.
inline Mask random_mask(const std::array<Index, 4>& shape, Random& random, Index one_in, const Layout& layout = {}) {
  Mask mask(shape, layout);
  for_each(mask.view, [&](bool& seen) { seen = random.integer(1, one_in) != 1; });
  return mask;
}

/// Normal numbers; one in `one_in` is -inf.
inline Tensor<4> random_bias(const std::array<Index, 4>& shape, Random& random, Index one_in,
                             const Layout& layout = {}) {
  Tensor<4> bias(shape, layout);
  for_each(bias.view, [&](float& b) { b = random.integer(1, one_in) == 1 ? -infinity : random.normal(); });
  return bias;
}

inline AttentionOptions with_mask(AttentionOptions options, const View<const bool, 4>& mask) {
  options.mask = mask;
  return options;
}

inline AttentionOptions with_bias(AttentionOptions options, const View<const float, 4>& bias) {
  options.bias = bias;
  return options;
}

}  // namespace headlane::test
