// Attention probabilities of some query rows and one block of keys.
#pragma once

#include "kernels/attention/scores.hpp"

namespace headlane::internal::kernels {
namespace {

/// exp(score - max) · factor for the keys begin … end-1 of a row, 0 where one is masked; stored,
/// and added to the sums of the keys.
template <class Arch>
HEADLANE_INLINE void row_weights(const float* scores, Index begin, Index end, float max, float factor, float* weights,
                                 float* key_sums) {
  using V = Lanes<Arch>;
  const V minus_inf = V::broadcast(-__builtin_inff()), scale = V::broadcast(factor);
  const V m = V::broadcast(max == -__builtin_inff() ? 0.0f : max);
  for (Index j = begin / lanes * lanes; j < end; j += lanes) {
    const Index count = end - j < lanes ? end - j : lanes;
    const V score = V::load(scores + j).first(count, minus_inf).without_first(begin - j, minus_inf);
    V x[1] = {score - m};
    exp_nonpositive(x);
    const V weight = select_equal(score, minus_inf, V::zero(), x[0] * scale);  // the factor may be NaN
    if (weights != nullptr) weight.store(weights + j, count);
    if (key_sums != nullptr) (V::load(key_sums + j, count, 0.0f) + weight).store(key_sums + j, count);
  }
}

template <class Arch, int Rows>
HEADLANE_INLINE void weights_tile(const AttentionBlock& block, const AttentionWeights& to, Index row) {
  const VisibleRange visible = visible_to<Arch, Rows>(block, row);
  if (visible.end == 0) return;
  alignas(64) float largest[lanes];
  tile_scores<Arch, Rows>(block, row, visible, largest);
  for (int i = 0; i < Rows; ++i) {
    const Index r = row + i;
    if (block.key_end[r] > block.key_begin[r])
      row_weights<Arch>(block.scores + i * packed_row_stride, block.key_begin[r], block.key_end[r], to.max[r],
                        to.factor[r], to.weights == nullptr ? nullptr : to.weights + r * to.row_step, to.key_sums);
  }
}

template <class Arch>
void attention_weights(const AttentionBlock& block, const AttentionWeights& to) noexcept {
  for_each_row_tile<Tile<Arch>>(block.rows,
                                [&](Index row, auto rows) { weights_tile<Arch, rows.value>(block, to, row); });
}

}  // namespace
}  // namespace headlane::internal::kernels
