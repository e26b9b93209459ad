// attention against the oracle: sizes, layouts, causal offsets, grouped heads, scale, log-sum-exp.
#include "support/attention_case.hpp"
#include "support/compare_attention.hpp"
#include "support/scope.hpp"

namespace headlane::test {
namespace {

// Against the oracle, and once more without the log-sum-exp: the same bits.
void check_both(const AttentionCase& c) {
  const AttentionTensors t = check_attention(c);
  const Tensor<4> without_lse(t.out.view.shape);
  attention(t.q.view, t.k.view, t.v.view, without_lse.view, c.options);
  CHECK_MESSAGE(different_bits(t.out.view, without_lse.view) == 0, text_of(c.sizes, c.options));
}

TEST_CASE("attention: every query and key length") {
  for (const Index length : tail_sizes) {
    check_both({.sizes = {.q_length = length, .kv_length = 17, .head_dim = 16}, .seed = 2});
    check_both(
        {.sizes = {.q_heads = 2, .kv_heads = 1, .q_length = 3, .kv_length = length, .head_dim = 24, .value_dim = 16},
         .seed = 3});
    check_both({.sizes = {.q_length = 13, .kv_length = length, .head_dim = 8, .value_dim = 33},
                .options = causal(length - 13),
                .seed = 4});
  }
  for (const Index length : {7, 16, 33, 65, 129, 200}) {
    check_both({.sizes = {.batch = 2, .q_heads = 2, .q_length = length, .kv_length = length}, .seed = 5});
    check_both({.sizes = {.batch = 2, .q_heads = 2, .q_length = length, .kv_length = length},
                .options = causal(0),
                .seed = 6});
  }
  check_both({.sizes = {.batch = 0, .q_heads = 2, .q_length = 5, .kv_length = 5, .head_dim = 8}});
  check_both({.sizes = {.batch = 2, .q_heads = 0, .kv_heads = 1, .q_length = 5, .kv_length = 5, .head_dim = 8}});
}

TEST_CASE("attention: every head_dim, value_dim alike or not") {
  for (const Index dim :
       {1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 80, 96, 127, 128, 129, 192, 255, 256}) {
    check_both({.sizes = {.q_heads = 2, .q_length = 14, .kv_length = 37, .head_dim = dim}, .seed = 11});
    check_both({.sizes = {.q_length = 5, .kv_length = 21, .head_dim = dim, .value_dim = 20},
                .options = causal(3),
                .seed = 12});
    check_both({.sizes = {.q_length = 5, .kv_length = 21, .head_dim = 12, .value_dim = dim},
                .options = causal(16),
                .seed = 13});
    check_both({.sizes = {.q_length = 2, .kv_length = 530, .head_dim = dim}, .seed = 14});
  }
}

TEST_CASE("attention: several blocks of keys") {
  for (const Index kv : {511, 512, 513, 1023, 1024, 1025, 1500, 1537}) {
    check_both({.sizes = {.q_heads = 2, .kv_heads = 1, .q_length = 15, .kv_length = kv}, .seed = 21});
    check_both({.sizes = {.q_length = 31, .kv_length = kv, .head_dim = 32, .value_dim = 48},
                .options = causal(kv - 31),
                .seed = 22});
    check_both({.sizes = {.q_length = 40, .kv_length = kv, .head_dim = 16}, .options = causal(500), .seed = 23});
    check_both({.sizes = {.kv_length = kv}, .options = scaled(2.0f), .seed = 24});
  }
  if (!slow_isa()) check_both({.sizes = {.q_length = 1100, .kv_length = 1100}, .options = causal(0), .seed = 25});
}

TEST_CASE("attention: causal offsets; a row without keys is 0 and -inf") {
  for (const Index offset : {-2000, -40, -20, -19, -5, -1, 0, 1, 7, 16, 30, 50, 2000}) {
    check_both({.sizes = {.q_heads = 2, .q_length = 20, .kv_length = 33, .head_dim = 16},
                .options = causal(offset),
                .seed = 31});
    check_both({.sizes = {.batch = 2,
                          .q_heads = 4,
                          .kv_heads = 2,
                          .q_length = 33,
                          .kv_length = 20,
                          .head_dim = 16,
                          .value_dim = 24},
                .options = causal(offset),
                .seed = 32});
  }
  constexpr Index far = Index{1} << 62;
  for (const Index offset : {far, -far, std::numeric_limits<Index>::max(), std::numeric_limits<Index>::min()}) {
    const AttentionTensors t({.q_length = 20, .kv_length = 33, .head_dim = 16}, 33),
        same({.q_length = 20, .kv_length = 33, .head_dim = 16}, 33);
    t.run(causal(offset));
    same.run(causal(offset > 0 ? 100 : -100));
    CHECK(different_bits(t.out.view, same.out.view) == 0);
    CHECK(different_bits(t.lse.view, same.lse.view) == 0);
  }
  const AttentionTensors t(
      {.batch = 2, .q_heads = 2, .kv_heads = 1, .q_length = 5, .kv_length = 0, .head_dim = 16, .value_dim = 19}, 34);
  t.run();
  for_each(t.out.view, [](float x) { CHECK(std::bit_cast<std::uint32_t>(x) == 0); });
  for_each(t.lse.view, [](float x) { CHECK(x == -infinity); });
}

TEST_CASE("attention: scale absent, 0, negative, large; grouped heads") {
  for (const float scale : {0.0f, -0.125f, -1.0f, 0.3f, 1.0f, 4.0f}) {
    check_both({.sizes = {.q_length = 17, .kv_length = 45}, .options = scaled(scale), .seed = 41});
    check_both({.sizes = {.q_length = 6, .kv_length = 600, .head_dim = 20}, .options = scaled(scale), .seed = 42});
  }
  for (const Index kv_heads : {1, 2, 3, 4, 6, 12}) {
    check_both(
        {.sizes = {.batch = 2, .q_heads = 12, .kv_heads = kv_heads, .q_length = 9, .kv_length = 31, .head_dim = 16},
         .seed = 43});
    check_both({.sizes = {.batch = 2, .q_heads = 12, .kv_heads = kv_heads, .kv_length = 31, .head_dim = 16},
                .options = causal(25),
                .seed = 44});
  }
}

TEST_CASE("attention: every layout of every operand") {
  std::vector<Layout> all = layouts();
  all.push_back({"BSHD", Order::middle});
  all.push_back({.name = "BSHD padded, misaligned", .order = Order::middle, .padding = 9, .misalignment = 3});
  for (const Layout& layout : all) {
    check_both({.sizes = {.batch = 2,
                          .q_heads = 4,
                          .kv_heads = 2,
                          .q_length = 19,
                          .kv_length = 35,
                          .head_dim = 20,
                          .value_dim = 36},
                .options = causal(10),
                .seed = 51,
                .layout = layout});
    check_both({.sizes = {.q_heads = 2, .q_length = 13, .kv_length = 530, .head_dim = 16, .value_dim = 17},
                .seed = 52,
                .layout = layout});
  }
  Random random(53);
  const AttentionSizes s{
      .batch = 2, .q_heads = 2, .kv_heads = 1, .q_length = 21, .kv_length = 40, .head_dim = 24, .value_dim = 18};
  for (int i = 0; i < 60; ++i) {
    const AttentionTensors t(s, 54, random.pick(all), random.pick(all), random.pick(all), random.pick(all));
    t.run(causal(15));
    compare_with_oracle(t, causal(15), text_of(s, causal(15)) + ", random layouts", 54);
    CHECK(t.out.surroundings_untouched());
  }
}

TEST_CASE("attention: the stride of an axis of one element may be any number") {
  for (const Index rows : {1, 3, 60}) {
    const AttentionSizes s{.q_heads = 2, .q_length = rows, .head_dim = 20, .value_dim = 24};
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
    check_both({.sizes = s, .options = options, .seed = random.next() % 100000, .layout = random.pick(layouts())});
  }
}

TEST_CASE("attention: packed QKV, [batch, sequence, 3, head, dim]") {
  Random random(71);
  for (const Index length : {1, 16, 50, 600}) {
    const Tensor<5> packed = random_tensor<5>({2, length, 3, 2, 24}, random);
    const auto part = [&](Index i) { return packed.view.select(2, i).permuted({0, 2, 1, 3}); };
    const AttentionTensors t({.batch = 2, .q_heads = 2, .q_length = length, .kv_length = length, .head_dim = 24}, 72);
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
  for (const Heads& h : {Heads{.batch = 1, .heads = 8, .kv_heads = 8, .head_dim = 64, .value_dim = 64},
                         {.batch = 2, .heads = 4, .kv_heads = 2, .head_dim = 16, .value_dim = 24},
                         {.batch = 3, .heads = 6, .kv_heads = 1, .head_dim = 5, .value_dim = 7},
                         {.batch = 1, .heads = 1, .kv_heads = 1, .head_dim = 33, .value_dim = 33}}) {
    const AttentionTensors t({.batch = h.batch,
                              .q_heads = h.heads,
                              .kv_heads = h.kv_heads,
                              .q_length = 17,
                              .kv_length = 30,
                              .head_dim = h.head_dim,
                              .value_dim = h.value_dim},
                             81, {"BSHD", Order::middle});
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
