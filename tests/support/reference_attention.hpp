// The oracle of attention: naive loops in double over sequences, heads, queries and keys,
// independent of src/. Besides each value it returns the sums in the stated error bounds.
#pragma once

#include <headlane/attention.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

namespace headlane::test {

struct AttentionReference {
  // [batch, head, query, value_dim]
  std::vector<double> out;
  std::vector<double> weighted;  ///< Σ_j p_j |v_j|
  // [batch, head, query]
  std::vector<bool> untouched;  ///< rows of no sequence: everything else says nothing there
  std::vector<double> lse;
  std::vector<double> max_score;  ///< max_j |score_j|
  std::vector<double>
      max_step;  ///< largest magnitudes of what the scores were before the softcap, and before the biases
  std::vector<double> max_relative;  ///< and with the relative bias, if another one follows
  std::vector<double> max_sum;       ///< S = max_j Σ|q||k| · |scale|
};

/// As `_relative_position_bucket` of the transformers library, which takes position of the key -
/// position of the query.
inline Index t5_reference(Index relative_position, Index num_buckets, Index max_distance, bool bidirectional) {
  Index bucket = 0, n = relative_position;
  if (bidirectional) {
    num_buckets /= 2;
    if (n > 0) bucket += num_buckets;
    n = std::abs(n);
  } else {
    n = -std::min<Index>(n, 0);
  }
  const Index max_exact = num_buckets / 2;
  if (n < max_exact) return bucket + n;
  const auto exact = static_cast<long double>(max_exact);
  const long double share =
      std::log(static_cast<long double>(n) / exact) / std::log(static_cast<long double>(max_distance) / exact);
  // Integers may come out just below; test_position.cpp shows in integer arithmetic that no other
  // number is so close to one.
  const auto more = static_cast<Index>(share * static_cast<long double>(num_buckets - max_exact) + 1e-15L);
  return bucket + std::min(max_exact + more, num_buckets - 1);
}

namespace reference_detail {

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

/// The position of a row in its batch element, or in its variable-length sequence.
struct Place {
  Index element = 0, first_query = 0, first_key = 0, queries = 0, keys = 0;
  bool exists = true;
};

inline Place place_of(View<const float, 4> q, View<const float, 4> k, Index batch, Index row,
                      const AttentionOptions& o) {
  Place place{batch, 0, 0, q.size(2), k.size(2), true};
  if (o.query_starts.data != nullptr) {
    place = {batch, 0, 0, 0, 0, false};  // masks are as wide as the longest sequence, not as k
    for (Index s = 0; s + 1 < o.query_starts.size(0); ++s)
      if (row >= o.query_starts(s) && row < o.query_starts(s + 1))
        place = {s,
                 o.query_starts(s),
                 o.key_starts(s),
                 o.query_starts(s + 1) - o.query_starts(s),
                 o.key_starts(s + 1) - o.key_starts(s),
                 true};
  }
  if (place.exists && o.key_lengths.data != nullptr) place.keys = o.key_lengths(place.element);
  if (place.exists && o.query_lengths.data != nullptr) place.queries = o.query_lengths(place.element);
  return place;
}

struct Row {
  std::vector<double> scores;  // of the keys that are seen
  std::vector<Index> keys;     // along the axis
  double max = minus_infinity;
  double max_score = 0, max_sum = 0, max_before_cap = 0, max_added = 0, max_relative = 0;
};

inline Row attention_scores(View<const float, 4> q, View<const float, 4> k, Index batch, Index head, Index query,
                            const Place& place, const AttentionOptions& options) {
  Row row;
  const Index kv_head = head / (q.size(1) / k.size(1));
  const double scale = options.scale ? double{*options.scale} : 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  const Index offset =
      options.causal_offsets.data == nullptr ? options.causal_offset : options.causal_offsets(place.element);
  const Index position = query - place.first_query + offset;
  const RelativeBias& relative = options.relative_bias;
  if (query - place.first_query >= place.queries) return row;
  for (Index j = 0; j < place.keys; ++j) {
    if (options.causal && j > position) break;
    if (options.window_left >= 0 && j < position - options.window_left) continue;
    if (options.window_right >= 0 && j > position + options.window_right) break;
    if (options.mask.data != nullptr && !options.mask(batch, head, query, j)) continue;
    if (options.mask_bits.data != nullptr && options.mask_bits(batch, head, query, j / 8) / (1 << j % 8) % 2 == 0)
      continue;
    const double bias = options.bias.data == nullptr ? 0.0 : double{options.bias(batch, head, query, j)};
    double by_distance = 0;
    if (relative.table.data != nullptr)
      by_distance = relative.table(
          head, t5_reference(j - position, relative.table.size(1), relative.max_distance, relative.bidirectional));
    if (bias == minus_infinity || by_distance == minus_infinity) continue;
    double score = 0, sum = 0;
    for (Index d = 0; d < q.size(3); ++d) {
      const double product =
          scale * double{q(batch, head, query, d)} * double{k(batch, kv_head, place.first_key + j, d)};
      score += product;
      sum += std::abs(product);
    }
    const double capped = options.softcap > 0 ? options.softcap * std::tanh(score / options.softcap) : score;
    // Roundings before the cap and in it are those of this number.
    row.max_before_cap = std::max(row.max_before_cap, options.softcap > 0 ? std::abs(score) : 0.0);
    score = capped;
    if (options.alibi_slopes.data != nullptr)
      score += double{options.alibi_slopes(head)} * static_cast<double>(j - position);
    row.max_added = std::max(row.max_added, std::abs(score));
    score += by_distance;
    if (relative.table.data != nullptr && options.bias.data != nullptr)
      row.max_relative = std::max(row.max_relative, std::abs(score));
    score += bias;
    row.scores.push_back(score);
    row.keys.push_back(place.first_key + j);
    if (!(score <= row.max)) row.max = score;
    if (std::isnan(score)) break;  // the row is NaN whatever follows
    row.max_score = std::max(row.max_score, std::abs(score));
    row.max_sum = std::max(row.max_sum, sum);
  }
  return row;
}

}  // namespace reference_detail

inline AttentionReference attention_reference(View<const float, 4> q, View<const float, 4> k, View<const float, 4> v,
                                              const AttentionOptions& options) {
  using reference_detail::minus_infinity;
  AttentionReference result;
  for (Index b = 0; b < q.size(0); ++b) {
    for (Index h = 0; h < q.size(1); ++h) {
      for (Index i = 0; i < q.size(2); ++i) {
        const reference_detail::Place place = reference_detail::place_of(q, k, b, i, options);
        const reference_detail::Row row = reference_detail::attention_scores(q, k, b, h, i, place, options);
        const bool empty = row.max == minus_infinity;
        const bool padding = i - place.first_query >= place.queries;
        const double sink = options.sinks.data == nullptr || padding ? minus_infinity : double{options.sinks(h)};
        const double largest = std::max(row.max, sink);
        std::vector<double> out(static_cast<std::size_t>(v.size(3)), 0.0), weighted = out;
        double sum = sink == minus_infinity ? 0 : std::exp(sink - largest);
        for (std::size_t j = 0; j < row.scores.size() && !empty; ++j) {
          const double p = std::exp(row.scores[j] - (std::isnan(row.max) ? row.max : largest));
          sum += p;
          for (Index d = 0; d < v.size(3); ++d) {
            const double value = v(b, h / (q.size(1) / v.size(1)), row.keys[j], d);
            out[static_cast<std::size_t>(d)] += p * value;
            weighted[static_cast<std::size_t>(d)] += p * std::abs(value);
          }
        }
        for (std::size_t d = 0; d < out.size(); ++d) {
          result.out.push_back(empty ? 0.0 : out[d] / sum);
          result.weighted.push_back(empty ? 0.0 : weighted[d] / sum);
        }
        result.untouched.push_back(!place.exists);
        result.lse.push_back(largest == minus_infinity ? minus_infinity
                             : std::isnan(row.max)     ? row.max
                                                       : largest + std::log(sum));
        result.max_step.push_back(row.max_before_cap + row.max_added);
        result.max_relative.push_back(row.max_relative);
        result.max_score.push_back(row.max_score);
        result.max_sum.push_back(row.max_sum);
      }
    }
  }
  return result;
}

}  // namespace headlane::test
