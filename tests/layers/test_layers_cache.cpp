// Layers over caches: decoding in chunks of any size is bit-identical to all positions at once, a
// remembered memory to the memory itself; failed calls leave caches unchanged.
#include "support/layer_model.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>

namespace headlane::test {
namespace {

/// A decoder layer, its inputs, and caches; sequences are not in the order of the batch.
struct Decoding {
  explicit Decoding(const LayerSizes& sizes, std::uint64_t seed = 1, Index length_ = 37, Index page = 32,
                    DType type = DType::float32)
      : s(sizes),
        length(length_),
        state(random_layer(s, seed, true)),
        layer(state.dict, "", s.options()),
        x({3, length, s.d_model}),
        memory({3, 21, s.memory_width}),
        y(x.view.shape),
        cache(s.kv_heads, s.head_dim, s.head_dim, {.page_size = page, .type = type}),
        projected(s.kv_heads, s.head_dim, s.head_dim, {.page_size = page, .type = type}) {
    Random random(seed + 1);
    fill_normal(x.view, random);
    fill_normal(memory.view, random);
    for (KvCache* one : {&cache, &projected})
      for (int i = 0; i < 4; ++i) (void)one->add();
  }

  [[nodiscard]] const MultiHeadAttention& self() const { return layer.self_attn(); }
  [[nodiscard]] const MultiHeadAttention& cross() const { return layer.multihead_attn(); }
  [[nodiscard]] View<const float, 3> rows(Index first, Index end) const { return x.view.slice(1, first, end); }
  void project_memory(const ProjectMemoryOptions& options = {}) {
    cross().project_memory(memory.view, projected, memory_sequences, options);
  }
  /// The lengths of the sequences in the cache.
  [[nodiscard]] std::vector<Index> lengths() const {
    std::vector<Index> all;
    for (Index i = 0; i < 4; ++i) all.push_back(cache.length(i));
    for (Index i = 0; i < 4; ++i) all.push_back(projected.length(i));
    return all;
  }

