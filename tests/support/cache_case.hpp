// Keys and values of several sequences in tensors and in a KvCache, and the comparison of attention
// over both, bit by bit.
#pragma once

#include "support/attention_options.hpp"
#include "support/bit_comparison.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>
#include <headlane/kv_cache.hpp>

#include <array>
#include <numeric>

namespace headlane::test {

/// Appends keys first … end-1 of [kv_heads, keys, dim] to a sequence, in chunks of random sizes.
inline void append_pieces(KvCache& cache, Index sequence, const View<const float, 3>& k, const View<const float, 3>& v,
                          Index first, Index end, Random& random) {
  while (first < end) {
    const Index piece = random.pick(std::vector<Index>{1, 2, 15, 16, 17, 31, 33, 100, 511, 5000});
    const Index next = std::min(first + piece, end);
    cache.append(sequence, k.slice(1, first, next), v.slice(1, first, next));
    first = next;
  }
}

inline constexpr std::array<DType, 4> cache_types{DType::float32, DType::bfloat16, DType::float16, DType::int8};

/// The types that case i of a test covers: all of them, but one on an instruction set that is slow.
inline std::vector<DType> types_of_case(std::size_t i) {
  if (slow_isa()) return {cache_types[i % cache_types.size()]};
  return {cache_types.begin(), cache_types.end()};
}

/// The first lengths[b] keys of batch element b of `t` in a sequence of their own. The numbers of
/// the sequences do not follow the batch. The keys and values of `t` are those that the cache
/// stores, as it reads them.
struct CacheCase {
  CacheCase(const AttentionSizes& s, std::vector<Index> lengths_, Index page_size, std::uint64_t seed,
            const Layout& layout = {}, DType type = DType::float32)
      : sizes(s),
        lengths(std::move(lengths_)),
        t(s, seed, layout),
        cache(s.kv_heads, s.head_dim, s.value_dim, {.page_size = page_size, .type = type}),
        sequences(lengths.size()),
        page(page_size) {
    Random random(seed + 1);
    std::vector<std::size_t> order(lengths.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[static_cast<std::size_t>(random.integer(0, static_cast<Index>(i) - 1))]);
    for (const std::size_t b : order) {
      const auto at = static_cast<Index>(b);
      sequences[b] = cache.add();
      append_pieces(cache, sequences[b], k(at), v(at), 0, lengths[b], random);
    }
    take_stored();
  }

  /// Replaces keys and values of `t` by those of the cache.
  void take_stored() const {
    if (cache.type() == DType::float32) return;
    for (std::size_t b = 0; b < lengths.size(); ++b) {
      const auto at = static_cast<Index>(b);
      cache.read(sequences[b], 0, t.k.view.select(0, at).slice(1, 0, lengths[b]),
                 t.v.view.select(0, at).slice(1, 0, lengths[b]));
    }
  }

  [[nodiscard]] View<const float, 3> k(Index b) const { return t.k.view.select(0, b); }
  [[nodiscard]] View<const float, 3> v(Index b) const { return t.v.view.select(0, b); }

  /// Compares a call over the cache with a call over tensors for each sequence, whose queries are
  /// its last positions. `part`: with the option sum, hence without sinks.
  void compare(AttentionOptions options, BitComparison& bits, bool part = false) const {
    const Tensor<3> lse(t.lse.view.shape), sum(t.lse.view.shape), expected_sum(t.lse.view.shape);
    if (part) {
      options.sinks = {};
      options.sum = sum.view;
    }
    attention(t.q.view, cache, sequences, t.out.view, t.with_lse(options));
    const Tensor<4> out(t.out.view.shape);
    AttentionOptions plain = options;
    if (part) plain.sum = expected_sum.view;
    plain.lse = lse.view;
    plain.num_threads = 1;  // keys are not divided
    plain.workspace = {};
    const auto value = [](const View<const Index, 1>& values, Index b, Index otherwise) {
      return values.data == nullptr ? otherwise : values(b);
    };
    for (Index b = 0; b < sizes.batch; ++b) {
      const Index keys = lengths[static_cast<std::size_t>(b)];
      AttentionOptions o = of_element(plain, b, keys);
      o.causal_offset = value(options.causal_offsets, b, options.causal_offset) + value(options.key_lengths, b, keys) -
                        value(options.query_lengths, b, sizes.q_length);
      o.causal_offsets = {};
      attention(t.q.view.slice(0, b, b + 1), t.k.view.slice(0, b, b + 1).slice(2, 0, keys),
                t.v.view.slice(0, b, b + 1).slice(2, 0, keys), out.view.slice(0, b, b + 1), o);
    }
    const std::string text = text_of(sizes, options) + ", page " + std::to_string(page) + ", type " +
                             std::to_string(static_cast<int>(cache.type()));
    bits.add(t.out.view, out.view, text);
    bits.add(t.lse.view, lse.view, "lse, " + text);
    bits.add(sum.view, expected_sum.view, "sum, " + text);
    CHECK_MESSAGE(t.out.surroundings_untouched(), text);
    CHECK_MESSAGE(t.lse.surroundings_untouched(), text);
  }

  AttentionSizes sizes;
  std::vector<Index> lengths;
  AttentionTensors t;
  KvCache cache;
  std::vector<Index> sequences;
  Index page;
};

inline const std::vector<Index>& page_sizes() {
  static const std::vector<Index> all{32, 64, 128, 256, 512, 1024, 2048};
  return all;
}

}  // namespace headlane::test
