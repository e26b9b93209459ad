// A simple model of a KvCache: a number for each key of a sequence, and pages with a reference
// count.
#pragma once

#include "attention/kv_pages.hpp"
#include "support/data.hpp"

#include <headlane/kv_cache.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace headlane::test {

using namespace internal;

/// An element of the key (columns from 0) or value (columns from 512) of a token.
inline float element(Index token, Index head, Index column) {
  return Random(static_cast<std::uint64_t>((token * 131 + head) * 1024 + column)).uniform();
}

struct KvModel {
  struct Sequence {
    std::vector<Index> tokens;
    std::vector<std::shared_ptr<int>> pages;
  };
  Index page_size;
  std::map<Index, Sequence> sequences{};

  void append(Index number, const std::vector<Index>& tokens) {
    Sequence& s = sequences.at(number);
    const auto size = static_cast<std::size_t>(page_size);
    for (const Index token : tokens) {
      if (s.tokens.size() % size == 0) s.pages.push_back(std::make_shared<int>());
      else if (s.pages.back().use_count() > 1) s.pages.back() = std::make_shared<int>();
      s.tokens.push_back(token);
    }
  }
  void truncate(Index number, Index length) {
    Sequence& s = sequences.at(number);
    s.tokens.resize(static_cast<std::size_t>(length));
    s.pages.resize(static_cast<std::size_t>((length + page_size - 1) / page_size));
  }
  void fork(Index source, Index length, Index number) {
    sequences[number] = sequences.at(source);
    truncate(number, length);
  }
  [[nodiscard]] Index pages_in_use() const {
    std::set<const int*> all;
    for (const auto& [number, s] : sequences)
      for (const auto& page : s.pages) all.insert(page.get());
    return static_cast<Index>(all.size());
  }
};

/// Number of elements, lengths and counts of the cache that differ from the model.
inline Index differences(const KvCache& cache, const KvModel& model) {
  const KvPages& pages = KvPages::of(cache, "test");
  const Index dim = cache.head_dim(), value_dim = cache.value_dim(), size = cache.page_size();
  Index count = cache.pages_in_use() == model.pages_in_use() ? 0 : 1;
  for (const auto& [number, s] : model.sequences) {
    const auto length = static_cast<Index>(s.tokens.size());
    if (!pages.has(number) || cache.length(number) != length || pages.length(number) != length) return count + 1;
    for (Index i = 0; i < length; ++i) {
      const Index token = s.tokens[static_cast<std::size_t>(i)], at = i % size;
      for (Index head = 0; head < cache.kv_heads(); ++head) {
        const float* keys = pages.keys(number, head, i / size) + at / 32 * dim * 32 + at % 32;
        const float* values = pages.values(number, head, i / size) + at * 32;
        for (Index d = 0; d < dim; ++d) count += bits_of(keys[d * 32]) != bits_of(element(token, head, d)) ? 1 : 0;
        for (Index d = 0; d < (value_dim + 31) / 32 * 32; ++d) {
          const float expected = d < value_dim ? element(token, head, 512 + d) : 0.0f;
          count += bits_of(values[d / 32 * size * 32 + d % 32]) != bits_of(expected) ? 1 : 0;
        }
      }
    }
  }
  return count;
}

/// Views of k and v [kv_heads, tokens, dim] for some tokens: any layout, also with heads and tokens
/// exchanged in memory.
class Tokens {
 public:
  Tokens(const KvCache& cache, const std::vector<Index>& tokens, const Layout& layout = {}, bool tokens_first = false)
      : k_(shape(cache, tokens, cache.head_dim(), tokens_first), layout),
        v_(shape(cache, tokens, cache.value_dim(), tokens_first), layout),
        k(tokens_first ? k_.view.permuted({1, 0, 2}) : k_.view),
        v(tokens_first ? v_.view.permuted({1, 0, 2}) : v_.view) {
    fill(k_, tokens_first, tokens, 0);
    fill(v_, tokens_first, tokens, 512);
  }

 private:
  static std::array<Index, 3> shape(const KvCache& cache, const std::vector<Index>& tokens, Index dim, bool first) {
    const auto count = static_cast<Index>(tokens.size());
    return first ? std::array<Index, 3>{count, cache.kv_heads(), dim}
                 : std::array<Index, 3>{cache.kv_heads(), count, dim};
  }
  static void fill(const Tensor<3>& x, bool tokens_first, const std::vector<Index>& tokens, Index column) {
    for_each_position(x.view.shape, [&](const auto& p) {
      const Index token = tokens[static_cast<std::size_t>(p[tokens_first ? 0 : 1])];
      x.view(p[0], p[1], p[2]) = element(token, p[tokens_first ? 1 : 0], column + p[2]);
    });
  }
  Tensor<3> k_, v_;

 public:
  View<const float, 3> k, v;
};

}  // namespace headlane::test
