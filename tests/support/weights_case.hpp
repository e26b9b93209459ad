// Inputs and outputs of attention_weights and attention_key_sums.
#pragma once

#include "support/cache_case.hpp"
#include "support/tolerance.hpp"

#include <headlane/attention_weights.hpp>

namespace headlane::test {

/// The last axis of weights must have stride 1.
inline const std::vector<Layout> inner_layouts{{}, {.name = "padded", .padding = 5}, {"BSHD", Order::middle}};

struct Weights {
  AttentionTensors t;
  Tensor<4> weights;
  Tensor<3> sums;
  Weights(const AttentionSizes& s, std::uint64_t seed, const Layout& in = {}, const Layout& to = {})
      : t(s, seed, in),
        weights(score_shape(s), to),
        sums({s.batch, s.q_heads, s.kv_length}, {.name = "padded", .padding = to.padding}) {}
  void run(const AttentionOptions& o) const { attention_weights(t.q.view, t.k.view, weights.view, o); }
};

/// The rows of the weights added in their order.
inline void add_rows(const View<float, 4>& weights, const View<float, 3>& sums) {
  for_each(sums, [](float& x) { x = 0; });
  for_each_position(weights.shape, [&](const auto& p) { sums(p[0], p[1], p[3]) += weights(p[0], p[1], p[2], p[3]); });
}

}  // namespace headlane::test
