// Illegal options of attention; operands are in test_bad_input_operands.cpp.
#include "support/illegal.hpp"
#include "support/mask_case.hpp"

#include <doctest/doctest.h>
#include <headlane/attention.hpp>

#include <algorithm>
#include <limits>

namespace headlane::test {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

// Legal operands, and calls of each function with illegal options.
struct Operands {
  AttentionTensors t{
      {.batch = 2, .q_heads = 4, .kv_heads = 2, .q_length = 5, .kv_length = 7, .head_dim = 8, .value_dim = 6}, 3};
  std::vector<Illegal> calls;

  void add_call(const std::string& what, const AttentionOptions& options, const std::vector<std::string>& words) {
    const auto of = [&](const char* function) {
      std::vector<std::string> all = words;
      all.emplace_back(function);
      return all;
    };
    AttentionOptions with = options;
    with.lse = t.lse.view;
    calls.push_back({"attention, " + what, [this, with] { attention(t.q.view, t.k.view, t.v.view, t.out.view, with); },
                     of("attention: ")});
    calls.push_back(
        {"multi_head_attention, " + what,
         [this, options] { multi_head_attention(wide_q.view, wide_k.view, wide_v.view, wide_out.view, 4, options); },
         of("multi_head_attention: ")});
  }

  // All errors of an optional view.
  template <class T>
  void add_views(const char* name, View<const T, 1> AttentionOptions::* member, const View<const T, 1>& good) {
    for (const Wrong<const T, 1>& wrong : wrong_views<const T, 1>(good)) {
      if (wrong.what == "null") continue;
      AttentionOptions options;
      options.*member = wrong.view;
      std::vector<std::string> words = wrong.words;
      words.emplace_back(name);
      add_call(std::string(name) + ": " + wrong.what, options, words);
    }
    AttentionOptions empty;
    empty.*member = with_size(good, 0, 0);
    add_call(std::string(name) + ": none", empty, {name, "0"});
  }

  void check() const {
    check_illegal(calls, [&] {
      return all_sentinels(t.out.view) && t.out.surroundings_untouched() && all_sentinels(t.lse.view) &&
             t.lse.surroundings_untouched() && all_sentinels(wide_out.view) && wide_out.surroundings_untouched();
    });
  }

