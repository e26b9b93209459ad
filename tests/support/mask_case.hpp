// Masks and biases of attention: random contents, any layout, broadcast along any axes.
#pragma once

#include "support/attention_case.hpp"

#include <memory>

namespace headlane::test {

/// Elements of another type with the shape and strides of a Tensor.
template <class T>
class StridedArray {
 public:
  explicit StridedArray(const std::array<Index, 4>& shape, const Layout& layout = {}) {
    const Tensor<4> model(shape, layout);
    const Reach reach = reach_of(shape, model.view.strides);
    elements_ = std::make_unique<T[]>(static_cast<std::size_t>(reach.high - reach.low + 1));
    view = {elements_.get() - reach.low, shape, model.view.strides};
  }

  View<T, 4> view;

 private:
  std::unique_ptr<T[]> elements_;
};

using Mask = StridedArray<bool>;
using MaskBits = StridedArray<std::uint8_t>;  ///< the last axis counts bytes

/// Shape of the scores; if bit i of `broadcast` is set, axis i has one element.
inline std::array<Index, 4> score_shape(const AttentionSizes& s, unsigned broadcast = 0) {
  std::array<Index, 4> shape{s.batch, s.q_heads, s.q_length, s.kv_length};
  for (std::size_t axis = 0; axis < 4; ++axis)
    if ((broadcast >> axis & 1u) != 0) shape[axis] = std::min<Index>(shape[axis], 1);
  return shape;
}

/// Broadcasts axes of one element to `shape`, with stride 0.
template <class T>
View<T, 4> stretched(View<T, 4> view, const std::array<Index, 4>& shape) {
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (view.shape[axis] != shape[axis]) view.strides[axis] = 0;
    view.shape[axis] = shape[axis];
  }
  return view;
}

/// One key in `one_in` is masked.
inline Mask random_mask(const std::array<Index, 4>& shape, Random& random, Index one_in, const Layout& layout = {}) {
  Mask mask(shape, layout);
  for_each(mask.view, [&](bool& visible) { visible = random.integer(1, one_in) != 1; });
  return mask;
}

/// Normally distributed; one in `one_in` is -inf.
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
