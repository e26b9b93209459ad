// attention with very large and very small numbers, and over many keys.
#include "support/compare_attention.hpp"
#include "support/mask_case.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>

#include <limits>

namespace headlane::test {
namespace {

// Scales queries, keys and values by powers of 2, so that the exact results are the same.
void multiply(const AttentionTensors& t, float q, float k, float v) {
  for_each(t.q.view, [&](float& x) { x *= q; });
  for_each(t.k.view, [&](float& x) { x *= k; });
  for_each(t.v.view, [&](float& x) { x *= v; });
}

TEST_CASE("attention: factors that cancel, up to 2^60, and values up to 2^100") {
  const AttentionSizes s{.q_heads = 2, .kv_heads = 1, .q_length = 15, .kv_length = 90, .head_dim = 33, .value_dim = 20};
  for (const auto& [q, k, v] : {std::array<float, 3>{0x1p60f, 0x1p-60f, 1.0f},
                                {0x1p-60f, 0x1p60f, 0x1p-60f},
                                {0x1p-100f, 0x1p100f, 0x1p100f}}) {
    const AttentionTensors plain(s, 1), extreme(s, 1);
    multiply(extreme, q, k, v);
    plain.run(causal(75));
    extreme.run(causal(75));
    compare_with_oracle(extreme, causal(75), text_of(s, causal(75)), 1);
    for_each(plain.out.view, [&](float& x) { x *= v; });
    CHECK(different_bits(extreme.out.view, plain.out.view) == 0);
    CHECK(different_bits(extreme.lse.view, plain.lse.view) == 0);
  }
}

TEST_CASE("attention: scores of 10,000, where one key has all the weight") {
  for (const float scale : {1e3f, -1e3f, 1e4f}) {
    const AttentionSizes s{.q_length = 20, .kv_length = 600, .head_dim = 8};
    const AttentionTensors t(s, 2);
    for_each(t.q.view, [](float& x) { x = std::round(4 * x) / 4; });  // the scores are exact, and so is the largest
    for_each(t.k.view, [](float& x) { x = std::round(4 * x) / 4; });
    t.run(scaled(scale));
    const AttentionReference expected = attention_reference(t.q.view, t.k.view, t.v.view, scaled(scale));
    Comparison out("attention", "large scores", 2);
    std::size_t at = 0;
    for_each_position(t.out.view.shape, [&](const auto& p) {
      const double bound = 100 * unit * expected.weighted[at];  // exact scores: no term with their size
      out.add({p[2], p[3]}, t.out.view(0, 0, p[2], p[3]), expected.out[at++], bound);
    });
    out.finish();
  }
}

TEST_CASE("attention: products that underflow or are tiny give all keys the same weight") {
  const AttentionSizes s{.q_length = 5, .kv_length = 40, .head_dim = 16, .value_dim = 8};
  const AttentionTensors t(s, 3);
  multiply(t, 1e-30f, 1e-30f, 1.0f);
  t.run();
  compare_with_oracle(t, {}, "inputs of 1e-30", 3);
}

TEST_CASE("attention: a bias of -FLT_MAX masks a key beside others; for all keys it changes nothing") {
  constexpr float lowest = std::numeric_limits<float>::lowest();
  const AttentionSizes s{.q_length = 6, .kv_length = 560, .head_dim = 16, .value_dim = 8};
  const AttentionTensors some(s, 4), all(s, 4), masked(s, 4), even(s, 4);
  Tensor<4> bias(score_shape(s));
  Mask mask(score_shape(s));
  for_each_position(bias.view.shape, [&](const auto& p) {
    mask.view(p[0], p[1], p[2], p[3]) = (p[2] + p[3]) % 3 == 0;
    bias.view(p[0], p[1], p[2], p[3]) = mask.view(p[0], p[1], p[2], p[3]) ? 0 : lowest;
  });
  some.run(with_bias({}, bias.view));
  masked.run(with_mask({}, mask.view));
  CHECK(different_bits(some.out.view, masked.out.view) == 0);
  for_each(bias.view, [&](float& x) { x = lowest; });
  all.run(with_bias({}, bias.view));
  for_each(even.q.view, [](float& x) { x = 0; });
  even.run();
  CHECK(different_bits(all.out.view, even.out.view) == 0);
}

TEST_CASE("attention: the error over many keys") {
  for (const Index keys : {3000, slow_isa() ? 5000 : 30000}) {
    const AttentionSizes s{.q_length = 2, .kv_length = keys, .head_dim = 16};
    const AttentionTensors t(s, 5);
    t.run();
    compare_with_oracle(t, {}, text_of(s, {}), 5);
  }
}

}  // namespace
}  // namespace headlane::test
