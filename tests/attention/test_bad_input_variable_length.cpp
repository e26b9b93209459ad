// Illegal causal_offsets, mask_bits, relative_bias and variable-length sequences, for attention()
// and plan_attention(). Other options are in test_bad_input_attention.cpp, workspaces in
// test_attention_workspace.cpp.
#include "support/attention_options.hpp"
#include "support/illegal.hpp"

#include <doctest/doctest.h>
#include <headlane/attention.hpp>

#include <algorithm>
#include <limits>
#include <vector>

namespace headlane::test {
namespace {

constexpr Index least = std::numeric_limits<Index>::min(), most = std::numeric_limits<Index>::max();

// Legal operands, and calls with illegal options.
struct Calls {
  AttentionTensors t;
  std::vector<Illegal> calls;
  explicit Calls(const AttentionSizes& s) : t(s, 3) {}

  void add(const std::string& what, AttentionOptions options, const std::vector<std::string>& words) {
    options.lse = t.lse.view;
    const auto of = [&](const char* function) {
      std::vector<std::string> all = words;
      all.emplace_back(function);
      return all;
    };
    calls.push_back({"attention, " + what,
                     [this, options] { attention(t.q.view, t.k.view, t.v.view, t.out.view, options); },
                     of("attention: ")});
    calls.push_back(
        {"plan_attention, " + what,
         [this, options] { static_cast<void>(plan_attention(t.q.view, t.k.view, t.v.view, t.out.view, options)); },
         of("plan_attention: ")});
  }

  // set(options, view) sets the option; null would mean that it is not given.
  template <class T, int Rank, class Set>
  void add_views(const std::string& name, const View<const T, Rank>& good, const AttentionOptions& base, Set set) {
    for (const Wrong<const T, Rank>& wrong : wrong_views<const T, Rank>(good)) {
      if (wrong.what == "null" || (wrong.what == "misaligned" && sizeof(T) == 1)) continue;
      AttentionOptions options = base;
      set(options, wrong.view);
      std::vector<std::string> words = wrong.words;
      words.push_back(name);
      add(name + ": " + wrong.what, options, words);
    }
  }

