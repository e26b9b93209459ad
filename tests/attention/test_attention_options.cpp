// All options of attention, alone and together, also with variable-length sequences: against the
// oracle. Window, lengths, softcap, ALiBi and sinks against equivalent calls, bit by bit; for the
// other options see test_attention_same.cpp.
#include "support/attention_options.hpp"
#include "support/compare_attention.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>

namespace headlane::test {
namespace {

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

// Otherwise an option that is new would be tested alone or not at all.
TEST_CASE("RandomOptions draws every option but outputs and the workspace") {
  Random random(6);
  const AttentionSizes s{.q_heads = 2, .q_length = 9, .kv_length = 20};
  std::vector<std::string> names;
  const AttentionOptions none;
  for_each_option(none, [&](const char* name, const auto&) { names.emplace_back(name); });
  const std::vector<std::string> defaults = option_texts(none);
  std::vector<int> drawn(names.size(), 0);
  for (int i = 0; i < 200; ++i) {
    RandomOptions given(s);
    const std::vector<std::string> texts = option_texts(given.draw(random, {.sequences = i % 2 == 0 ? -1 : 3}));
    for (std::size_t option = 0; option < texts.size(); ++option)
      drawn[option] += texts[option] == defaults[option] ? 0 : 1;
  }
  for (std::size_t option = 0; option < names.size(); ++option) {
    const std::string& name = names[option];
    const bool is_output = name == "lse" || name == "sum" || name == "resume" || name == "workspace";
    CHECK_MESSAGE((is_output ? drawn[option] == 0 : drawn[option] > 10), name, ": support/attention_options.cpp");
  }
}

TEST_CASE("attention: random combinations of all options") {
  Random random(1);
  const int cases = slow_isa() ? 200 : 2000;
  int varlen = 0;
  for (int i = 0; i < cases; ++i) {
    AttentionSizes s = random_sizes(random, i);
    Index sequences = -1;
    if (i % 3 == 1) {
      sequences = random.integer(0, 6);
      s.batch = 1;
      s.kv_length *= 2;  // for all of them
      ++varlen;
    }
    RandomOptions given(s);
    AttentionOptions options = given.draw(random, {.sequences = sequences});
    options.num_threads = static_cast<int>(random.integer(0, 3));
    const AttentionTensors t(s, static_cast<std::uint64_t>(i), random.pick(layouts()), random.pick(layouts()),
                             random.pick(layouts()), random.pick(layouts()));
    std::vector<std::byte> workspace;
    if (i % 4 == 0) {
      const AttentionPlan plan = plan_attention(t.q.view, t.k.view, t.v.view, t.out.view, t.with_lse(options));
      workspace.resize(plan.workspace_bytes + 1);
      options.workspace = std::span(workspace).first(plan.workspace_bytes);
    }
    t.run(options);
    compare_with_oracle(t, options, text_of(s, options), static_cast<std::uint64_t>(i));
    CHECK(t.out.surroundings_untouched());
    CHECK(t.lse.surroundings_untouched());
  }
  MESSAGE(cases, " cases, ", varlen, " of them variable-length");
}

TEST_CASE("attention: window, lengths and causal are bit-identical to an equivalent mask") {
  Random random(2);
  for (int i = 0; i < (slow_isa() ? 60 : 400); ++i) {
    const AttentionSizes s = random_sizes(random, i);
    RandomOptions given(s);
    AttentionOptions options = given.draw(random);
    options.mask = {};
    options.query_lengths = {};
    const AttentionTensors by_rule(s, 7), by_mask(s, 7);
    by_rule.run(options);
    Mask mask(score_shape(s));
    const auto offset = [&](Index b) {
      return options.causal_offsets.data == nullptr ? options.causal_offset : options.causal_offsets(b);
    };
    for_each_position(mask.view.shape, [&](const auto& p) {
      const Index position = p[2] + offset(p[0]), j = p[3];
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
    const std::string text = text_of(s, options) + ", isa " + std::string(isa());
    CHECK_MESSAGE(different_bits(by_rule.out.view, by_mask.out.view) == 0, text);
    CHECK_MESSAGE(different_bits(by_rule.lse.view, by_mask.lse.view) == 0, text);
  }
}

TEST_CASE("attention: padding and keys outside all windows are not read") {
  const AttentionSizes s{.batch = 2, .q_heads = 2, .q_length = 30, .kv_length = 1300, .head_dim = 16};
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

TEST_CASE("attention: with options the same bits for any number of threads, and row by row") {
  Random random(5);
  for (int i = 0; i < (slow_isa() ? 20 : 100); ++i) {
    const AttentionSizes s = random_sizes(random, i);
    RandomOptions given(s);
    AttentionOptions options = given.draw(random);
    options.mask = {};
    options.bias = {};
    options.mask_bits = {};
    options.causal_offsets = {};
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
    CHECK_MESSAGE(different_bits(rows.out.view, again.out.view) == 0, text_of(s, options));
    CHECK_MESSAGE(different_bits(rows.lse.view, again.lse.view) == 0, text_of(s, options));
  }
}

TEST_CASE("attention: head_dim up to 512") {
  for (const Index dim : {257, 300, 512}) {
    const AttentionSizes s{.q_heads = 2, .kv_heads = 1, .q_length = 20, .kv_length = 600, .head_dim = dim};
    const AttentionTensors t(s, 11);
    t.run(causal(580));
    compare_with_oracle(t, causal(580), text_of(s, causal(580)), 11);
  }
}

// The reciprocal of such a softcap is infinite or nearly so. A score of 0 must stay 0; any other
// becomes at most the softcap, whose exponential is 1.
TEST_CASE("attention: the smallest softcaps") {
  const AttentionSizes sizes{
      .q_heads = 2, .kv_heads = 1, .q_length = 13, .kv_length = 600, .head_dim = 20, .value_dim = 24};
  const AttentionTensors zero(sizes, 21);
  for_each(zero.q.view, [](float& x) { x = 0; });
  AttentionOptions plain = causal(300);
  zero.run(plain);
  for (const float softcap : {std::numeric_limits<float>::denorm_min(), 1e-44f, 1e-40f, 2.9e-39f, 2.95e-39f,
                              std::numeric_limits<float>::min(), 1e-30f}) {
    const AttentionTensors t(sizes, 21);
    AttentionOptions options = plain;
    options.softcap = softcap;
    for (const bool scores_of_0 : {false, true}) {
      if (scores_of_0) for_each(t.q.view, [](float& x) { x = 0; });
      t.run(options);
      CHECK_MESSAGE(different_bits(t.out.view, zero.out.view) == 0, "softcap ", softcap);
      CHECK_MESSAGE(different_bits(t.lse.view, zero.lse.view) == 0, "softcap ", softcap);
    }
  }
}

// Floats represent all integers up to 2^24.
TEST_CASE("attention: ALiBi's distances are exact, or an error") {
  constexpr Index max = Index{1} << 24;
  const AttentionSizes sizes{.batch = 2, .q_length = 5, .kv_length = 7, .head_dim = 4};
  const AttentionTensors t(sizes, 22);
  for_each(t.q.view, [](float& x) { x = 0; });
  const Tensor<1> slopes({1});
  slopes.view(0) = 0x1p-3f;
  const auto with = [&](Index offset) {
    return AttentionOptions{.causal_offset = offset, .alibi_slopes = slopes.view};
  };
  Index refused = 0, computed = 0;
  const auto refuses = [&](const AttentionOptions& options, Index distance) {
    std::string message;
    try {
      t.run(options);
    } catch (const std::invalid_argument& error) {
      message = error.what();
    }
    CHECK_MESSAGE(message.find("attention: alibi_slopes") == 0, message);
    CHECK_MESSAGE(message.find(std::to_string(distance)) != std::string::npos, message);
    for_each(t.out.view, [](float x) { CHECK(is_sentinel(x)); });
    ++refused;
  };
  refuses(with(max - 3), max + 1);      // the last query, the first key
  refuses(with(6 - max - 1), max + 1);  // the first query, the last key
  refuses(with(std::numeric_limits<Index>::max()), (Index{1} << 40) + 4);
  refuses(with(std::numeric_limits<Index>::min()), (Index{1} << 40) + 6);
  const std::vector<Index> offsets{0, max - 3}, two{2, 2}, none{2, 0};
  AttentionOptions second = with(0);
  second.causal_offsets = {offsets.data(), {2}};
  refuses(second, max + 1);
  for (AttentionOptions options : {with(max - 4), with(6 - max), second}) {
    if (options.causal_offsets.data != nullptr) options.query_lengths = {two.data(), {2}};  // the second has two rows
    t.run(options);
    const Index offset = options.causal_offsets.data == nullptr ? options.causal_offset : offsets[1];
    for (Index i = 0; i < (options.query_lengths.data == nullptr ? 5 : 2); ++i) {
      double sum = 0;
      for (Index j = 0; j < 7; ++j) sum += std::exp(static_cast<double>(j - 6) * 0x1p-3);
      const double exact = static_cast<double>(6 - i - offset) * 0x1p-3 + std::log(sum);
      CHECK(std::abs(t.lse.view(1, 0, i) - exact) <= std::abs(exact) * 0x1p-23 + 1e-5);
      ++computed;
    }
  }
  // Padding, and a batch element without keys, have no distances.
  for (const bool of_keys : {false, true}) {
    AttentionOptions options = second;
    (of_keys ? options.key_lengths : options.query_lengths) = {none.data(), {2}};
    t.run(options);
    ++computed;
  }
  CHECK(refused == 5);
  CHECK(computed == 14);
}

TEST_CASE("attention: ALiBi's distances of a single row, as in decoding, and of no row") {
  constexpr Index max = Index{1} << 24;
  const Tensor<1> slopes({1});
  slopes.view(0) = 0x1p-3f;
  const auto with = [&](Index offset) {
    return AttentionOptions{.causal_offset = offset, .alibi_slopes = slopes.view};
  };
  const AttentionTensors single({.kv_length = 7, .head_dim = 4}, 23),
      empty({.q_length = 0, .kv_length = 7, .head_dim = 4}, 23);
  CHECK_NOTHROW(single.run(with(max)));
  CHECK_THROWS_WITH_AS(single.run(with(max + 1)), doctest::Contains("16777217 positions"), std::invalid_argument);
  CHECK_NOTHROW(empty.run(with(2 * max)));
}

TEST_CASE("attention: a sink joins the sum") {
  const AttentionSizes s{.q_length = 3, .kv_length = 4, .head_dim = 8};
  const AttentionTensors plain(s, 13), sunk(s, 13);
  Tensor<1> sinks({1});
  AttentionOptions options;
  options.sinks = sinks.view;
  plain.run();
  sinks.view(0) = -infinity;  // no weight
  sunk.run(options);
  CHECK(different_bits(sunk.out.view, plain.out.view) == 0);
  sinks.view(0) = 1000.0f;  // all weight
  sunk.run(options);
  for_each(sunk.out.view, [](float x) { CHECK(x == 0.0f); });
  sinks.view(0) = nan;
  sunk.run(options);
  for_each(sunk.out.view, [](float x) { CHECK(std::isnan(x)); });
}

}  // namespace
}  // namespace headlane::test
