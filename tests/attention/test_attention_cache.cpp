// attention over a KvCache of any type is bit-identical to attention over the keys and values that
// it reads.
#include "support/cache_case.hpp"

namespace headlane::test {
namespace {

const std::vector<Index> many_lengths{511, 0, 3000, 1, 31, 513, 32, 33, 1500, 512};
const std::vector<Index> some_lengths{513, 0, 1100, 1, 32};

// With the batch and the number of keys that hold sequences of these lengths.
AttentionSizes sizes_for(const std::vector<Index>& lengths, AttentionSizes s) {
  s.batch = std::ssize(lengths);
  s.kv_length = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  return s;
}

struct Heads {
  Index q_heads, kv_heads;
};
const std::vector<Heads> heads{
    {.q_heads = 8, .kv_heads = 2}, {.q_heads = 8, .kv_heads = 1}, {.q_heads = 3, .kv_heads = 3}};

struct Dims {
  Index head_dim, value_dim;
};
const std::vector<Dims> dims{{64, 64}, {1, 5}, {5, 1}, {16, 33}, {33, 16}, {80, 128}, {128, 80}, {512, 64}, {33, 512}};

TEST_CASE("attention over a cache: sequences of many lengths in one call, each page size") {
  BitComparison bits;
  std::size_t i = 0;
  for (const Index page : page_sizes()) {
    for (const Heads& h : heads) {
      const Dims& d = dims[i % dims.size()];
      const Index q_length = std::vector<Index>{1, 2, 13}[(i + i / 3) % 3];
      ++i;
      if (slow_isa() && q_length * d.head_dim * d.value_dim > 20000) continue;
      const bool is_wide = d.head_dim + d.value_dim > 200;  // most of the time would go into random numbers
      const std::vector<Index>& lengths = is_wide ? some_lengths : many_lengths;
      const AttentionSizes s = sizes_for(lengths, {.q_heads = h.q_heads,
                                                   .kv_heads = h.kv_heads,
                                                   .q_length = q_length,
                                                   .head_dim = d.head_dim,
                                                   .value_dim = d.value_dim});
      for (const DType type : types_of_case(i)) {
        const CacheCase c(s, lengths, page, i, layouts()[i % layouts().size()], type);
        for (const bool causal : {false, true}) {
          AttentionOptions options;
          options.causal = causal;
          options.num_threads = static_cast<int>(i % 4);
          c.compare(options, bits);
        }
      }
    }
  }
  bits.finish("cache, many lengths", slow_isa() ? 60 : 480);
}

TEST_CASE("attention over a cache: prefill") {
  BitComparison bits;
  std::size_t i = 0;
  for (const Index page : page_sizes()) {
    for (const Index q_length : {40, 97, 200, 700}) {
      if (slow_isa() && (q_length == 700 || (q_length == 200 && page != 1024))) continue;
      const Heads& h = heads[i % heads.size()];
      const Dims& d = dims[i++ % (q_length > 100 ? 4 : dims.size())];
      const std::vector<Index> lengths =
          q_length > 100 ? std::vector<Index>{q_length, 1100} : std::vector<Index>{20, 600, q_length};
      const AttentionSizes s = sizes_for(lengths, {.q_heads = h.q_heads,
                                                   .kv_heads = h.kv_heads,
                                                   .q_length = q_length,
                                                   .head_dim = d.head_dim,
                                                   .value_dim = d.value_dim});
      for (const DType type : types_of_case(i)) {
        const CacheCase c(s, lengths, page, i, {}, type);
        for (const int threads : {1, 3}) {
          AttentionOptions options;
          options.causal = true;
          options.num_threads = threads;
          if (threads == 3) options.window_left = 600;
          c.compare(options, bits);
        }
      }
    }
  }
  bits.finish("cache, prefill", slow_isa() ? 50 : 400);
}

TEST_CASE("attention over a cache: all options") {
  BitComparison bits;
  Random random(3);
  const int cases = slow_isa() ? 80 : 350;
  for (int i = 0; i < cases; ++i) {
    std::vector<Index> lengths;
    for (Index n = random.integer(1, 4); n > 0; --n)
      lengths.push_back(i % 8 == 0 ? random.pick(many_lengths) : random.integer(0, 150));
    const Index kv_heads = random.integer(1, 3), head_dim = random.pick(std::vector<Index>{1, 5, 16, 33, 64}),
                value_dim = random.pick(std::vector<Index>{1, 5, 16, 33, 64, 80});
    const Index q_length = i % 3 == 0 ? 1 : random.integer(1, i % 3 == 1 ? 13 : 60);
    const AttentionSizes s = sizes_for(lengths, {.q_heads = kv_heads * random.integer(1, 4),
                                                 .kv_heads = kv_heads,
                                                 .q_length = q_length,
                                                 .head_dim = head_dim,
                                                 .value_dim = value_dim});
    RandomOptions given(s);
    const AttentionOptions options = given.draw(random, {.one_in = 3, .key_lengths = lengths});
    const Index page = random.pick(page_sizes());
    const Layout& layout = random.pick(layouts());
    for (const DType type : types_of_case(static_cast<std::size_t>(i)))
      CacheCase(s, lengths, page, static_cast<std::uint64_t>(i), layout, type).compare(options, bits, i % 5 == 0);
  }
  bits.finish("cache, all options", (slow_isa() ? 2 : 8) * cases);
}

// Few heads on many threads are divided along keys; the plan confirms that the test covers this.
TEST_CASE("attention over a cache: numbers of threads, and tasks that divide the keys of a row") {
  BitComparison bits;
  Random random(4);
  Index shared = 0;
  std::size_t type = 0;
  for (const Index page : page_sizes()) {
    for (const Heads& h : {Heads{.q_heads = 1, .kv_heads = 1},
                           {.q_heads = 2, .kv_heads = 2},
                           {.q_heads = 8, .kv_heads = 1},
                           {.q_heads = 20, .kv_heads = 1}}) {
      for (const std::vector<Index>& lengths : {std::vector<Index>{3000}, {2049}, {600, 3000, 0}}) {
        if (slow_isa() && lengths.size() == 1 && page % 512 != 0) continue;
        const Index q_length = random.integer(1, 3) == 1 ? random.integer(2, 7) : 1;
        const AttentionSizes s = sizes_for(
            lengths,
            {.q_heads = h.q_heads, .kv_heads = h.kv_heads, .q_length = q_length, .head_dim = 64, .value_dim = 80});
        const CacheCase c(s, lengths, page, 11, {}, cache_types[type++ % cache_types.size()]);
        RandomOptions given(s);
        AttentionOptions options = given.draw(random, {.one_in = 4, .key_lengths = lengths});
        for (const int threads : {1, 2, 3, 5, 8}) {
          options.num_threads = threads;
          const AttentionPlan plan = plan_attention(c.t.q.view, c.cache, c.sequences, c.t.out.view, options);
          shared += plan.key_parts > 1 ? 1 : 0;
          std::vector<std::byte> memory(threads == 3 ? plan.workspace_bytes : 0);
          options.workspace = {memory.empty() ? nullptr : memory.data(), memory.size()};
          c.compare(options, bits, threads == 5);
        }
      }
    }
  }
  bits.finish("cache, threads", 100);
  CHECK(shared > (slow_isa() ? 40 : 100));
}

TEST_CASE("attention over a cache: any order of sequences, also repeated ones") {
  BitComparison bits;
  const AttentionSizes s =
      sizes_for(many_lengths, {.q_heads = 4, .kv_heads = 2, .q_length = 2, .head_dim = 33, .value_dim = 48});
  const CacheCase c(s, many_lengths, 64, 5, {}, DType::int8);
  c.compare(causal(0), bits);
  const std::vector<std::size_t> order{9, 2, 2, 0, 7, 2, 1, 1};
  const auto n = static_cast<Index>(order.size());
  const Tensor<4> q({n, 4, 2, 33}), out({n, 4, 2, 48});
  std::vector<Index> sequences;
  for (std::size_t i = 0; i < order.size(); ++i) {
    sequences.push_back(c.sequences[order[i]]);
    const auto to = static_cast<Index>(i), from = static_cast<Index>(order[i]);
    copy<4>(c.t.q.view.slice(0, from, from + 1), q.view.slice(0, to, to + 1));
  }
  for (const int threads : {1, 3}) {
    AttentionOptions options = causal(0);
    options.num_threads = threads;
    attention(q.view, c.cache, sequences, out.view, options);
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto to = static_cast<Index>(i), from = static_cast<Index>(order[i]);
      bits.add(out.view.slice(0, to, to + 1), c.t.out.view.slice(0, from, from + 1), "sequences in another order");
    }
  }
  attention(q.view.slice(0, 0, 0), c.cache, {}, out.view.slice(0, 0, 0));  // no sequences: nothing to do
  bits.finish("cache, order", 16);
}

}  // namespace
}  // namespace headlane::test