  void check() const {
    check_illegal(calls, [&] {
      return all_sentinels(t.out.view) && t.out.surroundings_untouched() && all_sentinels(t.lse.view) &&
             t.lse.surroundings_untouched();
    });
  }
};

TEST_CASE("attention: illegal offsets and mask bits") {
  Calls calls({.batch = 2, .q_heads = 4, .kv_heads = 2, .q_length = 5, .kv_length = 17, .head_dim = 8, .value_dim = 6});
  const std::vector<Index> offsets(2, 1);
  const View<const Index, 1> good(offsets.data(), {2});
  const auto set_offsets = [](AttentionOptions& o, const View<const Index, 1>& view) { o.causal_offsets = view; };
  calls.add_views("causal_offsets", good, {}, set_offsets);
  AttentionOptions none;
  none.causal_offsets = with_size(good, 0, 0);
  calls.add("no causal_offsets", none, {"causal_offsets has 0 elements", "2 batch elements"});

  const MaskBits bits({2, 4, 5, 3});
  const View<const std::uint8_t, 4> rows = bits.view;
  const auto set_bits = [](AttentionOptions& o, const View<const std::uint8_t, 4>& view) { o.mask_bits = view; };
  calls.add_views("mask_bits", rows, {}, set_bits);
  AttentionOptions as_keys;
  as_keys.mask_bits = with_size(rows, 3, 17);
  calls.add("mask_bits with a byte for each key", as_keys, {"mask_bits has 17 bytes", "17 keys"});
  calls.check();
}

TEST_CASE("attention: illegal relative bias") {
  Calls calls({.batch = 2, .q_heads = 4, .kv_heads = 2, .q_length = 5, .kv_length = 17, .head_dim = 8, .value_dim = 6});
  const Tensor<2> table({4, 32}), large({4, 1026});
  const auto set = [](AttentionOptions& o, const View<const float, 2>& view) { o.relative_bias.table = view; };
  AttentionOptions one_way;
  one_way.relative_bias.bidirectional = false;
  for (const Wrong<const float, 2>& wrong : wrong_views<const float, 2>(table.view)) {
    // One bucket more or less is only an error if bidirectional, and the message then names the
    // number of buckets.
    if (wrong.what == "null" || wrong.what.find("on axis 1") != std::string::npos) continue;
    std::vector<std::string> words = wrong.words;
    words.emplace_back("relative_bias.table");
    for (AttentionOptions options : {AttentionOptions{}, one_way}) {
      set(options, wrong.view);
      calls.add("relative_bias: " + wrong.what, options, words);
    }
  }
  const auto add_table = [&](const View<const float, 2>& view, Index max_distance, bool both,
                             const std::vector<std::string>& words) {
    AttentionOptions options;
    options.relative_bias = {.table = view, .max_distance = max_distance, .bidirectional = both};
    calls.add("buckets " + std::to_string(view.size(1)) + " to " + std::to_string(max_distance), options, words);
  };
  for (const Index buckets : {-1, 0, 1, 2, 3, 5, 31, 33, 1026})
    add_table(with_size<const float, 2>(buckets > 32 ? large.view : table.view, 1, buckets), 10000, true,
              {std::to_string(buckets)});
  for (const Index buckets : {-1, 0, 1, 1025, 1026})
    add_table(with_size<const float, 2>(large.view, 1, buckets), 10000, false, {std::to_string(buckets)});
  for (const Index distance : {least, Index{-1}, Index{0}, Index{8}})
    add_table(table.view, distance, true, {"max_distance is " + std::to_string(distance), "8"});
  for (const Index distance : {least, Index{-1}, Index{0}, Index{8}, Index{16}})
    add_table(table.view, distance, false, {"max_distance is " + std::to_string(distance), "16"});
  calls.check();
}

struct VarlenCalls : Calls {
  const std::vector<Index> queries{0, 4, 4, 12}, keys{1, 8, 20, 20};
  AttentionOptions good;
  VarlenCalls() : Calls({.q_heads = 4, .kv_heads = 2, .q_length = 12, .kv_length = 21, .head_dim = 8, .value_dim = 6}) {
    good.query_starts = {queries.data(), {4}};
    good.key_starts = {keys.data(), {4}};
  }
};

TEST_CASE("attention: illegal starts") {
  VarlenCalls calls;
  const auto set_queries = [](AttentionOptions& o, const View<const Index, 1>& view) { o.query_starts = view; };
  const auto set_keys = [](AttentionOptions& o, const View<const Index, 1>& view) { o.key_starts = view; };
  const std::vector<Index> long_queries{0, 4, 4, 12, 12}, long_keys{1, 8, 20, 20, 20};
  calls.add_views<Index, 1>("query_starts", {long_queries.data(), {4}}, calls.good, set_queries);
  calls.add_views<Index, 1>("key_starts", {long_keys.data(), {4}}, calls.good, set_keys);
  AttentionOptions only = calls.good;
  only.key_starts = {};
  calls.add("no key_starts", only, {"query_starts is given", "key_starts"});
  only = calls.good;
  only.query_starts = {};
  calls.add("no query_starts", only, {"key_starts is given", "query_starts"});
  for (const bool of_queries : {true, false}) {
    AttentionOptions options = calls.good;
    (of_queries ? options.query_starts : options.key_starts).shape[0] = 0;
    calls.add("no starts", options, {of_queries ? "query_starts" : "key_starts", "1"});
  }
  // One illegal start, at each position, of queries and keys.
  std::vector<std::vector<Index>> memory;
  memory.reserve(100);
  for (const bool of_queries : {true, false}) {
    const std::vector<Index>& good = of_queries ? calls.queries : calls.keys;
    const Index size = of_queries ? 12 : 21;
    for (std::size_t at = 0; at < 4; ++at) {
      for (const Index wrong : {least, Index{-1}, at == 0 ? Index{-2} : good[at - 1] - 1, size + 1, most}) {
        // Reported at its own position, since starts are checked in order.
        memory.push_back(good);
        memory.back()[at] = wrong;
        AttentionOptions options = calls.good;
        (of_queries ? options.query_starts : options.key_starts).data = memory.back().data();
        calls.add("starts", options,
                  {std::string(of_queries ? "query_starts[" : "key_starts[") + std::to_string(at) + "] is " +
                       std::to_string(wrong) + ", it must be " + std::to_string(at == 0 ? 0 : good[at - 1]) + " to " +
                       std::to_string(size),
                   std::string(of_queries ? "for q has " : "for k has ") + std::to_string(size) + " rows"});
      }
    }
  }
  AttentionOptions fewer = calls.good;
  fewer.key_starts = {calls.keys.data(), {3}};
  calls.add("key_starts of fewer sequences", fewer, {"query_starts has 4 elements, key_starts has 3"});
  calls.check();

  Calls batch(
      {.batch = 2, .q_heads = 4, .kv_heads = 2, .q_length = 12, .kv_length = 21, .head_dim = 8, .value_dim = 6});
  batch.add("a variable-length batch of two elements", calls.good, {"q has 2 batch elements", "1"});
  batch.check();
}

TEST_CASE("attention: illegal options of variable-length sequences") {
  VarlenCalls calls;
  // Options of shape [batch] are [sequences]; lengths are limited by those of their sequence.
  const std::vector<Index> lengths{4, 0, 0, 0}, too_long{0, 1, 0}, key_lengths{0, 0, 1}, key_too_long{8, 0, 0};
  const auto set_offsets = [](AttentionOptions& o, const View<const Index, 1>& view) { o.causal_offsets = view; };
  const auto set_keys = [](AttentionOptions& o, const View<const Index, 1>& view) { o.key_lengths = view; };
  const auto set_queries = [](AttentionOptions& o, const View<const Index, 1>& view) { o.query_lengths = view; };
  const View<const Index, 1> good(lengths.data(), {3});
  calls.add_views("causal_offsets", good, calls.good, set_offsets);
  calls.add_views("key_lengths", good, calls.good, set_keys);
  calls.add_views("query_lengths", good, calls.good, set_queries);
  AttentionOptions options = calls.good;
  options.causal_offsets = {lengths.data(), {1}};
  calls.add("one offset", options, {"causal_offsets has 1 elements", "3 sequences"});
  options = calls.good;
  options.query_lengths = {too_long.data(), {3}};
  calls.add("query_lengths", options, {"query_lengths[1] is 1", "0 rows in that sequence"});
  options.query_lengths = {};
  options.key_lengths = {key_lengths.data(), {3}};
  calls.add("key_lengths", options, {"key_lengths[2] is 1", "0 keys in that sequence"});
  options.key_lengths = {key_too_long.data(), {3}};
  calls.add("key_lengths", options, {"key_lengths[0] is 8", "7 keys in that sequence"});

  // Masks and biases have a row for each query, and as many keys as the longest sequence: 12 of 21.
  const Mask mask({1, 4, 12, 13});
  const Tensor<4> bias({1, 4, 12, 13});
  const MaskBits bits({1, 4, 12, 3});
  const View<const bool, 4> flags = with_size<const bool, 4>(mask.view, 3, 12);
  const View<const float, 4> numbers = with_size<const float, 4>(bias.view, 3, 12);
  const View<const std::uint8_t, 4> bytes = with_size<const std::uint8_t, 4>(bits.view, 3, 2);
  calls.add_views("mask", flags, calls.good, [](AttentionOptions& o, const auto& view) { o.mask = view; });
  calls.add_views("bias", numbers, calls.good, [](AttentionOptions& o, const auto& view) { o.bias = view; });
  calls.add_views("mask_bits", bytes, calls.good, [](AttentionOptions& o, const auto& view) { o.mask_bits = view; });
  options.mask = with_size(flags, 3, 21);
  calls.add("mask of all keys", options, {"mask has 21 keys", "12 keys in its longest sequence"});
  options.mask = with_size(flags, 1, 3);
  calls.add("mask of fewer heads", options, {"mask has 3 heads, q has 4 heads"});
  calls.check();
}

TEST_CASE("attention: out or lse over an option of variable-length sequences") {
  const AttentionTensors t(
      {.q_heads = 4, .kv_heads = 2, .q_length = 12, .kv_length = 21, .head_dim = 8, .value_dim = 6}, 3);
  // 288 floats of out, 48 of lse, in memory that could hold starts: zeros are legal.
  std::vector<Index> memory(200);
  auto* floats = reinterpret_cast<float*>(memory.data());
  std::vector<Illegal> calls;
  const auto add_call = [&](const char* name, const AttentionOptions& options) {
    AttentionOptions over = options;
    over.lse = {floats, t.lse.view.shape};
    calls.push_back({std::string("out over ") + name,
                     [&, options] { attention(t.q.view, t.k.view, t.v.view, {floats, t.out.view.shape}, options); },
                     {"attention: ", "out", name, "overlap"}});
    calls.push_back({std::string("lse over ") + name,
                     [&, over] { attention(t.q.view, t.k.view, t.v.view, t.out.view, over); },
                     {"attention: ", "lse", name, "overlap"}});
  };
  const std::vector<Index> none(4, 0);
  for (const Index at : {0, 1, 20}) {  // the last one ends where lse does
    AttentionOptions queries, keys, offsets, table, bits;
    queries.query_starts = {memory.data() + at, {4}};
    queries.key_starts = {none.data(), {4}};
    keys.query_starts = {none.data(), {4}};
    keys.key_starts = {memory.data() + at, {4}};
    offsets.causal_offsets = {memory.data() + at, {1}};
    table.relative_bias.table = {floats + 2 * at, {4, 32}};
    bits.mask_bits = {reinterpret_cast<std::uint8_t*>(floats + 2 * at), {1, 4, 12, 3}};
    add_call("query_starts", queries);
    add_call("key_starts", keys);
    add_call("causal_offsets", offsets);
    add_call("relative_bias.table", table);
    add_call("mask_bits", bits);
  }
  check_illegal(calls, [&] {
    return std::all_of(memory.begin(), memory.end(), [](Index x) { return x == 0; }) && all_sentinels(t.out.view);
  });
}

TEST_CASE("enough illegal calls were made") {
  MESSAGE(illegal_calls(), " illegal calls");
  CHECK(illegal_calls() >= 350);
}

}  // namespace
}  // namespace headlane::test
