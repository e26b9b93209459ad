// The oracle of one row of attention with every option but variable-length sequences: the
// probability of each key, in double.
#pragma once

#include "support/tolerance.hpp"

#include <headlane/attention.hpp>
#include <headlane/position.hpp>

#include <cmath>
#include <vector>

namespace headlane::test {

struct RowReference {
  std::vector<double> weight;  ///< of each key; NaN for those seen by a row with a NaN
  std::vector<bool> seen;
  double lse = -std::numeric_limits<double>::infinity();
  double max_score = 0, max_sum = 0, max_step = 0;  ///< as in AttentionReference

  /// The terms of attention()'s bound, relative to what it is a bound of.
  [[nodiscard]] double relative_bound(Index head_dim, Index keys, const AttentionOptions& o) const {
    const bool biased = o.bias.data != nullptr || o.relative_bias.table.data != nullptr;
    return attention_relative_bound(head_dim, keys, max_sum, max_score, biased) + 2 * more(o) * unit;
  }
  [[nodiscard]] double lse_error(Index head_dim, Index keys, const AttentionOptions& o) const {
    const bool biased = o.bias.data != nullptr || o.relative_bias.table.data != nullptr;
    return lse_bound(head_dim, keys, max_sum, max_score, lse, biased) + more(o) * unit;
  }

 private:
  [[nodiscard]] double more(const AttentionOptions& o) const {
    const bool changed = o.softcap > 0 || o.alibi_slopes.data != nullptr,
               two_biases = o.bias.data != nullptr && o.relative_bias.table.data != nullptr;
    const double sink = o.sinks.data != nullptr && std::isfinite(lse) ? 8 + std::abs(lse) : 0;
    return (changed || two_biases ? 6 * max_step : 0) + sink;
  }
};

inline bool key_is_seen(const AttentionOptions& o, Index b, Index h, Index i, Index j) {
  const Index position = i + (o.causal_offsets.data == nullptr ? o.causal_offset : o.causal_offsets(b));
  if (o.causal && j > position) return false;
  if (o.window_left >= 0 && j < position - o.window_left) return false;
  if (o.window_right >= 0 && j > position + o.window_right) return false;
  if (o.key_lengths.data != nullptr && j >= o.key_lengths(b)) return false;
  if (o.query_lengths.data != nullptr && i >= o.query_lengths(b)) return false;
  if (o.mask.data != nullptr && !o.mask(b, h, i, j)) return false;
  return o.mask_bits.data == nullptr || (o.mask_bits(b, h, i, j / 8) >> (j % 8) & 1) != 0;
}

inline RowReference row_reference(View<const float, 4> q, View<const float, 4> k, const AttentionOptions& o, Index b,
                                  Index h, Index i) {
  constexpr double nothing = -std::numeric_limits<double>::infinity();
  const Index keys = k.size(2), kv_head = h / (q.size(1) / k.size(1));
  const double scale = o.scale ? double{*o.scale} : 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  const Index position = i + (o.causal_offsets.data == nullptr ? o.causal_offset : o.causal_offsets(b));
  RowReference row;
  row.weight.assign(static_cast<std::size_t>(keys), 0.0);
  row.seen.assign(static_cast<std::size_t>(keys), false);
  std::vector<double> scores(static_cast<std::size_t>(keys), nothing);
  bool nan_row = false;
  double largest = nothing;
  for (Index j = 0; j < keys; ++j) {
    if (!key_is_seen(o, b, h, i, j)) continue;
    const RelativeBias& r = o.relative_bias;
    const double relative =
        r.table.data == nullptr
            ? 0
            : double{r.table(h, t5_bucket(j - position, r.table.size(1), r.max_distance, r.bidirectional))};
    const double bias = o.bias.data == nullptr ? 0 : double{o.bias(b, h, i, j)};
    if (relative == nothing || bias == nothing) continue;
    row.seen[static_cast<std::size_t>(j)] = true;
    double score = 0, sum = 0;
    for (Index d = 0; d < q.size(3); ++d) {
      const double product = scale * double{q(b, h, i, d)} * double{k(b, kv_head, j, d)};
      score += product;
      sum += std::abs(product);
    }
    double step = o.softcap > 0 ? std::abs(score) : 0;
    if (o.softcap > 0) score = o.softcap * std::tanh(score / o.softcap);
    if (o.alibi_slopes.data != nullptr) score += double{o.alibi_slopes(h)} * static_cast<double>(j - position);
    step += std::max(std::abs(score), std::abs(score + relative));
    score += relative + bias;
    scores[static_cast<std::size_t>(j)] = score;
    nan_row = nan_row || std::isnan(score);
    largest = std::max(largest, score);
    row.max_step = std::max(row.max_step, step);
    row.max_sum = std::max(row.max_sum, sum);
    row.max_score = std::max(row.max_score, std::abs(score));
  }
  const bool padding = o.query_lengths.data != nullptr && i >= o.query_lengths(b);
  const double sink = o.sinks.data == nullptr || padding ? nothing : double{o.sinks(h)};
  largest = std::max(largest, sink);
  if (largest == nothing && !nan_row) return row;
  double sum = sink == nothing ? 0 : std::exp(sink - largest);
  for (const double score : scores) sum += nan_row ? std::nan("") : std::exp(score - largest);
  row.lse = nan_row ? std::nan("") : largest + std::log(sum);
  for (std::size_t j = 0; j < scores.size(); ++j)
    if (row.seen[j]) row.weight[j] = std::exp(scores[j] - largest) / sum;
  return row;
}

}  // namespace headlane::test
