// What the ranks of a team compute together has the bits of one rank: the comparison, and layers of
// sizes that few teams divide.
#pragma once

#include "support/data.hpp"
#include "support/layer_case.hpp"
#include "support/thread_team.hpp"

#include <doctest/doctest.h>

#include <cstring>

namespace headlane::test {

/// Counts comparisons of what ranks returned with what one process did.
class TeamComparison {
 public:
  /// run(team, num_threads) returns numbers; team is null for the expected ones.
  template <class Run>
  void add(const std::string& what, const Run& run, std::span<const int> sizes = team_sizes) {
    const std::vector<float> expected = run(static_cast<ThreadTeam*>(nullptr), 1);
    for (const int size : sizes) {
      std::vector<std::vector<float>> results(static_cast<std::size_t>(size));
      const std::vector<std::string> errors = run_ranks(size, [&](ThreadTeam& team) {
        results[static_cast<std::size_t>(team.rank())] = run(&team, 1 + team.rank() % 2);
      });
      for (std::size_t rank = 0; rank < results.size(); ++rank) {
        ++count_;
        if (errors[rank].empty() && same(results[rank], expected)) continue;
        ++failures_;
        if (first_.empty())
          first_ = what + ", rank " + std::to_string(rank) + " of " + std::to_string(size) + ": " +
                   (errors[rank].empty() ? difference(results[rank], expected) : errors[rank]);
      }
    }
  }

  /// Fails if one comparison failed, or if there were fewer than `min_count`.
  void finish(Index min_count) const {
    MESSAGE(count_, " comparisons with one rank, ", failures_, " differ");
    CHECK_MESSAGE(failures_ == 0, first_);
    CHECK(count_ >= min_count);
  }

 private:
  static bool same(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() &&
           std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) { return bits_of(x) == bits_of(y); });
  }
  static std::string difference(const std::vector<float>& actual, const std::vector<float>& expected) {
    if (actual.size() != expected.size())
      return std::to_string(actual.size()) + " results, not " + std::to_string(expected.size());
    Index different = 0;
    std::size_t first = actual.size();
    for (std::size_t i = 0; i < actual.size(); ++i)
      if (bits_of(actual[i]) != bits_of(expected[i])) first = std::min(first, i), ++different;
    return std::to_string(different) + " of " + std::to_string(actual.size()) + " differ, the first at " +
           std::to_string(first) + ": " + std::to_string(actual[first]) + " instead of " +
           std::to_string(expected[first]);
  }

  Index count_ = 0, failures_ = 0;
  std::string first_;
};

/// Appends all elements, in row-major order.
template <class T, int Rank>
void append(std::vector<float>& to, const View<T, Rank>& view) {
  for_each(view, [&](const auto& x) { to.push_back(static_cast<float>(x)); });
}

/// More than one panel of 32 columns, most of them not whole; numbers of heads that few teams
/// divide.
inline std::vector<LayerSizes> team_layer_sizes() {
  return {{.d_model = 70, .heads = 5, .kv_heads = 5, .head_dim = 13, .memory_width = 70, .d_ff = 130},
          {.d_model = 96,
           .heads = 6,
           .kv_heads = 2,
           .head_dim = 16,
           .memory_width = 33,
           .d_ff = 200,
           .bias = false,
           .gated = true,
           .layer = {.activation = Activation::silu, .norm = NormKind::rms, .norm_first = true}},
          {.d_model = 257,
           .heads = 8,
           .kv_heads = 4,
           .head_dim = 40,
           .memory_width = 257,
           .d_ff = 300,
           .layer = {.activation = Activation::gelu, .norm_first = true}},
          {.d_model = 33, .heads = 1, .kv_heads = 1, .head_dim = 24, .memory_width = 9, .d_ff = 31}};
}

inline TransformerLayerOptions options_of(const LayerSizes& s, Team* team) {
  TransformerLayerOptions options = s.options();
  options.team = team;
  return options;
}

inline Tensor<3> normal(const std::array<Index, 3>& shape, std::uint64_t seed, const Layout& layout = {}) {
  Tensor<3> x(shape, layout);
  Random random(seed);
  fill_normal(x.view, random);
  return x;
}

/// The output [batch, length, width] of f(y).
template <class F>
std::vector<float> result_of(Index batch, Index length, Index width, const Layout& layout, const F& f) {
  const Tensor<3> y({batch, length, width}, layout);
  f(y.view);
  std::vector<float> all;
  append(all, y.view);
  if (!y.surroundings_untouched()) all.clear();
  return all;
}

}  // namespace headlane::test
