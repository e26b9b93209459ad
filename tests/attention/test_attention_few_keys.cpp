// Heads of few keys, which have a kernel of their own, against the same heads with a mask, which go
// by blocks of keys: bit by bit, and between guard pages.
#include "support/attention_case.hpp"
#include "support/bit_comparison.hpp"
#include "support/guard.hpp"
#include "support/mask_case.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>
#include <headlane/attention.hpp>

#include <span>
#include <string>

namespace headlane::test {
namespace {

constexpr std::uint64_t seed = 41;

struct Inputs {
  Tensor<4> q, k, v;
  Inputs(const AttentionSizes& s, Random& random, const Layout& of_q, const Layout& of_keys)
      : q(random_tensor<4>({s.batch, s.q_heads, s.q_length, s.head_dim}, random, of_q)),
        k(random_tensor<4>({s.batch, s.kv_heads, s.kv_length, s.head_dim}, random, of_keys)),
        v(random_tensor<4>({s.batch, s.kv_heads, s.kv_length, s.value_dim}, random, of_keys)) {}
};

/// out and lse of a call.
struct Outputs {
  Tensor<4> out;
  Tensor<3> lse;
  explicit Outputs(const AttentionSizes& s, const Layout& layout = {})
      : out({s.batch, s.q_heads, s.q_length, s.value_dim}, layout), lse({s.batch, s.q_heads, s.q_length}) {}
};

const bool visible = true;

/// A mask that hides nothing.
View<const bool, 4> nothing_hidden(const AttentionSizes& s) {
  return {&visible, {s.batch, s.q_heads, s.q_length, s.kv_length}, {0, 0, 0, 0}};
}

void run(const Inputs& x, const Outputs& to, AttentionOptions options, const View<const bool, 4>& mask = {}) {
  options.mask = mask;
  options.lse = to.lse.view;
  attention(x.q.view, x.k.view, x.v.view, to.out.view, options);
}

void compare(const AttentionSizes& s, const Inputs& x, const AttentionOptions& options, const Layout& out,
             BitComparison& comparison) {
  const Outputs by_keys(s, out), by_blocks(s);
  run(x, by_keys, options);
  run(x, by_blocks, options, nothing_hidden(s));
  const std::string text =
      text_of(s, options) + ", threads " + std::to_string(options.num_threads) + ", seed " + std::to_string(seed);
  comparison.add(by_keys.out.view, by_blocks.out.view, text);
  comparison.add(by_keys.lse.view, by_blocks.lse.view, "lse, " + text);
  CHECK_MESSAGE(by_keys.out.surroundings_untouched(), "written outside of out: ", text);
}

TEST_CASE("attention to few keys has the bits of attention by blocks of keys") {
  BitComparison comparison;
  Random random(seed);
  const std::vector<Index> lengths =
      slow_isa() ? std::vector<Index>{1, 7, 16, 33, 128}
                 : std::vector<Index>{1, 3, 5, 6, 7, 9, 11, 12, 13, 16, 17, 31, 32, 33, 47, 64, 100, 127, 128, 129};
  const std::vector<Layout> all{{}, {.name = "side by side", .order = Order::middle}, layouts()[2], layouts()[7]};
  for (const Index queries : lengths)
    for (const Index keys : lengths) {
      const auto turn = static_cast<std::size_t>(queries + keys);
      const AttentionSizes s{.batch = 2,
                             .q_heads = 4,
                             .kv_heads = turn % 3 == 0 ? 2 : 4,
                             .q_length = queries,
                             .kv_length = keys,
                             .head_dim = std::array<Index, 5>{64, 1, 40, 16, 130}[turn % 5],
                             .value_dim = std::array<Index, 3>{64, 32, 96}[turn % 3]};
      const Inputs x(s, random, turn % 7 == 0 ? layouts()[4] : all[turn % 4], all[(turn + 1) % 4]);
      for (const int threads : {1, 3}) compare(s, x, {.num_threads = threads}, all[(turn + 2) % 4], comparison);
    }
  comparison.finish("few keys", slow_isa() ? 100 : 1200);
}

TEST_CASE("attention to few keys: lengths of each element, sinks and scale") {
  BitComparison comparison;
  Random random(seed);
  const AttentionSizes s{
      .batch = 6, .q_heads = 2, .kv_heads = 2, .q_length = 40, .kv_length = 70, .head_dim = 32, .value_dim = 32};
  const Inputs x(s, random, {}, {});
  const Tensor<1> sinks = random_tensor<1>({s.q_heads}, random);
  const std::array<Index, 6> of_keys{70, 0, 1, 11, 33, 64}, of_queries{40, 40, 17, 33, 0, 12};
  AttentionOptions options;
  for (int kind = 0; kind < 16; ++kind) {
    options.num_threads = kind % 2 + 1;
    options.key_lengths = kind & 1 ? View<const Index, 1>(of_keys.data(), {6}) : View<const Index, 1>{};
    options.query_lengths = kind & 2 ? View<const Index, 1>(of_queries.data(), {6}) : View<const Index, 1>{};
    options.sinks = kind & 4 ? sinks.view : View<const float, 1>{};
    options.scale = kind & 8 ? std::optional<float>(0.3f) : std::nullopt;
    compare(s, x, options, {}, comparison);
  }
  comparison.finish("few keys with options", 32);
}

TEST_CASE("attention to few keys: infinities, NaNs and large numbers") {
  BitComparison comparison;
  Random random(seed);
  const AttentionSizes s{
      .batch = 1, .q_heads = 1, .kv_heads = 1, .q_length = 35, .kv_length = 45, .head_dim = 32, .value_dim = 32};
  for (const float value : {infinity, -infinity, nan, 3e38f, -3e38f, 1e-45f, -0.0f, 100.0f}) {
    for (int kind = 0; kind < 8; ++kind) {
      const Inputs x(s, random, {}, {});
      const Index row = random.integer(0, 34), column = random.integer(0, 31);
      if ((kind & 1) != 0) x.q.view(0, 0, row, column) = value;
      if ((kind & 2) != 0) x.k.view(0, 0, row, column) = value;
      if ((kind & 4) != 0) x.v.view(0, 0, row, column) = value;
      if (kind == 7) for_each(x.q.view, [&](float& element) { element = value; });
      compare(s, x, {}, {}, comparison);
    }
  }
  comparison.finish("few keys with special values", 128);
}

/// A causal call, in no more memory than its plan says, against one with a mask of the same keys.
void compare_causal(const AttentionSizes& s, const Inputs& x, AttentionOptions options, BitComparison& comparison) {
  static GuardedBuffer memory(Index{2} << 20);
  const Mask mask({1, 1, s.q_length, s.kv_length});
  for_each_position(mask.view.shape,
                    [&](const auto& p) { mask.view(0, 0, p[2], p[3]) = p[3] <= p[2] + options.causal_offset; });
  const Outputs by_keys(s), by_blocks(s);
  options.causal = true;
  const std::size_t bytes = plan_attention(x.q.view, x.k.view, x.v.view, by_keys.out.view, options).workspace_bytes;
  const Index floats = static_cast<Index>(bytes / sizeof(float));
  options.workspace =
      std::as_writable_bytes(std::span(memory.place(floats, 0, Place::end), static_cast<std::size_t>(floats)));
  run(x, by_keys, options);
  const std::string text =
      text_of(s, options) + ", offset " + std::to_string(options.causal_offset) + ", seed " + std::to_string(seed);
  CHECK_MESSAGE(memory.surroundings_untouched(), "written outside of the workspace: ", text);
  options.causal = false;
  options.workspace = {};
  run(x, by_blocks, options, stretched<const bool>(mask.view, score_shape(s)));
  comparison.add(by_keys.out.view, by_blocks.out.view, text);
  comparison.add(by_keys.lse.view, by_blocks.lse.view, "lse, " + text);
}

TEST_CASE("causal attention to few keys has the bits of a mask of the same keys") {
  BitComparison comparison;
  Random random(seed);
  const Layout side_by_side{.name = "side by side", .order = Order::middle};  // values are packed
  for (const Index queries : {5, 12, 13, 16, 31, 33, 64, 77, 128})
    for (const Index keys : {7, 12, 16, 32, 47, 77, 128, 300}) {
      if (slow_isa() && (queries + keys) % 3 != 0) continue;
      const AttentionSizes s{.batch = 2,
                             .q_heads = 2,
                             .kv_heads = queries % 2 + 1,
                             .q_length = queries,
                             .kv_length = keys,
                             .head_dim = 24,
                             .value_dim = 64};
      for (const Layout& layout : {Layout{}, side_by_side}) {
        const Inputs x(s, random, layout, layout);
        for (const Index offset : {keys - queries, Index{0}, Index{-3}, Index{20}, -queries}) {
          AttentionOptions options;
          options.causal_offset = offset;
          options.num_threads = static_cast<int>(offset % 2 == 0 ? 1 : 3);
          compare_causal(s, x, options, comparison);
        }
        for (const float value : {nan, infinity}) {  // of keys that some queries do not see
          for_each(x.v.view.slice(2, keys / 2, keys), [&](float& element) { element = value; });
          compare_causal(s, x, {}, comparison);
        }
      }
    }
  comparison.finish("causal attention to few keys", slow_isa() ? 500 : 2000);
}

TEST_CASE("attention to few keys: the rows of a kv head are heads") {
  BitComparison comparison;
  Random random(seed);
  for (const Index keys : {13, 40, 128}) {
    const AttentionSizes s{
        .batch = 2, .q_heads = 40, .kv_heads = 2, .q_length = 1, .kv_length = keys, .head_dim = 32, .value_dim = 32};
    const Inputs x(s, random, {}, {});
    for (const int threads : {1, 2}) compare(s, x, {.num_threads = threads}, {}, comparison);
    for (const Index offset : {keys - 1, keys / 2, Index{-1}}) {
      AttentionOptions options;
      options.causal_offset = offset;
      compare_causal(s, x, options, comparison);
    }
  }
  comparison.finish("heads to few keys", 30);
}

TEST_CASE("attention to few keys between guard pages") {
  Counts counts;
  Guarded<4> q, k, v, out;
  Random random(seed);
  for (Index length = 1; length <= 130; ++length) {
    const AttentionSizes s{.batch = 1,
                           .q_heads = 1,
                           .kv_heads = 1,
                           .q_length = 1 + (length * 7) % 45,
                           .kv_length = length,
                           .head_dim = 1 + (length * 5) % 37,
                           .value_dim = 32};
    const Inputs x(s, random, {}, {});
    const Outputs expected(s);
    run(x, expected, {}, nothing_hidden(s));
    for (Index gap = 0; gap < 16; gap += slow_isa() ? 5 : 1)
      for (const Place where : {Place::start, Place::end}) {
        q.place(x.q.view, {}, gap, where);
        k.place(x.k.view, {}, gap, where);
        v.place(x.v.view, {}, gap, where);
        out.place(expected.out.view, {}, gap, where);
        for_each(out.view, [](float& element) { element = nan; });
        attention(q.view, k.view, v.view, out.view);
        counts.add(different_bits(out.view, expected.out.view) == 0, out.buffer.surroundings_untouched(),
                   text_of_case(text_of(s, {}), length, gap, where));
      }
  }
  counts.finish("few keys");
}

}  // namespace
}  // namespace headlane::test
