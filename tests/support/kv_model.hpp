// A simple model of a KvCache: a number for each key of a sequence, and pages with a reference
// count.
#pragma once

#include "attention/kv_pages.hpp"
#include "support/data.hpp"

#include <headlane/kv_cache.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
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

/// A row as a cache of this type stores it: the rule of KvCacheOptions::type.
inline std::vector<float> as_stored(std::vector<float> row, DType type) {
  float most = 0;
  for (const float x : row) most = std::max(most, std::abs(x));
  int exponent = 0;
  std::frexp(most / 127.0f, &exponent);
  const double scale =
      most / 127.0f < 0x1p-126f
          ? 0.0
          : std::ldexp(std::nearbyint(std::ldexp(double{most / 127.0f}, 16 - exponent)), exponent - 16);
  for (float& x : row) {
    if (type == DType::bfloat16) x = static_cast<float>(bfloat16(x));
    if (type == DType::float16) x = static_cast<float>(float16(x));
    if (type == DType::int8)
      x = scale == 0.0 ? 0.0f : static_cast<float>(std::nearbyint(x / static_cast<float>(scale)) * scale + 0.0);
  }
  return row;
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

inline std::vector<float> row_of(Index token, Index head, Index first, Index columns) {
  std::vector<float> row;
  for (Index d = 0; d < columns; ++d) row.push_back(element(token, head, first + d));
  return row;
}

inline Index different_rows(const std::vector<float>& a, const std::vector<float>& b) {
  Index count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += bits_of(a[i]) != bits_of(b[i]) ? 1 : 0;
  return count;
}

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
        const HeadOfPage page = pages.head(number, head, i / size);
        std::vector<float> k(static_cast<std::size_t>(dim)), v(static_cast<std::size_t>(value_dim));
        page.read(at, {k.data(), {1, dim}}, {v.data(), {1, value_dim}});
        count += different_rows(k, as_stored(row_of(token, head, 0, dim), cache.type()));
        count += different_rows(v, as_stored(row_of(token, head, 512, value_dim), cache.type()));
        for (Index d = value_dim; d < page.value_width(); ++d)
          for (int byte = 0; byte < size_of(page.type); ++byte)
            count += page.values()[page.value_at(at, d) * size_of(page.type) + byte] != std::byte{0} ? 1 : 0;
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
