// KvCache of bfloat16, float16 and int8: the rule by which it rounds, attention by every number of
// rows, sizes, and what int8 refuses.
#include "support/cache_case.hpp"
#include "support/illegal.hpp"
#include "support/kv_model.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

namespace headlane::test {
namespace {

constexpr std::array stored_types{DType::bfloat16, DType::float16, DType::int8};

/// Tokens of one head, in a cache of 1 kv head.
struct Rows {
  std::vector<float> k, v;
  Index tokens, head_dim, value_dim;

  Rows(Index tokens_, Index head_dim_, Index value_dim_)
      : k(static_cast<std::size_t>(tokens_ * head_dim_)),
        v(static_cast<std::size_t>(tokens_ * value_dim_)),
        tokens(tokens_),
        head_dim(head_dim_),
        value_dim(value_dim_) {}
  [[nodiscard]] View<float, 3> keys() { return {k.data(), {1, tokens, head_dim}}; }
  [[nodiscard]] View<float, 3> values() { return {v.data(), {1, tokens, value_dim}}; }
  /// What a cache of this type has instead.
  [[nodiscard]] Rows stored(DType type, Index page_size = 32) {
    KvCache cache(1, head_dim, value_dim, {.page_size = page_size, .type = type});
    const Index sequence = cache.add();
    cache.append(sequence, keys(), values());
    Rows result(tokens, head_dim, value_dim);
    cache.read(sequence, 0, result.keys(), result.values());
    return result;
  }
};

/// Rows whose numbers have the magnitude of x, a ratio of up to `spread` between them.
std::vector<float> random_row(Index n, float x, float spread, Random& random) {
  std::vector<float> row(static_cast<std::size_t>(n));
  for (float& y : row) y = random.uniform() * x * (random.integer(0, 1) == 0 ? 1.0f : 1.0f / spread);
  return row;
}

void put(std::vector<float>& all, Index token, const std::vector<float>& row) {
  std::copy(row.begin(), row.end(), all.begin() + token * std::ssize(row));
}
std::vector<float> get(const std::vector<float>& all, Index token, Index columns) {
  return {all.begin() + token * columns, all.begin() + (token + 1) * columns};
}

TEST_CASE("KvCache: each key and each value is rounded by the rule of its type") {
  Random random(1);
  constexpr Index head_dim = 33, value_dim = 70, tokens = 279;
  Rows given(tokens, head_dim, value_dim);
  for (Index i = 0; i < tokens; ++i) {  // all magnitudes, denormal numbers as well; keys unlike values
    put(given.k, i, random_row(head_dim, std::ldexp(1.99f, static_cast<int>(i) - 151), 1000, random));
    put(given.v, i, random_row(value_dim, std::ldexp(1.99f, 127 - static_cast<int>(i)), 1000, random));
  }
  put(given.k, 5, std::vector<float>(head_dim, 0.0f));
  put(given.v, 6, std::vector<float>(value_dim, -0.0f));
  for (const DType type : stored_types) {
    const Rows read = given.stored(type);
    Index wrong = 0;
    for (Index i = 0; i < tokens; ++i) {
      wrong += different_rows(get(read.k, i, head_dim), as_stored(get(given.k, i, head_dim), type));
      wrong += different_rows(get(read.v, i, value_dim), as_stored(get(given.v, i, value_dim), type));
    }
    CHECK_MESSAGE(wrong == 0, "type ", static_cast<int>(type), ", isa ", isa());
  }
}

// A scale of 1 and of 2: halves are ties.
TEST_CASE("KvCache: int8 rounds ties to even, and the largest number to 127 times its scale") {
  for (const float scale : {1.0f, 2.0f, 0x1p-126f, 0x1p-127f}) {
    Rows given(1, 8, 8);
    given.k = given.v = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -126.5f, 127.0f, 126.49f};
    for (float& x : given.k) x *= scale;
    for (float& x : given.v) x *= -scale;
    const Rows read = given.stored(DType::int8);
    std::vector<float> expected{0, 2, 2, 0, -2, -126, 127, 126};
    for (float& x : expected) x = scale < 0x1p-126f ? 0.0f : x * scale;
    CHECK(read.k == expected);
    for (float& x : expected) x = -x;
    CHECK(read.v == expected);
  }
  // Scales that 16 bits do not hold: the error of the largest number is that of the scale.
  Random random(2);
  for (int i = 0; i < 1000; ++i) {
    Rows given(1, 2, 2);
    const float most = std::ldexp(1 + random.uniform() * random.uniform(), static_cast<int>(random.integer(-100, 120)));
    given.k = given.v = {most, most / 3};
    const Rows read = given.stored(DType::int8);
    CHECK(std::abs(read.k[0] - most) <= 0x1p-16f * most);
    CHECK(std::abs(read.v[1] - most / 3) <= most / 253);
  }
}

TEST_CASE("KvCache: what was read is stored without a change") {
  Random random(3);
  constexpr Index tokens = 279;
  Rows given(tokens, 40, 40);
  for (Index i = 0; i < tokens; ++i)
    for (std::vector<float>* x : {&given.k, &given.v})
      put(*x, i, random_row(40, std::ldexp(1 + random.uniform(), static_cast<int>(i) - 151), 300, random));
  for (const DType type : stored_types) {
    Rows once = given.stored(type);
    const Rows twice = once.stored(type, 128);
    CHECK(different_rows(once.k, twice.k) == 0);
    CHECK(different_rows(once.v, twice.v) == 0);
  }
}

TEST_CASE("KvCache: 16-bit types keep NaN, and infinity where a number is too large") {
  Rows given(1, 4, 4);
  given.k = given.v = {nan, -infinity, 65520.0f, 0x1.ffp127f};
  for (const DType type : {DType::bfloat16, DType::float16}) {
    const Rows read = given.stored(type);
    CHECK(std::isnan(read.k[0]));
    CHECK(read.k[1] == -infinity);
    CHECK(read.k[2] == (type == DType::float16 ? infinity : 65536.0f));
    CHECK(read.v[3] == infinity);
  }
}

// Rows of a few numbers that are not finite: a masked key's must not reach a result.
TEST_CASE("attention over a cache of 16-bit types: numbers that are not finite") {
  BitComparison bits;
  Random random(4);
  for (int i = 0; i < (slow_isa() ? 40 : 200); ++i) {
    const AttentionSizes s{.batch = 2,
                           .q_heads = 4,
                           .kv_heads = 2,
                           .q_length = random.pick(std::vector<Index>{1, 3, 9}),
                           .kv_length = random.integer(1, 200),
                           .head_dim = random.integer(1, 40),
                           .value_dim = random.integer(1, 70)};
    const DType type = stored_types[static_cast<std::size_t>(i) % 2];
    CacheCase c(s, {0, 0}, random.pick(page_sizes()), static_cast<std::uint64_t>(i), {}, type);
    for (int n = 0; n < 4; ++n) {
      const Index b = random.integer(0, 1), key = random.integer(0, s.kv_length - 1);
      const float x = random.pick(std::vector<float>{nan, infinity, -infinity, 3e38f});
      if (n > 1) c.t.k.view(b, 0, key, random.integer(0, s.head_dim - 1)) = x;
      else c.t.v.view(b, 1, key, random.integer(0, s.value_dim - 1)) = x;
    }
    for (Index b = 0; b < 2; ++b)
      append_pieces(c.cache, c.sequences[static_cast<std::size_t>(b)], c.k(b), c.v(b), 0, s.kv_length, random);
    c.lengths = {s.kv_length, s.kv_length};
    c.take_stored();
    RandomOptions given(s);
    c.compare(given.draw(random, {.one_in = 2, .key_lengths = c.lengths}), bits);
  }
  bits.finish("cache, not finite", slow_isa() ? 40 : 200);
}

// Up to max_widening_rows the kernel widens what a cache of another type has, in tiles of every
// height; 17 rows read panels.
TEST_CASE("attention over a cache: each number of query rows, heads of a group or queries") {
  BitComparison bits;
  int cases = 0;
  for (Index rows = 1; rows <= 17; ++rows)
    for (const DType type : cache_types) {
      const bool group = rows % 2 == 0 || type == DType::bfloat16 || type == DType::float32;
      for (const auto& [head_dim, value_dim] : {std::pair<Index, Index>{33, 80}, {64, 70}}) {
        const AttentionSizes s{.q_heads = group ? 2 * rows : 2,
                               .kv_heads = 2,
                               .q_length = group ? 1 : rows,
                               .kv_length = 150,
                               .head_dim = head_dim,
                               .value_dim = value_dim};
        const CacheCase c(s, {s.kv_length}, 32, static_cast<std::uint64_t>(rows), {}, type);
        c.compare({}, bits);
        c.compare({.causal = true, .causal_offset = s.kv_length - s.q_length}, bits);
        cases += 2;
      }
    }
  bits.finish("cache, each number of rows", cases);
}

TEST_CASE("KvCache: sizes of each type") {
  for (const auto& [heads, page_size, dim, value_dim] :
       {std::array<Index, 4>{1, 32, 1, 1}, {2, 64, 33, 31}, {3, 128, 64, 64}, {1, 512, 512, 500}}) {
    const Index width = (value_dim + 31) / 32 * 32;
    for (const DType type : cache_types) {
      KvCache cache(heads, dim, value_dim, {.page_size = page_size, .type = type});
      CHECK(cache.type() == type);
      const Index bytes = heads * page_size * ((dim + width) * size_of(type) + (type == DType::int8 ? 8 : 0));
      CHECK(cache.page_bytes() == static_cast<std::size_t>(bytes));
      const Index sequence = cache.add(), tokens = page_size + 1;
      const std::vector<float> zeros(static_cast<std::size_t>(heads * tokens * std::max(dim, value_dim)));
      cache.append(sequence, {zeros.data(), {heads, tokens, dim}}, {zeros.data(), {heads, tokens, value_dim}});
      CHECK(cache.bytes() == 2 * cache.page_bytes());
    }
  }
  CHECK(KvCache(1, 1, 1).type() == DType::float32);
}

TEST_CASE("KvCache: a type that is none") {
  for (const int type : {4, 5, 255})
    CHECK_THROWS_WITH_AS(KvCache(1, 4, 4, {.type = static_cast<DType>(type)}),
                         doctest::Contains(("KvCache: type is " + std::to_string(type)).c_str()),
                         std::invalid_argument);
}

TEST_CASE("KvCache: int8 refuses what is not finite, wherever it is, and changes nothing") {
  KvCache cache(3, 5, 6, {.page_size = 32, .type = DType::int8});
  KvModel model{32};
  const std::vector<Index> tokens{1, 2, 3, 4};
  const Index a = cache.add(), b = cache.add();
  for (const Index s : {a, b}) {
    const Tokens x(cache, tokens);
    cache.append(s, x.k, x.v);
    model.sequences[s];
    model.append(s, tokens);
  }
  const auto position = [](const auto& at) {
    std::string text;
    for (const Index i : at) text += (text.empty() ? "[" : ", ") + std::to_string(i);
    return text + "]";
  };
  std::size_t next = 0;
  const std::array<float, 4> numbers{nan, infinity, -infinity, std::bit_cast<float>(0x7fa00001u)};
  for (const bool in_k : {false, true}) {
    Random random(5);
    const Tensor<4> k = random_tensor<4>({2, 3, 4, 5}, random, layouts()[1]),
                    v = random_tensor<4>({2, 3, 4, 6}, random);
    const View<float, 4> bad = in_k ? k.view : v.view;
    for_each_position(bad.shape, [&](const auto& p) {
      const std::string name = in_k ? "k" : "v";
      const float x = numbers[next++ % numbers.size()];
      const float kept = std::exchange(bad(p[0], p[1], p[2], p[3]), x);
      check_illegal({{"several sequences",
                      [&] { cache.append(std::array{a, b}, k.view, v.view); },
                      {"KvCache::append: " + name + position(p) + " is not finite"}},
                     {"one sequence",
                      [&] { cache.append(b, k.view.select(0, p[0]), v.view.select(0, p[0])); },
                      {"KvCache::append: " + name + position(std::array{p[1], p[2], p[3]}) + " is not finite"}}},
                    [&] { return differences(cache, model) == 0; });
      bad(p[0], p[1], p[2], p[3]) = kept;
    });
  }
  CHECK(illegal_calls() >= 2 * 2 * 3 * 4 * 11);
  const std::size_t held = cache.bytes();
  const std::vector<float> many(3 * 100 * 6, infinity);
  CHECK_THROWS_AS(cache.append(a, {many.data(), {3, 100, 5}}, {many.data(), {3, 100, 6}}), std::invalid_argument);
  CHECK(cache.bytes() == held);
  CHECK(cache.pages_in_use() == 2);
}

TEST_CASE("KvCache: int8 does not read padding") {
  KvCache cache(3, 5, 6, {.page_size = 32, .type = DType::int8});
  KvModel model{32};
  const Index a = cache.add(), b = cache.add();
  model.sequences[a];
  model.sequences[b];
  const Tokens x(cache, {1, 2});
  const std::vector<Index> lengths{2, 0};
  const Tensor<4> k({2, 3, 4, 5}), v({2, 3, 4, 6});
  for_each(k.view, [](float& y) { y = nan; });
  for_each(v.view, [](float& y) { y = infinity; });
  copy<3>(x.k, k.view.select(0, 0).slice(1, 0, 2));
  copy<3>(x.v, v.view.select(0, 0).slice(1, 0, 2));
  cache.append(std::array{a, b}, k.view, v.view, {lengths.data(), {2}});
  model.append(a, {1, 2});
  CHECK(differences(cache, model) == 0);
}

TEST_CASE("KvCache: append of each type reads nothing but k and v") {
  for (const DType type : stored_types) {
    KvCache cache(3, 7, 9, {.page_size = 32, .type = type});
    const Index number = cache.add();
    GuardedBuffer k(3 * 40 * 7), v(3 * 40 * 9);
    for (const Place place : {Place::start, Place::end})
      for (const Index tokens : {1, 5, 16, 19, 40}) {
        float *from_k = k.place(3 * tokens * 7, 0, place), *from_v = v.place(3 * tokens * 9, 0, place);
        std::fill_n(from_k, 3 * tokens * 7, 1.5f);
        std::fill_n(from_v, 3 * tokens * 9, 2.5f);
        cache.append(number, {from_k, {3, tokens, 7}}, {from_v, {3, tokens, 9}});
        cache.append(number, {from_k, {3, tokens, 7}, {7 * tokens, 1, tokens}},
                     {from_v, {3, tokens, 9}, {9 * tokens, 1, tokens}});
      }
  }
}

}  // namespace
}  // namespace headlane::test
