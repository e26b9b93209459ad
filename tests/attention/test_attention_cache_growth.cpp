// attention over a KvCache whose sequences grow, fork and shrink is bit-identical to the rows of
// attention over all keys at once.
#include "support/cache_case.hpp"
#include "support/illegal.hpp"

#include <cmath>

namespace headlane::test {
namespace {

// Causal attention over all tokens at once, over keys and values as a cache of this type stores
// them if all are appended at once.
struct Whole {
  explicit Whole(const AttentionSizes& s, std::uint64_t seed, DType type = DType::float32)
      : t(s, seed), given(s, seed) {
    KvCache cache(s.kv_heads, s.head_dim, s.value_dim, {.type = type});
    const Index sequence = cache.add();
    cache.append(sequence, k(0, s.kv_length), v(0, s.kv_length));
    cache.read(sequence, 0, t.k.view.select(0, 0), t.v.view.select(0, 0));
    t.run(causal(0));
  }
  [[nodiscard]] View<const float, 3> k(Index begin, Index end) const {
    return given.k.view.select(0, 0).slice(1, begin, end);
  }
  [[nodiscard]] View<const float, 3> v(Index begin, Index end) const {
    return given.v.view.select(0, 0).slice(1, begin, end);
  }
  // Queries begin … end-1 over a sequence that ends with key end-1.
  void compare(const KvCache& cache, Index sequence, Index begin, Index end, BitComparison& bits,
               const std::string& what) const {
    const auto rows = [&](const auto& view) { return view.slice(2, begin, end); };
    const Tensor<4> out(rows(t.out.view).shape);
    const Tensor<3> lse(rows(t.lse.view).shape);
    AttentionOptions options = causal(0);
    options.lse = lse.view;
    attention(rows(t.q.view), cache, {&sequence, 1}, out.view, options);
    const std::string text =
        what + ", page " + std::to_string(cache.page_size()) + ", queries " + std::to_string(begin);
    bits.add(out.view, rows(t.out.view), text);
    bits.add(lse.view, rows(t.lse.view), "lse, " + text);
  }
  AttentionTensors t, given;
};

TEST_CASE("cache: chunked prefill and decoding give the rows of the whole prefill") {
  BitComparison bits;
  Random random(1);
  const Index length = slow_isa() ? 600 : 1100;
  const AttentionSizes wide{
      .q_heads = 4, .kv_heads = 2, .q_length = length, .kv_length = length, .head_dim = 33, .value_dim = 48},
      narrow{.q_heads = 8, .kv_heads = 1, .q_length = length, .kv_length = length, .head_dim = 16, .value_dim = 20};
  std::vector<Whole> all;
  std::vector<DType> types;
  for (const AttentionSizes& s : {wide, narrow})
    for (const DType type : types_of_case(types.size())) {
      all.emplace_back(s, 6 + types.size(), type);
      types.push_back(type);
    }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Whole* w = &all[i];
    const Index head_dim = w->t.q.view.size(3), value_dim = w->t.v.view.size(3), kv_heads = w->t.k.view.size(1);
    for (const Index page : page_sizes()) {
      KvCache cache(kv_heads, head_dim, value_dim, {.page_size = page, .type = types[i]});
      for (const Index largest : {1, 40, 300}) {  // 1: token by token
        const Index sequence = cache.add(), end_of_all = largest == 1 ? length / 2 + 20 : length;
        for (Index begin = 0; begin < end_of_all;) {
          const Index end = std::min(begin + random.integer(1, largest), length);
          cache.append(sequence, w->k(begin, end), w->v(begin, end));
          w->compare(cache, sequence, begin, end, bits, "chunks up to " + std::to_string(largest));
          begin = end;
        }
        cache.remove(sequence);  // the next one reuses its pages
      }
    }
  }
  bits.finish("cache, chunks", slow_isa() ? 5000 : 20000);
}

TEST_CASE("cache: forked sequences, and truncated ones that grow again") {
  BitComparison bits;
  Random random(2);
  constexpr Index length = 1100;
  const AttentionSizes s{
      .q_heads = 4, .kv_heads = 2, .q_length = length, .kv_length = length, .head_dim = 16, .value_dim = 33};
  Whole a(s, 8), b(s, 9);
  // The last two queries over a sequence with `cut` keys of a, followed by keys of b.
  const auto compare = [&](const KvCache& cache, Index sequence, Index cut, const std::string& what) {
    const Index keys = cache.length(sequence);
    const Tensor<4> k({1, 2, keys, 16}), v({1, 2, keys, 33}), out({1, 4, 2, 33}), expected({1, 4, 2, 33});
    const auto join = [&](const View<float, 4>& from_a, const View<float, 4>& from_b, const View<float, 4>& to) {
      copy<4>(from_a.slice(2, 0, cut), to.slice(2, 0, cut));
      copy<4>(from_b.slice(2, cut, keys), to.slice(2, cut, keys));
    };
    join(a.t.k.view, b.t.k.view, k.view);
    join(a.t.v.view, b.t.v.view, v.view);
    const View<const float, 4> q = a.t.q.view.slice(2, 0, 2);
    attention(q, cache, {&sequence, 1}, out.view, causal(0));
    attention(q, k.view, v.view, expected.view, causal(keys - 2));
    bits.add(out.view, expected.view,
             what + ", page " + std::to_string(cache.page_size()) + ", cut " + std::to_string(cut) + ", keys " +
                 std::to_string(keys));
  };
  std::size_t number = 0;
  for (const Index page : page_sizes()) {
    const DType type = cache_types[number++ % cache_types.size()];
    KvCache cache(2, 16, 33, {.page_size = page, .type = type});
    a = Whole(s, 8, type);
    b = Whole(s, 9, type);
    for (int i = 0; i < (slow_isa() ? 10 : 40); ++i) {
      const Index parent = cache.add(), grown = random.integer(1, 700), cut = random.integer(0, grown);
      append_pieces(cache, parent, a.k(0, length), a.v(0, length), 0, grown, random);
      const Index child = cache.fork(parent, cut), sibling = cache.fork(parent);
      const Index end = random.integer(cut, length), later = random.integer(grown, length);
      append_pieces(cache, child, b.k(0, length), b.v(0, length), cut, end, random);
      append_pieces(cache, parent, a.k(0, length), a.v(0, length), grown, later, random);
      compare(cache, child, cut, "fork");
      compare(cache, parent, later, "the sequence that was forked");
      compare(cache, sibling, grown, "fork of all");
      cache.truncate(sibling, cut);
      append_pieces(cache, sibling, b.k(0, length), b.v(0, length), cut, end, random);
      compare(cache, sibling, cut, "truncated and appended to");
      compare(cache, parent, later, "the sequence whose fork was truncated");
      cache.remove(parent);
      compare(cache, child, cut, "fork of what was removed");
      cache.remove(child);
      cache.remove(sibling);
    }
    CHECK(cache.pages_in_use() == 0);
  }
  bits.finish("cache, forks", 400);
}

TEST_CASE("cache: truncated keys have no influence") {
  BitComparison bits;
  Random random(3);
  const float signalling = std::bit_cast<float>(0x7fa00001u);
  for (const Index page : page_sizes()) {
    for (int i = 0; i < (slow_isa() ? 8 : 40); ++i) {
      const Index length = random.integer(1, 600), more = random.integer(1, 600), value_dim = random.integer(1, 40);
      const AttentionSizes s{.q_heads = 4,
                             .kv_heads = 2,
                             .q_length = random.pick(std::vector<Index>{1, 3, 30}),
                             .kv_length = length,
                             .head_dim = 20,
                             .value_dim = value_dim};
      const DType type = cache_types[static_cast<std::size_t>(i) % 3];  // int8 takes no such numbers
      CacheCase c(s, {0}, page, static_cast<std::uint64_t>(i), {}, type);
      Tensor<3> bad_k({2, length + more, 20}), bad_v({2, length + more, value_dim});
      for (const View<float, 3>& view : {bad_k.view, bad_v.view})
        for_each(view, [&](float& x) { x = random.pick(std::vector<float>{nan, infinity, -infinity, signalling}); });
      const Index sequence = c.sequences[0], kept = random.integer(0, length);
      append_pieces(c.cache, sequence, c.k(0), c.v(0), 0, kept, random);
      c.cache.append(sequence, bad_k.view.slice(1, 0, length - kept + more),
                     bad_v.view.slice(1, 0, length - kept + more));
      c.cache.truncate(sequence, kept);
      append_pieces(c.cache, sequence, c.k(0), c.v(0), kept, length, random);
      c.lengths = {length};
      c.take_stored();
      RandomOptions given(s);
      c.compare(given.draw(random, {.one_in = 4, .key_lengths = c.lengths}), bits);
      bool finite = true;
      for_each(c.t.out.view, [&](float x) { finite = finite && std::isfinite(x); });
      CHECK_MESSAGE(finite, "page ", page, ", keys ", length, ", isa ", isa(), ", seed ", i);
    }
  }
  bits.finish("cache, poison", 100);
}

TEST_CASE("attention over a cache: illegal calls") {
  KvCache cache(2, 8, 6, {.page_size = 32});
  Random random(4);
  std::vector<Index> sequences{cache.add(), cache.add()};
  const Index gone = cache.add();
  cache.remove(gone);
  const Tensor<3> k = random_tensor<3>({2, 40, 8}, random), v = random_tensor<3>({2, 40, 6}, random);
  cache.append(sequences[0], k.view, v.view);
  cache.append(sequences[1], k.view.slice(1, 0, 7), v.view.slice(1, 0, 7));
  const Tensor<4> q = random_tensor<4>({2, 4, 3, 8}, random), out({2, 4, 3, 6});
  const Tensor<3> lse({2, 4, 3});
  std::vector<Illegal> calls;
  const auto run = [&](const View<const float, 4>& x, const std::vector<Index>& of, const View<float, 4>& y,
                       AttentionOptions o = {}) {
    o.lse = lse.view;
    attention(x, cache, of, y, o);
  };
  add(calls, "attention", "q", wrong_views(q.view), [&](const View<float, 4>& x) { run(x, sequences, out.view); });
  add(calls, "attention", "out", wrong_outputs(out.view), [&](const View<float, 4>& y) { run(q.view, sequences, y); });
  for (const Index bad : {Index{-1}, gone, Index{3}, huge, -huge})
    calls.push_back({"sequence " + std::to_string(bad),
                     [&, bad] { run(q.view, {sequences[0], bad}, out.view); },
                     {"attention", "sequences[1]", std::to_string(bad)}});
  calls.push_back({"one sequence", [&] { run(q.view, {sequences[0]}, out.view); }, {"attention", "q", "2", "1"}});
  calls.push_back({"three sequences", [&] { run(q.view, {0, 1, 1}, out.view); }, {"attention", "q", "2", "3"}});
  const auto option = [&](const char* what, const AttentionOptions& o, const std::vector<std::string>& words) {
    calls.push_back({what, [&, o] { run(q.view, sequences, out.view, o); }, words});
  };
  const std::vector<Index> starts{0, 1, 3}, long_lengths{40, 8};
  AttentionOptions varlen, lengths;
  varlen.query_starts = {starts.data(), {3}};
  varlen.key_starts = {starts.data(), {3}};
  option("variable-length", varlen, {"attention", "query_starts", "cache"});
  varlen.query_starts = {};
  option("only key_starts", varlen, {"attention", "key_starts"});
  lengths.key_lengths = {long_lengths.data(), {2}};
  option("a length beyond its sequence, within the longest one", lengths, {"attention", "key_lengths[1]", "8", "7"});
  const std::vector<Index> turned{8, 40};
  AttentionOptions of_turned;
  of_turned.key_lengths = {turned.data(), {2}};
  calls.push_back({"likewise, of the first sequence",
                   [&] { run(q.view, {sequences[1], sequences[0]}, out.view, of_turned); },
                   {"attention", "key_lengths[0]", "8", "7"}});
  const Mask mask({2, 4, 3, 41});
  const Tensor<4> bias({2, 4, 3, 39});
  const std::vector<std::uint8_t> bits(2 * 4 * 3 * 6);
  AttentionOptions o;
  o.mask_bits = {bits.data(), {2, 4, 3, 6}};
  option("mask_bits", o, {"attention", "mask_bits", "6", "40"});
  option("mask", with_mask({}, mask.view), {"attention", "mask", "41", "40"});
  option("bias", with_bias({}, bias.view), {"attention", "bias", "39", "40"});
  check_illegal(calls, [&] { return all_sentinels(out.view) && all_sentinels(lse.view); });
  CHECK(calls.size() > 40);
}

}  // namespace
}  // namespace headlane::test