  LayerSizes s;
  Index length;
  RandomState state;
  DecoderLayer layer;
  Tensor<3> x, memory, y;
  KvCache cache, projected;
  std::vector<Index> sequences{2, 0, 3}, memory_sequences{1, 3, 0};
};

TEST_CASE("cached decoding has the bits of all positions at once, in pieces of any size") {
  for (const LayerSizes& s : layer_sizes()) {
    for (const Index piece : {1, 2, 7, 37}) {
      Decoding d(s);
      const Tensor<3> whole(d.x.view.shape), attended(d.x.view.shape);
      d.layer.forward(d.x.view, d.memory.view, whole.view);
      d.self().forward(d.x.view, attended.view, {.causal = true});
      d.project_memory();
      KvCache other(s.kv_heads, s.head_dim, s.head_dim, {.page_size = 64});
      for (int i = 0; i < 4; ++i) (void)other.add();
      for (Index first = 0; first < d.length; first += piece) {
        const Index end = std::min(first + piece, d.length);
        const View<float, 3> y = d.y.view.slice(1, first, end);
        // causal or not: keys that were in the cache before are visible to all queries
        d.self().forward(d.rows(first, end), other, d.sequences, y, {.causal = piece == 1});
        CHECK(different_bits(y, attended.view.slice(1, first, end)) == 0);
        d.layer.forward(d.rows(first, end), d.cache, d.sequences, d.projected, d.memory_sequences, y);
        CHECK_MESSAGE(different_bits(y, whole.view.slice(1, first, end)) == 0, text_of(s), ", piece ", piece, ", isa ",
                      isa());
        CHECK(d.lengths() == std::vector<Index>{end, 0, end, end, 21, 21, 0, 21});
      }
    }
  }
}

TEST_CASE("cached decoding in place, on several threads, with a cache that forks") {
  for (const LayerSizes& s : layer_sizes()) {
    Decoding d(s);
    const Tensor<3> whole(d.x.view.shape);
    d.layer.forward(d.x.view, d.memory.view, whole.view);
    d.project_memory({.num_threads = 2});
    d.layer.forward(d.rows(0, 20), d.cache, d.sequences, d.projected, d.memory_sequences, d.y.view.slice(1, 0, 20));
    const std::vector<Index> forks{d.cache.fork(2), d.cache.fork(0), d.cache.fork(3)};
    const Tensor<3> copied(d.x.view.shape);
    copy<3>(d.x.view, copied.view);
    for (const bool forked : {true, false}) {
      const View<float, 3> rows = (forked ? copied : d.x).view.slice(1, 20, d.length);
      d.layer.forward(rows, d.cache, forked ? forks : d.sequences, d.projected, d.memory_sequences, rows,
                      {.num_threads = 3});
      CHECK(different_bits(rows, whole.view.slice(1, 20, d.length)) == 0);
    }
  }
}

TEST_CASE("attention to projected memory has the bits of attention to the memory") {
  for (const LayerSizes& s : layer_sizes()) {
    Decoding d(s);
    const Tensor<3> expected(d.x.view.shape);
    d.cross().forward(d.x.view, d.memory.view, expected.view);
    d.project_memory();
    d.cross().forward_projected(d.x.view, d.projected, d.memory_sequences, d.y.view);
    CHECK_MESSAGE(different_bits(d.y.view, expected.view) == 0, text_of(s));
    // A second time: behind the first.
    d.project_memory();
    CHECK(d.projected.length(d.memory_sequences[0]) == 42);

    // With lengths, and the same rows as a variable-length batch with gaps before and behind.
    const std::vector<Index> lengths{21, 0, 9}, starts{2, 23, 23, 32};
    const Tensor<3> varlen({1, 40, s.memory_width});
    copy<2>(View<const float, 3>(d.memory.view).select(0, 0), varlen.view.select(0, 0).slice(0, 2, 23));
    copy<2>(View<const float, 3>(d.memory.view).select(0, 2).slice(0, 0, 9), varlen.view.select(0, 0).slice(0, 23, 32));
    const View<const Index, 1> of_lengths(lengths.data(), {3});
    d.cross().forward(d.x.view, d.memory.view, expected.view, {.key_lengths = of_lengths});
    for_each(d.memory.view.select(0, 1), [](float& e) { e = nan; });  // padding
    for (const bool with_starts : {false, true}) {
      KvCache cache(s.kv_heads, s.head_dim, s.head_dim);
      std::vector<Index> sequences(3);
      for (Index& sequence : sequences) sequence = cache.add();
      if (with_starts) d.cross().project_memory(varlen.view, cache, sequences, {.key_starts = {starts.data(), {4}}});
      else d.cross().project_memory(d.memory.view, cache, sequences, {.key_lengths = of_lengths});
      for (std::size_t i = 0; i < 3; ++i) CHECK(cache.length(sequences[i]) == lengths[i]);
      d.cross().forward_projected(d.x.view, cache, sequences, d.y.view);
      CHECK_MESSAGE(different_bits(d.y.view, expected.view) == 0, text_of(s), with_starts ? ", starts" : ", lengths");
    }
  }
}

/// The caches hold what they held: the next piece has the bits that it has.
void check_unchanged(Decoding& d, const Tensor<3>& whole, const std::vector<Index>& forks) {
  CHECK(d.lengths() == std::vector<Index>{20, 0, 20, 20, 21, 21, 0, 21});
  CHECK(d.cache.pages_in_use() == 3);  // those of the forks
  const Tensor<3> y({3, 5, d.s.d_model});
  d.layer.forward(d.rows(20, 25), d.cache, d.sequences, d.projected, d.memory_sequences, y.view);
  CHECK(different_bits(y.view, whole.view.slice(1, 20, 25)) == 0);
  for (std::size_t i = 0; i < forks.size(); ++i) {
    d.cache.remove(d.sequences[i]);
    CHECK(d.cache.fork(forks[i]) == d.sequences[i]);
  }
}

TEST_CASE("what fails leaves the caches as they were, and y") {
  Decoding d({.memory_width = 11});
  const Tensor<3> whole(d.x.view.shape);
  d.layer.forward(d.x.view, d.memory.view, whole.view);
  d.project_memory();
  d.layer.forward(d.rows(0, 20), d.cache, d.sequences, d.projected, d.memory_sequences, d.y.view.slice(1, 0, 20));
  // An append has to copy pages first.
  const std::vector<Index> forks{d.cache.fork(2), d.cache.fork(0), d.cache.fork(3)};
  const Tensor<3> y({3, 3, d.s.d_model}), lse({3, 3, 3});
  const View<const float, 3> x = d.rows(20, 23);
  const std::vector<Index> bad_lengths{4, 22, 1};
  const Tensor<4> bias({3, 3, 3, 24});
  Index errors = 0;
  const auto fails = [&](const char* word, const AttentionOptions& self, const AttentionOptions& cross,
                         const std::vector<Index>& sequences, const std::vector<Index>& memory_sequences) {
    std::string message;
    try {
      d.layer.forward(x, d.cache, sequences, d.projected, memory_sequences, y.view, self, cross);
    } catch (const std::invalid_argument& error) {
      message = error.what();
    }
    CHECK_MESSAGE(message.starts_with("DecoderLayer::forward: "), message);
    CHECK_MESSAGE(message.find(word) != std::string::npos, message, " does not say ", word);
    for_each(y.view, [](float e) { CHECK(is_sentinel(e)); });
    for_each(lse.view, [](float e) { CHECK(is_sentinel(e)); });
    check_unchanged(d, whole, forks);
    ++errors;
  };
  const View<const Index, 1> lengths(bad_lengths.data(), {3});
  const auto& s = d.sequences;
  const auto& m = d.memory_sequences;
  fails("key_lengths[1] is 22", {.lse = lse.view}, {.key_lengths = lengths}, s, m);
  fails("bias", {.lse = lse.view}, {.bias = bias.view}, s, m);
  fails("softcap", {}, {.softcap = -1}, s, m);
  fails("window_left", {}, {.window_left = -2}, s, m);
  fails("num_threads", {}, {.num_threads = -1}, s, m);
  fails("query_starts", {}, {.query_starts = lengths, .key_starts = lengths}, s, m);
  fails("softcap", {.softcap = -1}, {}, s, m);
  fails("query_starts", {.query_starts = lengths, .key_starts = lengths}, {}, s, m);
  fails("bias", {.bias = bias.view}, {}, s, m);  // 24 keys, there are 23
  fails("query_lengths[0] is 4", {.query_lengths = lengths}, {}, s, m);
  fails("query_lengths has 2", {.query_lengths = {bad_lengths.data() + 1, {2}}}, {}, s, m);
  const std::vector<Index> queries{1, 3, 0}, keys{21, 23, 21};  // the last one has 20
  fails("key_lengths[2] is 21", {.query_lengths = {queries.data(), {3}}, .key_lengths = {keys.data(), {3}}}, {}, s, m);
  const std::vector<float> slopes(3, 0.5f);
  fails("alibi_slopes", {.causal_offset = Index{1} << 24, .alibi_slopes = {slopes.data(), {3}}}, {}, s, m);
  fails("sum", {.sum = lse.view}, {}, s, m);
  fails("sum", {}, {.sum = lse.view}, s, m);
  fails("sequences[2] is 9", {}, {}, {2, 0, 9}, m);
  fails("sequence 2 is named twice in sequences", {}, {}, {2, 0, 2}, m);
  fails("sequences", {}, {}, {2, 0}, m);
  fails("sequences", {}, {}, {2, 0, -1}, m);
  fails("sequences", {}, {}, s, {1, 3, 7});
  fails("sequences", {}, {}, s, {1, 3, 0, 2});
  CHECK(errors == 21);
}

TEST_CASE("over caches of other types, decoding has the same bits in pieces of any size") {
  const LayerSizes s = layer_sizes()[1];
  for (const DType type : {DType::bfloat16, DType::float16, DType::int8}) {
    Decoding whole(s, 1, 37, 64, type), plain(s, 1, 37);
    for (Decoding* d : {&whole, &plain}) {
      d->project_memory();
      d->layer.forward(d->x.view, d->cache, d->sequences, d->projected, d->memory_sequences, d->y.view);
    }
    CHECK(different_bits(whole.y.view, plain.y.view) > 0);
    for (const Index piece : {1, 2, 7}) {
      Decoding d(s, 1, 37, 32, type);
      d.project_memory();
      for (Index first = 0; first < d.length; first += piece) {
        const Index end = std::min(first + piece, d.length);
        d.layer.forward(d.rows(first, end), d.cache, d.sequences, d.projected, d.memory_sequences,
                        d.y.view.slice(1, first, end));
      }
      CHECK_MESSAGE(different_bits(d.y.view, whole.y.view) == 0, "type ", static_cast<int>(type), ", piece ", piece,
                    ", isa ", isa());
    }
  }
}

TEST_CASE("an int8 cache refuses keys that are not finite, and is unchanged") {
  Decoding d(LayerSizes{}, 1, 37, 32, DType::int8);
  d.project_memory();
  const std::vector<Index> before = d.lengths();
  d.x.view(1, 4, 3) = infinity;
  CHECK_THROWS_WITH_AS(d.layer.forward(d.x.view, d.cache, d.sequences, d.projected, d.memory_sequences, d.y.view),
                       doctest::Contains("is not finite"), std::invalid_argument);
  d.memory.view(0, 4, 3) = nan;
  CHECK_THROWS_WITH_AS(d.project_memory(), doctest::Contains("KvCache::append: k["), std::invalid_argument);
  CHECK(d.lengths() == before);
  for_each(d.y.view, [](float e) { CHECK(is_sentinel(e)); });
}

// max_pages is reached with the second of three sequences.
TEST_CASE("a full cache is unchanged") {
  Decoding d(LayerSizes{});
  KvCache small(3, 8, 8, {.page_size = 32, .max_pages = 2});
  for (int i = 0; i < 4; ++i) (void)small.add();
  CHECK_THROWS_AS(d.cross().project_memory(d.memory.view, small, d.memory_sequences), std::length_error);
  d.project_memory();
  CHECK_THROWS_AS(
      d.layer.forward(d.rows(0, 9), small, d.sequences, d.projected, d.memory_sequences, d.y.view.slice(1, 0, 9)),
      std::length_error);
  CHECK_THROWS_AS(d.self().forward(d.rows(0, 9), small, d.sequences, d.y.view.slice(1, 0, 9)), std::length_error);
  for (Index i = 0; i < 4; ++i) CHECK(small.length(i) == 0);
  CHECK(small.pages_in_use() == 0);
  for_each(d.y.view, [](float e) { CHECK(is_sentinel(e)); });
}

}  // namespace
}  // namespace headlane::test
