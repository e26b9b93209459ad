// KvCache: append() and read() of bfloat16 and float16, against those of the same numbers in float.
#include "support/guard.hpp"
#include "support/half_tensor.hpp"

#include <doctest/doctest.h>
#include <headlane/kv_cache.hpp>

#include <array>
#include <stdexcept>
#include <string>
#include <vector>

namespace headlane::test {
namespace {

constexpr std::array types{DType::float32, DType::bfloat16, DType::float16, DType::int8};
constexpr Index heads = 2, head_dim = 24, value_dim = 40;

/// A cache of one type, and another one that is given the same numbers as float.
struct Caches {
  KvCache halves, floats;
  std::array<Index, 2> sequences{};

  explicit Caches(DType type)
      : halves(heads, head_dim, value_dim, {.page_size = 32, .type = type}),
        floats(heads, head_dim, value_dim, {.page_size = 32, .type = type}) {
    for (Index& sequence : sequences) sequence = (static_cast<void>(halves.add()), floats.add());
  }
  /// Number of elements that differ.
  [[nodiscard]] Index differences() const {
    Index count = 0;
    for (const Index sequence : sequences) {
      const Index length = halves.length(sequence);
      CHECK(floats.length(sequence) == length);
      const Tensor<3> k({heads, length, head_dim}), v({heads, length, value_dim}), other_k(k.view.shape),
          other_v(v.view.shape);
      halves.read(sequence, 0, k.view, v.view);
      floats.read(sequence, 0, other_k.view, other_v.view);
      count += different_bits(k.view, other_k.view) + different_bits(v.view, other_v.view);
    }
    return count;
  }
};

TEST_CASE_TEMPLATE("KvCache: append of 16-bit numbers stores what append of the same floats does", T, bfloat16,
                   float16) {
  Random random(1);
  for (const DType type : types)
    for (const Layout& layout : layouts()) {
      Caches c(type);
      for (const Index tokens : {1, 40, 0, 17}) {
        const HalfTensor<T, 4> k(random_tensor<4>({2, heads, tokens, head_dim}, random).view, layout),
            v(random_tensor<4>({2, heads, tokens, value_dim}, random).view, layout);
        const Tensor<4> wide_k = k.widened(), wide_v = v.widened();
        c.halves.append(c.sequences, k.view, v.view);
        c.floats.append(c.sequences, wide_k.view, wide_v.view);
        c.halves.append(c.sequences[1], k.view.select(0, 0), v.view.select(0, 1));
        c.floats.append(c.sequences[1], wide_k.view.select(0, 0), wide_v.view.select(0, 1));
        CHECK(c.differences() == 0);
      }
    }
}

TEST_CASE_TEMPLATE("KvCache: append of 16-bit numbers that share elements", T, bfloat16, float16) {
  Random random(2);
  Caches c(DType::float32);
  const HalfTensor<T, 2> k(random_tensor<2>({9, head_dim}, random).view),
      v(random_tensor<2>({9, value_dim}, random).view);
  const Tensor<2> wide_k = k.widened(), wide_v = v.widened();
  const auto all = [](const auto& x) { return x.broadcast(0, heads).broadcast(0, 2); };
  c.halves.append(c.sequences, all(k.view), all(v.view));
  c.floats.append(c.sequences, all(wide_k.view), all(wide_v.view));
  CHECK(c.differences() == 0);
}

TEST_CASE_TEMPLATE("KvCache: append of 16-bit numbers does not read padding", T, bfloat16, float16) {
  Random random(3);
  const std::vector<Index> lengths{4, 0};
  for (const DType type : types) {
    Caches c(type);
    const HalfTensor<T, 4> k(random_tensor<4>({2, heads, 7, head_dim}, random).view),
        v(random_tensor<4>({2, heads, 7, value_dim}, random).view);
    const Tensor<4> wide_k = k.widened(), wide_v = v.widened();
    for_each(k.view.slice(2, 4, 7), [](T& x) { x = T(nan); });  // which int8 would refuse
    for_each(v.view.select(0, 1), [](T& x) { x = T(infinity); });
    c.halves.append(c.sequences, k.view, v.view, {lengths.data(), {2}});
    c.floats.append(c.sequences[0], wide_k.view.select(0, 0).slice(1, 0, 4), wide_v.view.select(0, 0).slice(1, 0, 4));
    CHECK(c.differences() == 0);
  }
}

TEST_CASE_TEMPLATE("KvCache: 16-bit numbers between guard pages", T, bfloat16, float16) {
  Random random(4);
  for (const DType type : types) {
    Caches c(type);
    GuardedBuffer room_k(heads * 40 * head_dim), room_v(heads * 40 * value_dim);
    for (const Place place : {Place::start, Place::end})
      for (const Index tokens : {1, 5, 16, 19, 39}) {
        const HalfTensor<T, 3> k(random_tensor<3>({heads, tokens, head_dim}, random).view),
            v(random_tensor<3>({heads, tokens, value_dim}, random).view);
        const View<T, 3> from_k = placed(room_k, k.view, place), from_v = placed(room_v, v.view, place);
        const Index first = c.halves.length(c.sequences[0]);
        c.halves.append(c.sequences[0], from_k, from_v);
        c.floats.append(c.sequences[0], k.widened().view, v.widened().view);
        c.halves.read(c.sequences[0], first, from_k, from_v);
        const Tensor<3> wide_k(k.view.shape), wide_v(v.view.shape);
        c.halves.read(c.sequences[0], first, wide_k.view, wide_v.view);
        CHECK(different_from_rounded(from_k, wide_k.view) == 0);
        CHECK(different_from_rounded(from_v, wide_v.view) == 0);
      }
    CHECK(c.differences() == 0);
  }
}

TEST_CASE_TEMPLATE("KvCache: read of 16-bit numbers rounds what read of floats returns", T, bfloat16, float16) {
  Random random(5);
  for (const DType type : types) {
    Caches c(type);
    const Tensor<3> k = random_tensor<3>({heads, 90, head_dim}, random),
                    v = random_tensor<3>({heads, 90, value_dim}, random);
    c.halves.append(c.sequences[0], k.view, v.view);
    for (const Layout& layout : layouts())
      for (const auto& [first, tokens] : {std::array<Index, 2>{0, 90}, {31, 2}, {89, 1}, {90, 0}}) {
        const Tensor<3> wide_k({heads, tokens, head_dim}), wide_v({heads, tokens, value_dim});
        const HalfTensor<T, 3> some_k(wide_k.view.shape, layout), some_v(wide_v.view.shape, layout);
        c.halves.read(c.sequences[0], first, wide_k.view, wide_v.view);
        c.halves.read(c.sequences[0], first, some_k.view, some_v.view);
        CHECK(different_from_rounded(some_k.view, wide_k.view) == 0);
        CHECK(different_from_rounded(some_v.view, wide_v.view) == 0);
        CHECK(some_k.surroundings_untouched());
        CHECK(some_v.surroundings_untouched());
      }
  }
}

TEST_CASE_TEMPLATE("KvCache: illegal calls with 16-bit numbers", T, bfloat16, float16) {
  Random random(6);
  Caches c(DType::int8);
  const HalfTensor<T, 3> k(random_tensor<3>({heads, 3, head_dim}, random).view),
      v(random_tensor<3>({heads, 3, value_dim}, random).view);
  const auto refused = [&](const auto& call, const char* message) {
    CHECK_THROWS_WITH_AS(call(), message, std::invalid_argument);
    CHECK(c.differences() == 0);
  };
  const auto append = [&](Index sequence, const View<T, 3>& x, const View<T, 3>& y) {
    return [&c, sequence, x, y] { c.halves.append(sequence, x, y); };
  };
  refused(append(5, k.view, v.view), "KvCache::append: sequence 5 is not there, the numbers given so far are below 2");
  refused(append(0, k.view.slice(1, 0, 2), v.view), "KvCache::append: k has 2 tokens, v has 3 tokens");
  refused(append(0, v.view, v.view), "KvCache::append: k has 40 columns, head_dim is 24");
  refused([&] { c.halves.read(0, 1, k.view, v.view); },
          "KvCache::read: first is 1 and k has 3 tokens, sequence 0 has 0 keys");
  v.view(1, 2, 39) = T(infinity);
  refused(append(0, k.view, v.view), "KvCache::append: v[1, 2, 39] is not finite; int8 has no such number");
  refused([&] { c.halves.append(std::array<Index, 2>{0, 0}, k.view.broadcast(0, 2), k.view.broadcast(0, 2)); },
          "KvCache::append: v has 24 columns, value_dim is 40");
}

}  // namespace
}  // namespace headlane::test
