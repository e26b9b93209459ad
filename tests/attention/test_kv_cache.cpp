// KvCache against a model of its contents: random operations, sharing of pages, limits, reading.
#include "support/illegal.hpp"
#include "support/kv_model.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <array>
#include <numeric>

namespace headlane::test {
namespace {

std::vector<Index> numbers(Index first, Index count) {
  std::vector<Index> result(static_cast<std::size_t>(count));
  std::iota(result.begin(), result.end(), first);
  return result;
}

struct Pair {
  KvCache cache;
  KvModel model;
  Index next = 0;
  Pair(Index kv_heads, Index head_dim, Index value_dim, const KvCacheOptions& options)
      : cache(kv_heads, head_dim, value_dim, options), model{options.page_size} {}

  Index add() {
    const Index number = cache.add();
    CHECK(!model.sequences.contains(number));
    model.sequences[number] = {};
    return number;
  }
  Index fork(Index source, Index length = -1) {
    const Index number = cache.fork(source, length);
    CHECK(!model.sequences.contains(number));
    model.fork(source, length < 0 ? cache.length(source) : length, number);
    return number;
  }
  void append(Index number, Index count, const Layout& layout = {}, bool tokens_first = false) {
    const std::vector<Index> tokens = numbers(next, count);
    const Tokens x(cache, tokens, layout, tokens_first);
    cache.append(number, x.k, x.v);
    model.append(number, tokens);
    next += count;
  }
  /// lengths: the number of tokens that each sequence gets; `count` if absent.
  void append(const std::vector<Index>& sequences, Index count, const std::vector<Index>& lengths = {}) {
    const auto batch = static_cast<Index>(sequences.size());
    const Tokens x(cache, numbers(next, batch * count));  // the tokens of all sequences, concatenated
    const auto of = [&](const View<const float, 3>& y) {
      if (batch * count == 0) return View<const float, 4>(nullptr, {batch, y.shape[0], count, y.shape[2]});
      return y.split(1, count).permuted({1, 0, 2, 3});
    };
    cache.append(sequences, of(x.k), of(x.v), {lengths.data(), {static_cast<Index>(lengths.size())}});
    for (Index i = 0; i < batch; ++i) {
      const auto at = static_cast<std::size_t>(i);
      model.append(sequences[at], numbers(next + i * count, lengths.empty() ? count : lengths[at]));
    }
    next += batch * count;
  }
  void truncate(Index number, Index length) {
    cache.truncate(number, length);
    model.truncate(number, length);
  }
  void remove(Index number) {
    cache.remove(number);
    model.sequences.erase(number);
  }
  [[nodiscard]] std::vector<Index> names() const {
    std::vector<Index> result;
    for (const auto& [number, s] : model.sequences) result.push_back(number);
    return result;
  }
  [[nodiscard]] Index different() const { return differences(cache, model); }
};

// One operation, chosen at random.
void step(Pair& pair, Random& random) {
  std::vector<Index> all = pair.names();
  const Index size = pair.cache.page_size(), most = 3 * size;
  const Index which = all.empty() ? 0 : random.integer(0, 19);
  if (which == 0 && all.size() < 8) return void(pair.add());
  if (all.empty()) return;
  const Index one = random.pick(all), length = pair.cache.length(one);
  const Layout& layout = random.pick(layouts());
  const bool tokens_first = random.integer(0, 1) == 0;
  if (which <= 3) {
    if (all.size() < 8) pair.fork(one, random.integer(0, 1) == 0 ? -1 : random.integer(0, length));
  } else if (which <= 9) {
    if (length < most) pair.append(one, random.integer(1, 3), layout, tokens_first);
  } else if (which <= 12) {
    const Index count = std::min(random.integer(0, size + size / 2), most - length);
    pair.append(one, std::max<Index>(count, 0), layout, tokens_first);
  } else if (which <= 16) {
    for (Index i = static_cast<Index>(all.size()) - 1; i > 0; --i)
      std::swap(all[static_cast<std::size_t>(i)], all[static_cast<std::size_t>(random.integer(0, i))]);
    all.resize(static_cast<std::size_t>(random.integer(0, static_cast<Index>(all.size()))));
    std::erase_if(all, [&](Index s) { return pair.cache.length(s) >= most; });
    const Index count = random.integer(0, 4) == 0 ? random.integer(0, 40) : 1;
    std::vector<Index> lengths(random.integer(0, 1) == 0 ? 0 : all.size());
    for (Index& own : lengths) own = random.integer(0, count);
    pair.append(all, count, lengths);
  } else if (which <= 18) {
    pair.truncate(one, random.integer(0, 2) == 0 ? random.integer(0, length) : std::max<Index>(0, length - 2));
  } else {
    pair.remove(one);
  }
}

TEST_CASE("KvCache: thousands of random operations") {
  Random random(1);
  Index operations = 0;
  const std::array types{DType::float32, DType::bfloat16, DType::float16, DType::int8};
  std::size_t case_number = 0;
  for (const Index page_size : {32, 64, 128, 256, 512, 1024, 32, 64, 128, 256}) {
    for (const auto& [heads, dim, value_dim] : std::vector<std::array<Index, 3>>{
             {2, 1, 5}, {1, 5, 1}, {3, 33, 64}, {2, 64, 80}, {1, 80, 33}, {1, 512, 512}}) {
      const std::size_t type = (case_number / 6 + case_number % 6) % types.size();  // every pair of dims and type
      ++case_number;
      Pair pair(heads, dim, value_dim, {.page_size = page_size, .type = types[type]});
      const Index steps = page_size > 256 ? 60 : 250;
      for (Index i = 0; i < steps; ++i, ++operations) {
        step(pair, random);
        if (i % 25 == 0 || i + 1 == steps)
          REQUIRE_MESSAGE(pair.different() == 0, "type ", type, ", page_size ", page_size, ", dims ", dim, " and ",
                          value_dim, ", step ", i);
      }
      for (const Index number : pair.names()) pair.remove(number);
      CHECK(pair.cache.pages_in_use() == 0);
    }
  }
  CHECK(operations > 10000);
}

TEST_CASE("KvCache: every first key and number of keys around 16 and 32, every layout") {
  std::size_t i = 0;
  const std::array types{DType::float32, DType::int8, DType::float32, DType::bfloat16, DType::float16};
  for (const Layout& layout : layouts()) {
    for (const bool tokens_first : {false, true}) {
      Pair pair(2, 20, 35, {.page_size = 64, .type = types[i++ % types.size()]});
      for (Index first = 0; first < 34; ++first)
        for (const Index count : {1, 2, 15, 16, 17, 31, 32, 33, 70}) {
          const Index number = pair.add();
          pair.append(number, first);
          pair.append(number, count, layout, tokens_first);
          if (pair.different() != 0) FAIL("layout ", layout.name, ", ", first, " + ", count);
          pair.remove(number);  // the next one reuses its pages
        }
    }
  }
}

TEST_CASE("KvCache: broadcast k and v, special values, no access outside of them") {
  KvCache cache(3, 7, 9, {.page_size = 32});
  const Index number = cache.add();
  std::vector<float> row{0.0f, -0.0f, infinity, -infinity, nan, 1e-40f, -1.5f, 3.0f, 4.0f};
  cache.append(number, {row.data(), {3, 50, 7}, {0, 0, 1}}, {row.data(), {3, 50, 9}, {0, 0, 1}});
  for (Index head = 0; head < 3; ++head)
    for (Index i = 0; i < 50; ++i)
      for (Index d = 0; d < 9; ++d) {
        const std::uint32_t wanted = bits_of(row[static_cast<std::size_t>(d)]);
        const HeadOfPage page = KvPages::of(cache, "test").head(number, head, i / 32);
        const auto *keys = reinterpret_cast<const float*>(page.keys()),
                   *values = reinterpret_cast<const float*>(page.values());
        if (d < 7) CHECK(bits_of(keys[d * 32 + i % 32]) == wanted);
        CHECK(bits_of(values[i % 32 * 32 + d]) == wanted);
      }
  GuardedBuffer k(3 * 19 * 7), v(3 * 19 * 9);
  for (const Place place : {Place::start, Place::end})
    for (const Index tokens : {1, 5, 16, 19}) {
      const float *from_k = k.place(3 * tokens * 7, 0, place), *from_v = v.place(3 * tokens * 9, 0, place);
      cache.append(number, {from_k, {3, tokens, 7}}, {from_v, {3, tokens, 9}});
      cache.append(number, {from_k, {3, tokens, 7}, {7 * tokens, 1, tokens}},
                   {from_v, {3, tokens, 9}, {9 * tokens, 1, tokens}});
    }
}

TEST_CASE("KvCache: read returns the appended keys and values, from any key on") {
  for (const Index page_size : {32, 128, 512}) {
    KvCache cache(2, 5, 35, {.page_size = page_size});
    const Index sequence = cache.add(), tokens = 150;
    std::vector<float> k(static_cast<std::size_t>(2 * tokens * 5)), v(static_cast<std::size_t>(2 * tokens * 35));
    std::iota(k.begin(), k.end(), 0.0f);
    std::iota(v.begin(), v.end(), 0.5f);
    const View<float, 3> all_k(k.data(), {2, tokens, 5}), all_v(v.data(), {2, tokens, 35});
    cache.append(sequence, all_k, all_v);
    for (const Index first : {0, 1, 31, 32, 127, 149, 150})
      for (const Index count : std::vector<Index>{0, 1, 33, 150}) {
        if (first + count > tokens) continue;
        std::vector<float> k2(static_cast<std::size_t>(2 * count * 5), -1),
            v2(static_cast<std::size_t>(2 * count * 35), -1);
        // [tokens, heads, columns] in memory
        const View<float, 3> to_k(k2.data(), {2, count, 5}, {5, 10, 1}), to_v(v2.data(), {2, count, 35}, {35, 70, 1});
        cache.read(sequence, first, to_k, to_v);
        Index wrong = 0;
        for (Index head = 0; head < 2; ++head)
          for (Index i = 0; i < count; ++i) {
            for (Index d = 0; d < 5; ++d) wrong += to_k(head, i, d) != all_k(head, first + i, d);
            for (Index d = 0; d < 35; ++d) wrong += to_v(head, i, d) != all_v(head, first + i, d);
          }
        CHECK(wrong == 0);
      }
    const auto refused = [&](Index number, Index first, Index count, const char* words) {
      CHECK_THROWS_WITH_AS(cache.read(number, first, {k.data(), {2, count, 5}}, {v.data(), {2, count, 35}}),
                           doctest::Contains(words), std::invalid_argument);
    };
    refused(1, 0, 1, "KvCache::read: sequence 1 is not there");
    refused(0, -1, 1, "KvCache::read: first is -1");
    refused(0, 1, 150, "KvCache::read: first is 1 and k has 150 tokens, sequence 0 has 150 keys");
    refused(0, 151, 0, "KvCache::read: first is 151");
    CHECK_THROWS_WITH_AS(cache.read(0, 0, {k.data(), {1, 2, 5}}, {v.data(), {2, 2, 35}}), doctest::Contains("1 heads"),
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(cache.read(0, 0, {k.data(), {2, 2, 5}}, {k.data(), {2, 2, 35}}), doctest::Contains("overlaps"),
                         std::invalid_argument);
  }
}

TEST_CASE("KvCache: forks are independent; pages are shared until one of them is appended to") {
  Pair pair(2, 8, 8, {.page_size = 32, .max_pages = 7});
  const Index a = pair.add();
  pair.append(a, 80);  // 3 pages, the last one half full
  const Index b = pair.fork(a), c = pair.fork(a, 40), d = pair.fork(a, 64), e = pair.fork(a, 0);
  CHECK(pair.cache.pages_in_use() == 3);
  CHECK(KvPages::of(pair.cache, "test").head(a, 1, 1).memory == KvPages::of(pair.cache, "test").head(c, 1, 1).memory);
  CHECK(pair.cache.length(e) == 0);
  pair.append(std::vector<Index>{a, b}, 1);  // one of them keeps the page
  CHECK(pair.cache.pages_in_use() == 4);
  CHECK(pair.different() == 0);
  pair.append(c, 1);
  pair.append(d, 1);  // begins a page of its own
  CHECK(pair.cache.pages_in_use() == 6);
  CHECK(pair.different() == 0);
  pair.remove(a);
  CHECK(pair.cache.pages_in_use() == 5);
  pair.append(std::vector<Index>{b, c, d}, 15);
  CHECK(pair.cache.pages_in_use() == 5);
  pair.truncate(b, 5);
  pair.append(b, 2);  // its first page is shared with c and d: 4 remain, and a copy
  CHECK(pair.cache.pages_in_use() == 5);
  CHECK(pair.different() == 0);
  CHECK(pair.cache.bytes() == 6 * pair.cache.page_bytes());
  CHECK(pair.cache.page_bytes() == 4 * 2 * 32 * (8 + 32));
  CHECK(reinterpret_cast<std::uintptr_t>(KvPages::of(pair.cache, "test").head(c, 1, 1).values()) % 64 == 0);
}

TEST_CASE("KvCache: max_pages is kept, and an append that needs more changes nothing") {
  Pair pair(1, 3, 4, {.page_size = 32, .max_pages = 4});
  const Index a = pair.add(), b = pair.add();
  pair.append(a, 40);
  pair.append(b, 20);
  const Index c = pair.fork(b);
  const auto refused = [&](const std::vector<Index>& sequences, Index count, const char* needed) {
    const KvModel before = pair.model;
    try {
      pair.append(sequences, count);
      FAIL_CHECK("no error");
    } catch (const std::length_error& error) {
      const std::string text = error.what();
      CHECK_MESSAGE(text.find("KvCache::append: 3 pages are in use and " + std::string(needed) + " more") == 0, text);
      CHECK_MESSAGE(text.find("max_pages is 4") != std::string::npos, text);
    }
    CHECK(pair.different() == 0);
  };
  refused({a}, 100, "3");
  refused({a}, 57, "2");
  refused({a, b}, 25, "3");
  refused({c, b, a}, 13, "3");
  pair.append(std::vector<Index>{c, b, a}, 12);  // one copy
  CHECK(pair.cache.pages_in_use() == 4);
  pair.truncate(a, 52 - 20);
  pair.append(b, 1);
  CHECK(pair.cache.pages_in_use() == 4 - 1 + 1);
  CHECK(pair.different() == 0);
}

TEST_CASE("KvCache: a number is used again, a moved cache keeps its pages") {
  Pair pair(1, 4, 4, {});
  const Index a = pair.add(), b = pair.add();
  pair.append(b, 5);
  pair.remove(a);
  CHECK(pair.fork(b) == a);
  KvCache moved = std::move(pair.cache);
  CHECK(differences(moved, pair.model) == 0);
  pair.cache = std::move(moved);
  CHECK(pair.different() == 0);
  CHECK(pair.cache.page_size() == 128);
}

}  // namespace
}  // namespace headlane::test
