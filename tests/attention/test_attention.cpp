// attention against the oracle: sizes, layouts, causal offsets, grouped heads, scale, log-sum-exp.
#include "support/attention_case.hpp"
#include "support/compare_attention.hpp"
#include "support/scope.hpp"

namespace headlane::test {
namespace {

void check_attention(const AttentionSizes& s, const AttentionOptions& options = {}, std::uint64_t seed = 1,
                     const Layout& layout = {}) {
  const AttentionTensors t(s, seed, layout);
  const std::string text = text_of(s, options) + ", layout " + layout.name;
  t.run(options);
  compare_with_oracle(t, options, text, seed);
  CHECK_MESSAGE(t.out.surroundings_untouched(), text);
  CHECK_MESSAGE(t.lse.surroundings_untouched(), text);
  const Tensor<4> without_lse(t.out.view.shape);
  attention(t.q.view, t.k.view, t.v.view, without_lse.view, options);
  CHECK_MESSAGE(different_bits(t.out.view, without_lse.view) == 0, text);
}

TEST_CASE("attention: every query and key length") {
  for (const Index length : tail_sizes) {
    check_attention({1, 1, 1, length, 17, 16, 16}, {}, 2);
    check_attention({1, 2, 1, 3, length, 24, 16}, {}, 3);
    check_attention({1, 1, 1, 13, length, 8, 33}, causal(length - 13), 4);
  }
  for (const Index length : {7, 16, 33, 65, 129, 200}) {
    check_attention({2, 2, 2, length, length, 64, 64}, {}, 5);
    check_attention({2, 2, 2, length, length, 64, 64}, causal(0), 6);
  }
  check_attention({0, 2, 2, 5, 5, 8, 8});
  check_attention({2, 0, 1, 5, 5, 8, 8});
}

TEST_CASE("attention: every head_dim, value_dim alike or not") {
  for (const Index dim :
       {1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 80, 96, 127, 128, 129, 192, 255, 256}) {
    check_attention({1, 2, 2, 14, 37, dim, dim}, {}, 11);
    check_attention({1, 1, 1, 5, 21, dim, 20}, causal(3), 12);
    check_attention({1, 1, 1, 5, 21, 12, dim}, causal(16), 13);
    check_attention({1, 1, 1, 2, 530, dim, dim}, {}, 14);
  }
}

TEST_CASE("attention: several blocks of keys") {
  for (const Index kv : {511, 512, 513, 1023, 1024, 1025, 1500, 1537}) {
    check_attention({1, 2, 1, 15, kv, 64, 64}, {}, 21);
    check_attention({1, 1, 1, 31, kv, 32, 48}, causal(kv - 31), 22);
    check_attention({1, 1, 1, 40, kv, 16, 16}, causal(500), 23);
    check_attention({1, 1, 1, 1, kv, 64, 64}, scaled(2.0f), 24);
  }
  if (!slow_isa()) check_attention({1, 1, 1, 1100, 1100, 64, 64}, causal(0), 25);
}

TEST_CASE("attention: causal offsets; a row without keys is 0 and -inf") {
  for (const Index offset : {-2000, -40, -20, -19, -5, -1, 0, 1, 7, 16, 30, 50, 2000}) {
    check_attention({1, 2, 2, 20, 33, 16, 16}, causal(offset), 31);
    check_attention({2, 4, 2, 33, 20, 16, 24}, causal(offset), 32);
  }
  constexpr Index far = Index{1} << 62;
  for (const Index offset : {far, -far, std::numeric_limits<Index>::max(), std::numeric_limits<Index>::min()}) {
    const AttentionTensors t({1, 1, 1, 20, 33, 16, 16}, 33), same({1, 1, 1, 20, 33, 16, 16}, 33);
    t.run(causal(offset));
    same.run(causal(offset > 0 ? 100 : -100));
    CHECK(different_bits(t.out.view, same.out.view) == 0);
    CHECK(different_bits(t.lse.view, same.lse.view) == 0);
  }
  const AttentionTensors t({2, 2, 1, 5, 0, 16, 19}, 34);
  t.run();
  for_each(t.out.view, [](float x) { CHECK(std::bit_cast<std::uint32_t>(x) == 0); });
  for_each(t.lse.view, [](float x) { CHECK(x == -infinity); });
}

TEST_CASE("attention: scale absent, 0, negative, large; grouped heads") {
  for (const float scale : {0.0f, -0.125f, -1.0f, 0.3f, 1.0f, 4.0f}) {
    check_attention({1, 1, 1, 17, 45, 64, 64}, scaled(scale), 41);
    check_attention({1, 1, 1, 6, 600, 20, 20}, scaled(scale), 42);
  }
  for (const Index kv_heads : {1, 2, 3, 4, 6, 12}) {
    check_attention({2, 12, kv_heads, 9, 31, 16, 16}, {}, 43);
    check_attention({2, 12, kv_heads, 1, 31, 16, 16}, causal(25), 44);
  }
}

TEST_CASE("attention: every layout of every operand") {
  std::vector<Layout> all = layouts();
  all.push_back({"BSHD", Order::middle});
  all.push_back({"BSHD padded, misaligned", Order::middle, 1, 9, false, 3});
  for (const Layout& layout : all) {
    check_attention({2, 4, 2, 19, 35, 20, 36}, causal(10), 51, layout);
    check_attention({1, 2, 2, 13, 530, 16, 17}, {}, 52, layout);
  }
  Random random(53);
  const AttentionSizes s{2, 2, 1, 21, 40, 24, 18};
  for (int i = 0; i < 60; ++i) {
    const AttentionTensors t(s, 54, random.pick(all), random.pick(all), random.pick(all), random.pick(all));
    t.run(causal(15));
    compare_with_oracle(t, causal(15), text_of(s, causal(15)) + ", random layouts", 54);
    CHECK(t.out.surroundings_untouched());
  }
}

TEST_CASE("attention: the stride of an axis of one element may be any number") {
  for (const Index rows : {1, 3, 60}) {
    const AttentionSizes s{1, 2, 2, rows, 1, 20, 24};
    const AttentionTensors near(s, 9), far(s, 9);
    View<const float, 4> k = far.k.view, v = far.v.view;
    for (auto* view : {&k, &v}) view->strides[0] = view->strides[2] = std::numeric_limits<Index>::max();
    near.run();
    attention(far.q.view, k, v, far.out.view, far.with_lse({}));
    CHECK(different_bits(far.out.view, near.out.view) == 0);
    CHECK(different_bits(far.lse.view, near.lse.view) == 0);
  }
}

TEST_CASE("attention: random problems") {
  Random random(61);
  for (int i = 0; i < (slow_isa() ? 200 : 2000); ++i) {
    AttentionSizes s;
    s.batch = random.integer(1, 2);
    s.kv_heads = random.integer(1, 3);
    s.q_heads = s.kv_heads * random.integer(1, 3);
    s.q_length = random.integer(1, 40);
    s.kv_length = i % 20 == 0 ? random.integer(500, 1100) : random.integer(1, 90);
    s.head_dim = i % 20 == 1 ? random.integer(1, 256) : random.integer(1, 40);
    s.value_dim = i % 20 == 2 ? random.integer(1, 256) : random.integer(1, 40);
    AttentionOptions options;
    if (random.integer(0, 1) == 1) options = causal(random.integer(-s.q_length, s.kv_length));
    if (random.integer(0, 2) == 0) options.scale = random.uniform();
    check_attention(s, options, random.next() % 100000, random.pick(layouts()));
  }
}

TEST_CASE("attention: packed QKV, [batch, sequence, 3, head, dim]") {
  Random random(71);
  for (const Index length : {1, 16, 50, 600}) {
    const Tensor<5> packed = random_tensor<5>({2, length, 3, 2, 24}, random);
    const auto part = [&](Index i) { return packed.view.select(2, i).permuted({0, 2, 1, 3}); };
    const AttentionTensors t({2, 2, 2, length, length, 24, 24}, 72);
    attention(part(0), part(1), part(2), t.out.view, t.with_lse(causal(0)));
    copy<4>(part(0), t.q.view);
    copy<4>(part(1), t.k.view);
    copy<4>(part(2), t.v.view);
    compare_with_oracle(t, causal(0), "packed QKV", 71);
  }
}

TEST_CASE("multi_head_attention: attention of views, by bits") {
  struct Heads {
    Index batch, heads, kv_heads, head_dim, value_dim;
  };
  for (const Heads& h : {Heads{1, 8, 8, 64, 64}, {2, 4, 2, 16, 24}, {3, 6, 1, 5, 7}, {1, 1, 1, 33, 33}}) {
    const AttentionTensors t({h.batch, h.heads, h.kv_heads, 17, 30, h.head_dim, h.value_dim}, 81,
                             {"BSHD", Order::middle});
    t.run(causal(9));
    const View<float, 3> q(t.q.view.data, {h.batch, 17, h.heads * h.head_dim});
    const View<float, 3> k(t.k.view.data, {h.batch, 30, h.kv_heads * h.head_dim});
    const View<float, 3> v(t.v.view.data, {h.batch, 30, h.kv_heads * h.value_dim});
    const Tensor<4> out({h.batch, 17, h.heads, h.value_dim});
    const Tensor<3> lse({h.batch, h.heads, 17});
    AttentionOptions options = causal(9);
    options.lse = lse.view;
    multi_head_attention(q, k, v, View<float, 3>(out.view.data, {h.batch, 17, h.heads * h.value_dim}), h.heads,
                         options);
    CHECK(different_bits(out.view.permuted({0, 2, 1, 3}), t.out.view) == 0);
    CHECK(different_bits(lse.view, t.lse.view) == 0);

    const View<float, 2> one_out(out.view.data, {17, h.heads * h.value_dim});
    for_each(out.view, [](float& x) { x = 0; });
    options.lse = lse.view.slice(0, 0, 1);
    multi_head_attention(q.select(0, 0), k.select(0, 0), v.select(0, 0), one_out, h.heads, options);
    CHECK(different_bits(out.view.permuted({0, 2, 1, 3}).slice(0, 0, 1), t.out.view.slice(0, 0, 1)) == 0);
  }
}

}  // namespace
}  // namespace headlane::test