  Random random{4};
  Tensor<3> wide_q = random_tensor<3>({2, 5, 32}, random), wide_k = random_tensor<3>({2, 7, 16}, random);
  Tensor<3> wide_v = random_tensor<3>({2, 7, 12}, random), wide_out{{2, 5, 24}};
};

TEST_CASE("attention: illegal softcap") {
  Operands operands;
  for (const float softcap : {-1.0f, -std::numeric_limits<float>::denorm_min(), infinity, -infinity, nan, -nan}) {
    AttentionOptions options;
    options.softcap = softcap;
    operands.add_call("softcap " + std::to_string(softcap), options, {"softcap"});
  }
  operands.check();
}

TEST_CASE("attention: illegal windows") {
  Operands operands;
  for (const Index size : {Index{-2}, Index{-100}, -huge, std::numeric_limits<Index>::min()}) {
    AttentionOptions left, right, both;
    left.window_left = size;
    right.window_right = size;
    both.window_left = 3;
    both.window_right = size;
    const std::string text = std::to_string(size);
    operands.add_call("window_left " + text, left, {"window_left", text, "-1"});
    operands.add_call("window_right " + text, right, {"window_right", text, "-1"});
    operands.add_call("window_right with a left " + text, both, {"window_right", text, "-1"});
  }
  operands.check();
}

TEST_CASE("attention: illegal lengths") {
  Operands operands;
  const std::vector<Index> good(2, 1);
  const View<const Index, 1> lengths(good.data(), {2});
  operands.add_views("key_lengths", &AttentionOptions::key_lengths, lengths);
  operands.add_views("query_lengths", &AttentionOptions::query_lengths, lengths);

  // One length out of range, at each position, dense and backwards.
  constexpr Index least = std::numeric_limits<Index>::min(), most = std::numeric_limits<Index>::max();
  const std::vector<Index> wrong{-1, -5, least, 8, 9, most}, wrong_for_queries{-1, -5, least, 6, 7, most};
  std::vector<std::vector<Index>> memory;
  memory.reserve(2 * wrong.size() * 2);
  for (const bool of_keys : {true, false}) {
    for (const Index length : of_keys ? wrong : wrong_for_queries) {
      for (const std::size_t at : {std::size_t{0}, std::size_t{1}}) {
        memory.push_back({3, 3});
        memory.back()[at] = length;
        const std::string name = of_keys ? "key_lengths" : "query_lengths";
        const Index* data = memory.back().data();
        const auto member = of_keys ? &AttentionOptions::key_lengths : &AttentionOptions::query_lengths;
        AttentionOptions dense, backwards;
        dense.*member = {data, {2}};
        backwards.*member = {data + 1, {2}, {-1}};
        const std::string text = std::to_string(length), size = of_keys ? "7" : "5";
        operands.add_call(name, dense, {name + "[" + std::to_string(at) + "]", text, size});
        operands.add_call(name + ", backwards", backwards, {name + "[" + std::to_string(1 - at) + "]", text, size});
      }
    }
  }
  // Stride 0: the same illegal length for all batch elements.
  const Index eight = 8;
  AttentionOptions broadcast;
  broadcast.key_lengths = {&eight, {2}, {0}};
  operands.add_call("key_lengths, broadcast", broadcast, {"key_lengths[0]", "8", "7"});
  operands.check();
}

TEST_CASE("attention: illegal slopes and sinks") {
  Operands operands;
  const Tensor<1> values({4});
  operands.add_views<float>("alibi_slopes", &AttentionOptions::alibi_slopes, values.view);
  operands.add_views<float>("sinks", &AttentionOptions::sinks, values.view);
  operands.add_call("resume without sum", {.resume = true}, {"resume", "sum"});
  operands.check();
}

TEST_CASE("attention: out or lse over an option") {
  const AttentionTensors t(
      {.batch = 2, .q_heads = 4, .kv_heads = 2, .q_length = 5, .kv_length = 7, .head_dim = 8, .value_dim = 6}, 3);
  // 240 floats of out in memory that could hold lengths: zeros are legal.
  std::vector<Index> memory(200);
  auto* floats = reinterpret_cast<float*>(memory.data());
  const View<float, 4> out(floats, t.out.view.shape);
  std::vector<Illegal> calls;
  const auto add_call = [&](const char* name, const AttentionOptions& options) {
    calls.push_back({std::string("attention, out over ") + name,
                     [&, options] { attention(t.q.view, t.k.view, t.v.view, out, options); },
                     {"attention", "out", name, "overlap"}});
    AttentionOptions over = options;
    over.lse = {floats, t.lse.view.shape};
    calls.push_back({std::string("attention, lse over ") + name,
                     [&, over] { attention(t.q.view, t.k.view, t.v.view, t.out.view, over); },
                     {"attention", "lse", name, "overlap"}});
    if (options.sinks.data != nullptr) return;  // not with sum
    AttentionOptions sum_over = options;
    sum_over.lse = t.lse.view;
    sum_over.sum = over.lse;
    calls.push_back({std::string("attention, sum over ") + name,
                     [&, sum_over] { attention(t.q.view, t.k.view, t.v.view, t.out.view, sum_over); },
                     {"attention", "sum", name, "overlap"}});
  };
  for (const Index at : {0, 1, 19}) {  // within the 40 floats of lse and the 240 of out; the last one ends behind lse
    AttentionOptions keys, queries, slopes, sinks;
    keys.key_lengths = {memory.data() + at, {2}};
    queries.query_lengths = {memory.data() + at, {2}};
    slopes.alibi_slopes = {floats + 2 * at, {4}};
    sinks.sinks = {floats + 2 * at, {4}};
    add_call("key_lengths", keys);
    add_call("query_lengths", queries);
    add_call("alibi_slopes", slopes);
    add_call("sinks", sinks);
  }
  check_illegal(calls, [&] { return std::all_of(memory.begin(), memory.end(), [](Index x) { return x == 0; }); });
}

TEST_CASE("attention: lse and sum of another shape") {
  const AttentionTensors t(
      {.batch = 2, .q_heads = 4, .kv_heads = 2, .q_length = 5, .kv_length = 7, .head_dim = 8, .value_dim = 6}, 3);
  const char* what[]{"batch elements", "heads", "rows"};
  for (const int axis : {0, 1, 2}) {
    std::array<Index, 3> shape = t.lse.view.shape;
    ++shape[static_cast<std::size_t>(axis)];
    const Tensor<3> other(shape);
    std::vector<Illegal> calls;
    AttentionOptions lse, sum;
    lse.lse = other.view;
    sum.lse = t.lse.view;
    sum.sum = other.view;
    const auto size = [&](Index n) { return " has " + std::to_string(n) + " " + what[axis]; };
    const Index n = t.q.view.size(axis);
    for (const auto& [name, options] : {std::pair("lse", lse), std::pair("sum", sum)})
      calls.push_back({name,
                       [&t, options] { attention(t.q.view, t.k.view, t.v.view, t.out.view, options); },
                       {std::string("attention: ") + name + size(n + 1) + ", q" + size(n)}});
    check_illegal(calls,
                  [&] { return all_sentinels(t.out.view) && all_sentinels(t.lse.view) && all_sentinels(other.view); });
  }
}

TEST_CASE("attention: lse or sum over an operand or each other; a plan reads no data") {
  const AttentionTensors t(
      {.batch = 2, .q_heads = 4, .kv_heads = 2, .q_length = 5, .kv_length = 7, .head_dim = 8, .value_dim = 6}, 3);
  const Tensor<1> memory({2000});
  float* const p = memory.view.data + 500;
  const std::array<Index, 3> rows = t.lse.view.shape;
  const Index count = rows[0] * rows[1] * rows[2];
  std::vector<Illegal> calls;
  for (const bool of_sum : {false, true}) {
    const std::string name = of_sum ? "sum" : "lse";
    AttentionOptions options;
    (of_sum ? options.sum : options.lse) = {p, rows};
    if (of_sum) options.lse = {p + 1000, rows};
    const auto push = [&](const std::string& other, const auto& attend) {
      const std::vector<std::string> words{"attention: " + name + " of shape", "overlaps " + other};
      calls.push_back({other, attend, words});
    };
    // Offsets of the other operand, in elements: ends at p, begins at p, begins with the last row.
    const auto push_each = [&](const std::string& other, const std::array<Index, 4>& shape, const auto& attend) {
      const Index size = shape[0] * shape[1] * shape[2] * shape[3];
      for (const Index at : {1 - size, Index{0}, count - 1}) {
        const View<float, 4> view(p + at, shape);
        push(other, [=] { attend(view); });
      }
    };
    const auto q = t.q.view, k = t.k.view, v = t.v.view, out = t.out.view;
    push_each("q", q.shape, [=](const View<float, 4>& x) { attention(x, k, v, out, options); });
    push_each("k", k.shape, [=](const View<float, 4>& x) { attention(q, x, v, out, options); });
    push_each("v", v.shape, [=](const View<float, 4>& x) { attention(q, k, x, out, options); });
    push_each("out", out.shape, [=](const View<float, 4>& x) { attention(q, k, v, x, options); });
    if (of_sum) {
      for (const Index at : {1 - count, Index{0}, count - 1}) {
        AttentionOptions both = options;
        both.lse.data = p + at;
        push("lse", [=] { attention(q, k, v, out, both); });
      }
    }
    options.bias = {p, {2, 4, 5, 7}};
    const View<float, 4> over_q(p, q.shape), over_k(p, k.shape), over_v(p, v.shape), over_out(p, out.shape);
    CHECK_NOTHROW(static_cast<void>(plan_attention(over_q, over_k, over_v, over_out, options)));
  }
  CHECK(calls.size() == 27);
  check_illegal(calls, [&] { return all_sentinels(memory.view) && all_sentinels(t.out.view); });
}

TEST_CASE("attention: options at the edge of what is legal") {
  const AttentionTensors t(
      {.batch = 2, .q_heads = 4, .kv_heads = 2, .q_length = 5, .kv_length = 7, .head_dim = 8, .value_dim = 6}, 3);
  const std::vector<Index> keys{0, 7}, queries{5, 0};
  const Tensor<1> per_head({1});
  per_head.view(0) = 0.5f;
  AttentionOptions options;
  options.softcap = std::numeric_limits<float>::max();
  options.window_left = std::numeric_limits<Index>::max();
  options.window_right = 0;
  options.key_lengths = {keys.data(), {2}};
  options.query_lengths = {queries.data(), {2}};
  options.alibi_slopes = {per_head.view.data, {4}, {0}};
  options.sinks = options.alibi_slopes;  // inputs may overlap each other
  t.run(options);
  // The first element of the batch has no keys, the second no queries.
  for_each(t.out.view, [](float x) { CHECK(x == 0); });
  for_each(t.lse.view.select(0, 0), [](float x) { CHECK(x == 0.5f); });
  for_each(t.lse.view.select(0, 1), [](float x) { CHECK(x == -infinity); });

  AttentionOptions nothing;  // no batch: nothing is read
  nothing.key_lengths = nothing.query_lengths = {keys.data(), {0}};
  attention(View<const float, 4>(nullptr, {0, 1, 1, 1}), {nullptr, {0, 1, 1, 1}}, {nullptr, {0, 1, 1, 1}},
            {nullptr, {0, 1, 1, 1}}, nothing);
}

TEST_CASE("enough illegal calls were made") {
  MESSAGE(illegal_calls(), " illegal calls");
  CHECK(illegal_calls() >= 150);
}

}  // namespace
}  // namespace headlane::test
