// A bias of bfloat16 or float16: the bits of one that is widened beforehand, in each function that
// takes one, for tensors of any type.
#include "support/attention_case.hpp"
#include "support/half_tensor.hpp"
#include "support/illegal.hpp"
#include "support/mask_case.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <limits>
#include <vector>

namespace headlane::test {
namespace {

const AttentionSizes sizes{
    .batch = 2, .q_heads = 4, .kv_heads = 2, .q_length = 19, .kv_length = 533, .head_dim = 24, .value_dim = 17};

/// A bias in 16 bits and the same widened, both as large as the scores.
template <class T>
struct Bias {
  Tensor<4> any;
  HalfTensor<T, 4> half;
  Tensor<4> wide;

  explicit Bias(unsigned broadcast, const Layout& layout = {}, std::uint64_t seed = 1)
      : any(drawn(broadcast, seed)), half(any.view, layout), wide(half.widened()) {}

  [[nodiscard]] View<const T, 4> given() const { return stretched<const T>(half.view, score_shape(sizes)); }
  [[nodiscard]] View<const float, 4> widened() const { return stretched<const float>(wide.view, score_shape(sizes)); }

 private:
  static Tensor<4> drawn(unsigned broadcast, std::uint64_t seed) {
    Random random(seed);
    return random_bias(score_shape(sizes, broadcast), random, 7);
  }
};

TEST_CASE_TEMPLATE("a bias of 16 bits: attention of float32 in any layout, broadcast along any axes", T, bfloat16,
                   float16) {
  const AttentionTensors t(sizes, 2);
  const Tensor<4> out(t.out.view.shape);
  for (unsigned broadcast = 0; broadcast < 16; ++broadcast) {
    const Layout& layout = layouts()[broadcast % layouts().size()];
    const Bias<T> bias(broadcast, layout, broadcast);
    for (const int threads : {1, 3}) {
      AttentionOptions options{.causal = true, .causal_offset = 500, .bias = bias.widened(), .num_threads = threads};
      attention(t.q.view, t.k.view, t.v.view, t.out.view, options);
      options.bias = bias.given();
      attention(t.q.view, t.k.view, t.v.view, out.view, options);
      CHECK_MESSAGE(different_bits(out.view, t.out.view) == 0, name_of_half<T>(), ", broadcast ", broadcast,
                    ", threads ", threads, ", isa ", isa());
    }
    CHECK(bias.half.surroundings_untouched());
  }
}

TEST_CASE_TEMPLATE("a bias of 16 bits: every function that takes one", T, bfloat16, float16) {
  const Bias<T> bias(5);
  const AttentionTensors t(sizes, 2);
  const HalfTensor<T, 4> q(t.q.view), k(t.k.view), v(t.v.view);
  KvCache cache(2, 24, 17, {.type = DType::int8});
  const std::vector<Index> sequences{cache.add(), cache.add()};
  cache.append(sequences, t.k.view, t.v.view);
  const auto bits = [&](const FloatingView<4>& given) {
    std::vector<std::uint32_t> all;
    const auto keep = [&](const auto& view) {
      for_each(view, [&](const auto& x) { all.push_back(bits_of(static_cast<float>(x))); });
    };
    const AttentionOptions options{.bias = given};
    const HalfTensor<T, 4> out(t.out.view.shape), weights(score_shape(sizes));
    const Tensor<4> wide_out(t.out.view.shape), wide_weights(score_shape(sizes));
    const Tensor<3> sums({2, 4, 533});
    attention(q.view, k.view, v.view, out.view, options);
    keep(out.view);
    attention(q.view, cache, sequences, out.view, options);
    keep(out.view);
    attention(t.q.view, cache, sequences, wide_out.view, options);
    keep(wide_out.view);
    attention_weights(q.view, k.view, weights.view, options);
    keep(weights.view);
    attention_weights(t.q.view, t.k.view, wide_weights.view, options);
    keep(wide_weights.view);
    attention_key_sums(t.q.view, t.k.view, sums.view, options);
    keep(sums.view);
    return all;
  };
  CHECK(bits(bias.given()) == bits(bias.widened()));
}

/// The layer has copies of its own for tensors of 16 bits while attention copies the bias.
TEST_CASE_TEMPLATE("a bias of 16 bits: MultiHeadAttention", T, bfloat16, float16) {
  Random random(4);
  const Tensor<2> in_proj = random_tensor<2>({96, 32}, random), out_proj = random_tensor<2>({32, 32}, random);
  const MultiHeadAttention layer({{"in_proj_weight", in_proj.view}, {"out_proj.weight", out_proj.view}}, "",
                                 {.heads = 4});
  const Tensor<3> x = random_tensor<3>({2, 19, 32}, random), y({2, 19, 32}), expected({2, 19, 32});
  const HalfTensor<T, 3> half_x(x.view), half_y({2, 19, 32});
  const HalfTensor<T, 4> bias(random_tensor<4>({2, 4, 19, 19}, random).view);
  const Tensor<4> wide = bias.widened();
  layer.forward(x.view, expected.view, {.bias = wide.view});
  layer.forward(x.view, y.view, {.bias = bias.view});
  CHECK(different_bits(y.view, expected.view) == 0);
  const Tensor<3> wide_x = half_x.widened();
  layer.forward(wide_x.view, expected.view, {.bias = wide.view});
  layer.forward(half_x.view, half_y.view, {.bias = bias.view});
  CHECK(different_from_rounded(half_y.view, expected.view) == 0);
}

TEST_CASE_TEMPLATE("a bias of 16 bits: sequences of variable length, and no elements", T, bfloat16, float16) {
  const AttentionSizes s{.q_heads = 2, .kv_heads = 2, .q_length = 12, .kv_length = 20, .head_dim = 8, .value_dim = 8};
  const AttentionTensors t(s, 2);
  const Tensor<4> out(t.out.view.shape);
  const std::vector<Index> query_starts{0, 5, 5, 12}, key_starts{0, 9, 13, 20};
  Random random(3);
  const HalfTensor<T, 4> bias(random_bias({1, 2, 12, 9}, random, 4).view);
  const Tensor<4> wide = bias.widened();
  AttentionOptions options{
      .bias = wide.view, .query_starts = {query_starts.data(), {4}}, .key_starts = {key_starts.data(), {4}}};
  attention(t.q.view, t.k.view, t.v.view, t.out.view, options);
  options.bias = bias.view;
  attention(t.q.view, t.k.view, t.v.view, out.view, options);
  CHECK(different_bits(out.view, t.out.view) == 0);
  const View<const T, 4> none(bias.view.data, {1, 2, 12, 0}, {7, 1, std::numeric_limits<Index>::max(), 1});
  attention(t.q.view, t.k.view.slice(2, 0, 0), t.v.view.slice(2, 0, 0), out.view, {.bias = none});
  for_each(out.view, [](float x) { CHECK(x == 0.0f); });
}

}  // namespace
}  // namespace headlane::test
