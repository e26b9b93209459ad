// attention with window, lengths, softcap, ALiBi and sinks, alone and together: against the oracle, and by bits against other ways
// to say the same.
#include "compare_attention.hpp"
#include "mask_case.hpp"
#include "scope.hpp"

#include <doctest/doctest.h>

namespace headlane::test {
namespace {

std::string text_of_options(const AttentionSizes& s, const AttentionOptions& o) {
  std::ostringstream text;
  text << text_of(s, o) << ", offset " << o.causal_offset << ", window " << o.window_left << "/" << o.window_right
       << ", softcap " << o.softcap;
  if (o.key_lengths.data != nullptr) text << ", key lengths";
  if (o.query_lengths.data != nullptr) text << ", query lengths";
  if (o.alibi_slopes.data != nullptr) text << ", ALiBi";
  if (o.sinks.data != nullptr) text << ", sinks";
  if (o.mask.data != nullptr) text << ", mask";
  if (o.bias.data != nullptr) text << ", bias";
  return text.str();
}

// Everything that views of options point to.
struct Given {
  std::vector<Index> key_lengths, query_lengths;
  Tensor<1> slopes, sinks;
  std::unique_ptr<Mask> mask;
  std::unique_ptr<Tensor<4>> bias;

  explicit Given(const AttentionSizes& s) : slopes({s.q_heads}), sinks({s.q_heads}) {}

