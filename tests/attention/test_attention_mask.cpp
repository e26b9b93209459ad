// attention with a mask, a bias, or both: against the oracle, bit-identical equivalents, and NaN
// and infinity in masked keys.
#include "support/compare_attention.hpp"
#include "support/mask_case.hpp"
#include "support/scope.hpp"

namespace headlane::test {
namespace {

void check_same_bits(const AttentionSizes& s, const AttentionOptions& x, const AttentionOptions& y, const char* what) {
  const AttentionTensors a(s, 77), b(s, 77);
  a.run(x);
  b.run(y);
  const std::string text = text_of(s, x) + ", isa " + std::string(isa()) + ": " + what;
  CHECK_MESSAGE(different_bits(a.out.view, b.out.view) == 0, text);
  CHECK_MESSAGE(different_bits(a.lse.view, b.lse.view) == 0, text);
}

TEST_CASE("attention: every key and query length with mask and bias") {
  Random random(1);
  for (const Index length : tail_sizes) {
    for (const AttentionSizes& s :
         {AttentionSizes{
              .q_heads = 2, .kv_heads = 1, .q_length = 3, .kv_length = length, .head_dim = 24, .value_dim = 16},
          {.batch = 2, .q_length = length, .kv_length = 19, .head_dim = 8, .value_dim = 33}}) {
      const Mask mask = random_mask(score_shape(s), random, 3);
      const Tensor<4> bias = random_bias(score_shape(s), random, 5);
      check_attention({.sizes = s, .options = with_mask({}, mask.view), .seed = 2});
      check_attention({.sizes = s, .options = with_bias({}, bias.view), .seed = 3});
      check_attention(
          {.sizes = s, .options = with_bias(with_mask(causal(s.kv_length / 2), mask.view), bias.view), .seed = 4});
    }
  }
}

TEST_CASE("attention: masks and biases broadcast along any axes, in any layout") {
  Random random(11);
  std::vector<Layout> all = layouts();
  all.push_back({"middle", Order::middle});
  const AttentionSizes s{
      .batch = 2, .q_heads = 4, .kv_heads = 2, .q_length = 13, .kv_length = 37, .head_dim = 20, .value_dim = 18};
  for (unsigned broadcast = 0; broadcast < 16; ++broadcast) {
    for (const Layout& layout : all) {
      const std::array<Index, 4> whole = score_shape(s), part = score_shape(s, broadcast);
      const Mask mask = random_mask(part, random, 4, layout);
      const Tensor<4> bias = random_bias(part, random, 6, layout);
      check_attention({.sizes = s, .options = with_mask({}, stretched<const bool>(mask.view, whole)), .seed = 12});
      check_attention(
          {.sizes = s, .options = with_bias(causal(20), stretched<const float>(bias.view, whole)), .seed = 13});
    }
  }
}

TEST_CASE("attention: random problems with mask and bias") {
  Random random(21);
  for (int i = 0; i < (slow_isa() ? 150 : 1000); ++i) {
    AttentionSizes s;
    s.batch = random.integer(1, 2);
    s.kv_heads = random.integer(1, 2);
    s.q_heads = s.kv_heads * random.integer(1, 3);
    s.q_length = random.integer(1, 40);
    s.kv_length = i % 20 == 0 ? random.integer(500, 1100) : random.integer(1, 90);
    s.head_dim = random.integer(1, 40);
    s.value_dim = random.integer(1, 40);
    AttentionOptions options;
    if (random.integer(0, 1) == 1) options = causal(random.integer(-s.q_length, s.kv_length));
    const Layout& layout = random.pick(layouts());
    const Mask mask =
        random_mask(score_shape(s, static_cast<unsigned>(random.integer(0, 15))), random, random.integer(1, 8), layout);
    const Tensor<4> bias =
        random_bias(score_shape(s, static_cast<unsigned>(random.integer(0, 15))), random, random.integer(1, 8), layout);
    const Index which = random.integer(0, 2);
    if (which != 0) options.mask = stretched<const bool>(mask.view, score_shape(s));
    if (which != 1) options.bias = stretched<const float>(bias.view, score_shape(s));
    check_attention({.sizes = s, .options = options, .seed = random.next() % 100000, .layout = random.pick(layouts())});
  }
}

TEST_CASE("attention: an all-true mask changes no bit; mask, bias of -inf and causal are equivalent") {
  for (const AttentionSizes& s : {AttentionSizes{.q_heads = 2, .q_length = 33, .kv_length = 40},
                                  {.batch = 2,
                                   .q_heads = 2,
                                   .kv_heads = 1,
                                   .q_length = 14,
                                   .kv_length = 1060,
                                   .head_dim = 16,
                                   .value_dim = 20}}) {
    Mask all(score_shape(s)), lower(score_shape(s));
    const Tensor<4> zero(score_shape(s)), hidden(score_shape(s));
    const Index offset = s.kv_length - s.q_length - 3;
    for_each_position(score_shape(s), [&](const auto& p) {
      const bool visible = p[3] <= p[2] + offset;
      all.view(p[0], p[1], p[2], p[3]) = true;
      lower.view(p[0], p[1], p[2], p[3]) = visible;
      zero.view(p[0], p[1], p[2], p[3]) = 0;
      hidden.view(p[0], p[1], p[2], p[3]) = visible ? 0 : -infinity;
    });
    check_same_bits(s, {}, with_mask({}, all.view), "a mask of true");
    check_same_bits(s, {}, with_bias({}, zero.view), "a bias of 0");
    check_same_bits(s, causal(offset), with_mask({}, lower.view), "a causal mask");
    check_same_bits(s, causal(offset), with_bias({}, hidden.view), "a causal bias");
    check_same_bits(s, causal(offset), with_bias(with_mask(causal(offset), lower.view), hidden.view), "all of them");
  }
}

TEST_CASE("attention: padding is bit-identical to absent keys") {
  for (const Index kv_length : {37, 600, 1100}) {
    const AttentionSizes s{
        .q_heads = 2, .kv_heads = 1, .q_length = 15, .kv_length = kv_length, .head_dim = 16, .value_dim = 20};
    for (const Index kept : {Index{0}, Index{1}, Index{17}, kv_length / 2, kv_length - 1}) {
      Mask mask({1, 1, 1, kv_length});
      for_each_position(mask.view.shape, [&](const auto& p) { mask.view(0, 0, 0, p[3]) = p[3] < kept; });
      const AttentionTensors padded(s, 31), shorter(s, 31);
      padded.run(with_mask({}, stretched<const bool>(mask.view, score_shape(s))));
      attention(shorter.q.view, shorter.k.view.slice(2, 0, kept), shorter.v.view.slice(2, 0, kept), shorter.out.view,
                shorter.with_lse({}));
      CHECK_MESSAGE(different_bits(padded.out.view, shorter.out.view) == 0, "kv ", kv_length, ", kept ", kept);
      CHECK_MESSAGE(different_bits(padded.lse.view, shorter.lse.view) == 0, "kv ", kv_length, ", kept ", kept);
    }
  }
  // The first block of the grid masked: the same as attention without it.
  const AttentionSizes s{.q_length = 15, .kv_length = 1100, .head_dim = 16, .value_dim = 20};
  Mask mask({1, 1, 1, 1100});
  for_each_position(mask.view.shape, [&](const auto& p) { mask.view(0, 0, 0, p[3]) = p[3] >= 512; });
  const AttentionTensors padded(s, 32), shorter(s, 32);
  padded.run(with_mask({}, stretched<const bool>(mask.view, score_shape(s))));
  attention(shorter.q.view, shorter.k.view.slice(2, 512, 1100), shorter.v.view.slice(2, 512, 1100), shorter.out.view,
            shorter.with_lse({}));
  CHECK(different_bits(padded.out.view, shorter.out.view) == 0);
  CHECK(different_bits(padded.lse.view, shorter.lse.view) == 0);
}

TEST_CASE("attention: with mask and bias the same bits for every thread count, instruction set, slice and broadcast") {
  const AttentionSizes s{
      .batch = 2, .q_heads = 4, .kv_heads = 2, .q_length = 40, .kv_length = 530, .head_dim = 24, .value_dim = 40};
  Random random(41);
  const Mask mask = random_mask(score_shape(s, 2), random, 3);
  const Tensor<4> bias = random_bias(score_shape(s, 1), random, 9);
  const View<const bool, 4> all_mask = stretched<const bool>(mask.view, score_shape(s));
  const View<const float, 4> all_bias = stretched<const float>(bias.view, score_shape(s));
  const AttentionOptions options = with_bias(with_mask(causal(505), all_mask), all_bias);
  const AttentionTensors baseline(s, 42);
  {
    const IsaScope scope(available_isas().front());
    baseline.run(options);
  }
  for (const int threads : {1, 2, 3, 4, 7}) {
    const AttentionTensors t(s, 42);
    AttentionOptions on_threads = options;
    on_threads.num_threads = threads;
    t.run(on_threads);
    CHECK_MESSAGE(different_bits(t.out.view, baseline.out.view) == 0, "isa ", isa(), ", ", threads, " threads");
    CHECK_MESSAGE(different_bits(t.lse.view, baseline.lse.view) == 0, "isa ", isa(), ", ", threads, " threads");
  }
  const AttentionTensors t(s, 42);
  for (Index i = 0; i < s.q_length; ++i) {
    AttentionOptions one = causal(505 + i);
    one.mask = all_mask.slice(2, i, i + 1);
    one.bias = all_bias.slice(2, i, i + 1);
    one.lse = t.lse.view.slice(2, i, i + 1);
    attention(t.q.view.slice(2, i, i + 1), t.k.view, t.v.view, t.out.view.slice(2, i, i + 1), one);
  }
  CHECK(different_bits(t.out.view, baseline.out.view) == 0);
  CHECK(different_bits(t.lse.view, baseline.lse.view) == 0);
}

TEST_CASE("attention: a result of -0 does not depend on the keys visible to other rows of the tile") {
  const float least = 0x1p-149f, q[] = {1, 1}, k[] = {0, -2, -2}, v[] = {0, -least, 1};
  for (const bool by_mask : {false, true}) {
    float both[2], alone = nan;
    const bool visible[] = {true, true, false, true, true, true};
    AttentionOptions options = scaled(1);
    options.causal = !by_mask;
    options.causal_offset = 1;
    if (by_mask) options.mask = View<const bool, 4>(visible, {1, 1, 2, 3});
    const View<const float, 4> two_queries(q, {1, 1, 2, 1}), keys(k, {1, 1, 3, 1}), values(v, {1, 1, 3, 1});
    attention(two_queries, keys, values, View<float, 4>(both, {1, 1, 2, 1}), options);
    attention(two_queries.slice(2, 0, 1), keys.slice(2, 0, 2), values.slice(2, 0, 2),
              View<float, 4>(&alone, {1, 1, 1, 1}), scaled(1));
    CHECK(both[0] == 0);
    CHECK(bits_of(both[0]) == bits_of(alone));
  }
}

enum class By { mask, bias, causal };

struct MaskedKeys {
  By by;
  Index kv_length;
  [[nodiscard]] bool is_visible(Index row, Index key) const {
    return by == By::causal ? key <= row + kv_length - 21 : (row * 7 + key * 5) % 3 != 0;
  }
};

AttentionOptions options_of(const MaskedKeys& keys, const Mask& mask, const Tensor<4>& bias) {
  if (keys.by == By::causal) return causal(keys.kv_length - 21);
  return keys.by == By::mask ? with_mask({}, mask.view) : with_bias({}, bias.view);
}

TEST_CASE("attention: NaN and infinity in a key reach only the rows to which it is visible") {
  for (const By by : {By::mask, By::bias, By::causal}) {
    for (const Index bad_key : {0, 25, 39, 511, 515}) {
      const MaskedKeys keys{.by = by, .kv_length = bad_key < 40 ? 40 : 530};
      const AttentionSizes s{.q_length = 21, .kv_length = keys.kv_length, .head_dim = 20, .value_dim = 40};
      Mask mask(score_shape(s));
      const Tensor<4> bias(score_shape(s));
      for_each_position(score_shape(s), [&](const auto& p) {
        mask.view(0, 0, p[2], p[3]) = keys.is_visible(p[2], p[3]);
        bias.view(0, 0, p[2], p[3]) = keys.is_visible(p[2], p[3]) ? 0.25f : -infinity;
      });
      const AttentionOptions options = options_of(keys, mask, bias);
      const AttentionTensors clean(s, 51);
      clean.run(options);
      for (const float bad : {nan, infinity, -infinity}) {
        const AttentionTensors bad_k(s, 51), bad_v(s, 51);
        for_each(bad_k.k.view.slice(2, bad_key, bad_key + 1), [&](float& x) { x = bad; });
        bad_v.v.view(0, 0, bad_key, 33) = bad;
        bad_k.run(options);
        bad_v.run(options);
        Index wrong = 0;
        for_each_position(clean.out.view.shape, [&](const auto& p) {
          const bool visible = keys.is_visible(p[2], bad_key);
          const std::uint32_t expected = bits_of(clean.out.view(0, 0, p[2], p[3]));
          const float with_bad_k = bad_k.out.view(0, 0, p[2], p[3]), with_bad_v = bad_v.out.view(0, 0, p[2], p[3]);
          wrong += visible ? (std::isnan(bad) && !std::isnan(with_bad_k) ? 1 : 0) : (bits_of(with_bad_k) != expected);
          if (visible && p[3] == 33) wrong += bits_of(with_bad_v) == bits_of(bad) ? 0 : 1;
          else wrong += bits_of(with_bad_v) == expected ? 0 : 1;
        });
        CHECK_MESSAGE(wrong == 0, "isa ", isa(), ", by ", static_cast<int>(by), ", kv ", keys.kv_length, ", key ",
                      bad_key, ", ", bad);
        CHECK(different_bits(bad_v.lse.view, clean.lse.view) == 0);
      }
    }
  }
}

TEST_CASE("attention: rows without visible keys return 0 and -inf, whatever the data") {
  for (const Index kv_length : {5, 40, 600}) {
    const AttentionSizes s{
        .q_heads = 2, .kv_heads = 1, .q_length = 15, .kv_length = kv_length, .head_dim = 12, .value_dim = 20};
    Mask mask(score_shape(s));
    const Tensor<4> bias(score_shape(s));
    for_each_position(score_shape(s), [&](const auto& p) {
      mask.view(p[0], p[1], p[2], p[3]) = p[2] % 3 != 1;
      bias.view(p[0], p[1], p[2], p[3]) = p[2] % 3 != 1 ? 0.0f : -infinity;
    });
    for (const bool poison : {false, true}) {
      for (const AttentionOptions& options : {with_mask({}, mask.view), with_bias({}, bias.view)}) {
        const AttentionTensors t(s, 61);
        if (poison) for_each(t.q.view, [](float& x) { x = nan; });
        if (poison) for_each(t.v.view, [](float& x) { x = infinity; });
        t.run(options);
        for_each_position(t.out.view.shape, [&](const auto& p) {
          const float x = t.out.view(p[0], p[1], p[2], p[3]);
          if (p[2] % 3 == 1) CHECK(std::bit_cast<std::uint32_t>(x) == 0);
          else CHECK(std::isnan(x) == poison);
        });
        for_each_position(t.lse.view.shape, [&](const auto& p) {
          if (p[2] % 3 == 1) CHECK(t.lse.view(p[0], p[1], p[2]) == -infinity);
        });
      }
    }
  }
}

TEST_CASE("attention: a bias of NaN or +inf makes its row NaN and no other; huge ones decide") {
  for (const Index kv_length : {5, 40, 600}) {
    const AttentionSizes s{.q_length = 15, .kv_length = kv_length, .head_dim = 12, .value_dim = 20};
    const Tensor<4> zero(score_shape(s));
    for_each(zero.view, [](float& x) { x = 0; });
    const AttentionTensors clean(s, 71);
    clean.run();
    for (const float bad : {nan, infinity}) {
      for (const Index key : {Index{0}, kv_length / 2, kv_length - 1}) {
        const Tensor<4> bias(score_shape(s));
        for_each(bias.view, [](float& x) { x = 0; });
        bias.view(0, 0, 7, key) = bad;
        const AttentionTensors t(s, 71);
        t.run(with_bias({}, bias.view));
        for_each(t.out.view.slice(2, 7, 8), [](float x) { CHECK(std::isnan(x)); });
        CHECK(std::isnan(t.lse.view(0, 0, 7)));
        CHECK(different_bits(t.out.view.slice(2, 0, 7), clean.out.view.slice(2, 0, 7)) == 0);
        CHECK(different_bits(t.out.view.slice(2, 8, 15), clean.out.view.slice(2, 8, 15)) == 0);
      }
    }
    // One key has all the weight. The lowest float, which some libraries use as -inf, is an
    // ordinary bias.
    const Tensor<4> bias(score_shape(s));
    for_each(bias.view, [](float& x) { x = std::numeric_limits<float>::lowest(); });
    for_each(bias.view.slice(3, kv_length / 2, kv_length / 2 + 1), [](float& x) { x = 1e30f; });
    const AttentionTensors t(s, 71);
    t.run(with_bias({}, bias.view));
    for_each_position(t.out.view.shape, [&](const auto& p) {
      CHECK(t.out.view(0, 0, p[2], p[3]) == t.v.view(0, 0, kv_length / 2, p[3]));
    });
  }
}

}  // namespace
}  // namespace headlane::test