  AttentionOptions random(const AttentionSizes& s, Random& random) {
    AttentionOptions o;
    const auto maybe = [&] { return random.integer(0, 2) == 0; };
    o.causal = maybe();
    if (maybe()) o.causal_offset = random.integer(-s.q_length - 2, s.kv_length + 2);
    if (maybe()) o.window_left = random.integer(0, s.kv_length);
    if (maybe()) o.window_right = random.integer(0, s.kv_length);
    if (maybe()) o.softcap = 0.5f + static_cast<float>(random.integer(0, 20));
    for (Index b = 0; b < s.batch; ++b) {
      key_lengths.push_back(random.integer(0, s.kv_length));
      query_lengths.push_back(random.integer(0, s.q_length));
    }
    if (maybe()) o.key_lengths = {key_lengths.data(), {s.batch}};
    if (maybe()) o.query_lengths = {query_lengths.data(), {s.batch}};
    for (Index h = 0; h < s.q_heads; ++h) {
      slopes.view(h) = std::ldexp(1.0f, -static_cast<int>(random.integer(1, 8)));
      sinks.view(h) = random.normal();
    }
    if (maybe()) o.alibi_slopes = slopes.view;
    if (maybe()) o.sinks = sinks.view;
    if (maybe()) {
      const auto broadcast = static_cast<unsigned>(random.integer(0, 15));
      mask = std::make_unique<Mask>(random_mask(score_shape(s, broadcast), random, 4, random.pick(layouts())));
      o.mask = stretched<const bool>(mask->view, score_shape(s));
    }
    if (maybe()) {
      const auto broadcast = static_cast<unsigned>(random.integer(0, 15));
      bias = std::make_unique<Tensor<4>>(random_bias(score_shape(s, broadcast), random, 5, random.pick(layouts())));
      o.bias = stretched<const float>(bias->view, score_shape(s));
    }
    return o;
  }
};

AttentionSizes random_sizes(Random& random, int i) {
  AttentionSizes s;
  s.batch = random.integer(1, 3);
  s.kv_heads = random.integer(1, 2);
  s.q_heads = s.kv_heads * random.integer(1, 2);
  s.q_length = random.integer(1, 40);
  s.kv_length = i % 20 == 0 ? random.integer(480, 1100) : random.integer(0, 70);
  s.head_dim = random.pick(std::vector<Index>{1, 5, 16, 33, 64});
  s.value_dim = random.pick(std::vector<Index>{1, 7, 16, 48, 64});
  return s;
}

TEST_CASE("attention: random combinations of all options") {
  Random random(1);
  const int cases = slow_isa() ? 200 : 2000;
  for (int i = 0; i < cases; ++i) {
    const AttentionSizes s = random_sizes(random, i);
    Given given(s);
    AttentionOptions options = given.random(s, random);
    options.num_threads = static_cast<int>(random.integer(0, 3));
    const AttentionTensors t(s, static_cast<std::uint64_t>(i), random.pick(layouts()), random.pick(layouts()),
                             random.pick(layouts()), random.pick(layouts()));
    t.run(options);
    compare_with_oracle(t, options, text_of_options(s, options), static_cast<std::uint64_t>(i));
    CHECK(t.out.surroundings_untouched());
  }
}

TEST_CASE("attention: window, lengths and causal give the bits of a mask that says the same") {
  Random random(2);
  for (int i = 0; i < (slow_isa() ? 60 : 400); ++i) {
    const AttentionSizes s = random_sizes(random, i);
    Given given(s);
    AttentionOptions options = given.random(s, random);
    options.mask = {};
    options.query_lengths = {};
    const AttentionTensors by_rule(s, 7), by_mask(s, 7);
    by_rule.run(options);
    Mask mask(score_shape(s));
    for_each_position(mask.view.shape, [&](const auto& p) {
      const Index position = p[2] + options.causal_offset, j = p[3];
      mask.view(p[0], p[1], p[2], j) = (!options.causal || j <= position) &&
                                       (options.window_left < 0 || j >= position - options.window_left) &&
                                       (options.window_right < 0 || j <= position + options.window_right) &&
                                       (options.key_lengths.data == nullptr || j < options.key_lengths(p[0]));
    });
    AttentionOptions masked = options;
    masked.causal = false;
    masked.window_left = masked.window_right = -1;
    masked.key_lengths = {};
    masked.mask = mask.view;
    by_mask.run(masked);
    const std::string text = text_of_options(s, options) + ", isa " + std::string(isa());
    CHECK_MESSAGE(different_bits(by_rule.out.view, by_mask.out.view) == 0, text);
    CHECK_MESSAGE(different_bits(by_rule.lse.view, by_mask.lse.view) == 0, text);
  }
}

TEST_CASE("attention: padding is not read, and a window does not read what it hides") {
  const AttentionSizes s{2, 2, 2, 30, 1300, 16, 16};
  const std::vector<Index> keys{700, 40}, queries{30, 11};
  AttentionOptions options;
  options.key_lengths = {keys.data(), {2}};
  options.query_lengths = {queries.data(), {2}};
  const AttentionTensors clean(s, 3), dirty(s, 3);
  for_each_position(dirty.k.view.shape, [&](const auto& p) {
    if (p[2] >= keys[static_cast<std::size_t>(p[0])])
      dirty.k.view(p[0], p[1], p[2], p[3]) = dirty.v.view(p[0], p[1], p[2], p[3]) = p[3] % 2 == 0 ? nan : infinity;
  });
  for_each_position(dirty.q.view.shape, [&](const auto& p) {
    if (p[2] >= queries[static_cast<std::size_t>(p[0])]) dirty.q.view(p[0], p[1], p[2], p[3]) = nan;
  });
  for (const int threads : {1, 2, 5}) {
    options.num_threads = threads;
    clean.run(options);
    dirty.run(options);
    CHECK(different_bits(dirty.out.view, clean.out.view) == 0);
    CHECK(different_bits(dirty.lse.view, clean.lse.view) == 0);
    for (Index i = 11; i < 30; ++i) {
      CHECK(dirty.out.view(1, 0, i, 0) == 0.0f);
      CHECK(dirty.lse.view(1, 1, i) == -infinity);
    }
  }
  // NaN outside the window of every row.
  AttentionOptions window;
  window.causal = true;
  window.causal_offset = 1000;
  window.window_left = 100;
  const AttentionTensors plain(s, 4), bad(s, 4);
  for_each_position(bad.k.view.shape, [&](const auto& p) {
    if (p[2] < 900 || p[2] > 1029) bad.k.view(p[0], p[1], p[2], p[3]) = bad.v.view(p[0], p[1], p[2], p[3]) = nan;
  });
  plain.run(window);
  bad.run(window);
  CHECK(different_bits(bad.out.view, plain.out.view) == 0);
}

TEST_CASE("attention: options alone or with any number of threads, in a batch or not, row by row, give the same bits") {
  Random random(5);
  for (int i = 0; i < (slow_isa() ? 20 : 100); ++i) {
    const AttentionSizes s = random_sizes(random, i);
    Given given(s);
    AttentionOptions options = given.random(s, random);
    options.mask = {};
    options.bias = {};
    const AttentionTensors whole(s, 9), again(s, 9), rows(s, 9);
    whole.run(options);
    options.num_threads = 3;
    again.run(options);
    CHECK(different_bits(whole.out.view, again.out.view) == 0);
    options.query_lengths = {};
    again.run(options);
    for (Index row = 0; row < s.q_length; ++row) {
      AttentionOptions one = options;
      one.causal_offset += row;
      one.lse = rows.lse.view.slice(2, row, row + 1);
      attention(rows.q.view.slice(2, row, row + 1), rows.k.view, rows.v.view, rows.out.view.slice(2, row, row + 1),
                one);
    }
    CHECK_MESSAGE(different_bits(rows.out.view, again.out.view) == 0, text_of_options(s, options));
    CHECK_MESSAGE(different_bits(rows.lse.view, again.lse.view) == 0, text_of_options(s, options));
  }
}

TEST_CASE("attention: head_dim up to 512") {
  for (const Index dim : {257, 300, 512}) {
    const AttentionSizes s{1, 2, 1, 20, 600, dim, dim};
    const AttentionTensors t(s, 11);
    t.run(causal(580));
    compare_with_oracle(t, causal(580), text_of(s, causal(580)), 11);
  }
}

TEST_CASE("attention: a sink takes its share") {
  const AttentionSizes s{1, 1, 1, 3, 4, 8, 8};
  const AttentionTensors plain(s, 13), sunk(s, 13);
  Tensor<1> sinks({1});
  AttentionOptions options;
  options.sinks = sinks.view;
  plain.run();
  sinks.view(0) = -infinity;  // no share
  sunk.run(options);
  CHECK(different_bits(sunk.out.view, plain.out.view) == 0);
  sinks.view(0) = 1000.0f;  // all of it
  sunk.run(options);
  for_each(sunk.out.view, [](float x) { CHECK(x == 0.0f); });
  sinks.view(0) = nan;
  sunk.run(options);
  for_each(sunk.out.view, [](float x) { CHECK(std::isnan(x)); });
}

}  // namespace
}  // namespace headlane::test
