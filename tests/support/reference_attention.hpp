// The oracle of attention and of its weights: naive loops in double over sequences, heads, queries
// and keys, independent of src/. Besides each value it returns the sums in the stated error bounds.
#pragma once

#include <headlane/attention.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

namespace headlane::test {

/// One query row of one head.
struct RowReference {
  bool exists = true;           ///< false: a row of no sequence
  std::vector<bool> visible;    ///< [rows of k]
  std::vector<double> weights;  ///< [rows of k] probabilities; NaN for the visible keys of a row with a NaN
  double lse = -std::numeric_limits<double>::infinity();
  double max_score = 0;     ///< max_j |score_j|
  double max_sum = 0;       ///< S = max_j Σ|q||k| · |scale|
  double max_step = 0;      ///< largest magnitudes of scores before the softcap, and before the biases
  double max_relative = 0;  ///< and with the relative bias, if another one follows
};

struct AttentionReference {
  // [batch, head, query, value_dim]
  std::vector<double> out;
  std::vector<double> weighted;  ///< Σ_j p_j |v_j|
  // [batch, head, query]
  std::vector<RowReference> rows;  ///< without their weights
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

/// q·k · scale, and the sum of the magnitudes of its terms.
struct Score {
  double value = 0, magnitude = 0;
};

inline Score score_of(View<const float, 4> q, View<const float, 4> k, Index batch, Index head, Index query, Index key,
                      const AttentionOptions& options) {
  const Index kv_head = head / (q.size(1) / k.size(1));
  const double scale = options.scale ? double{*options.scale} : 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  Score score;
  for (Index d = 0; d < q.size(3); ++d) {
    const double product = scale * double{q(batch, head, query, d)} * double{k(batch, kv_head, key, d)};
    score.value += product;
    score.magnitude += std::abs(product);
  }
  return score;
}

inline bool is_visible(const AttentionOptions& o, Index batch, Index head, Index query, Index key, Index position) {
  if (o.causal && key > position) return false;
  if (o.window_left >= 0 && key < position - o.window_left) return false;
  if (o.window_right >= 0 && key > position + o.window_right) return false;
  if (o.mask.data != nullptr && !o.mask(batch, head, query, key)) return false;
  return o.mask_bits.data == nullptr || o.mask_bits(batch, head, query, key / 8) / (1 << key % 8) % 2 != 0;
}

/// Turns scores into probabilities. `sink`: one more score; -inf without one.
inline void weigh(RowReference& row, const std::vector<double>& scores, double sink) {
  double largest = sink, sum = 0;
  bool has_nan = false;
  for (std::size_t j = 0; j < scores.size(); ++j) {
    if (!row.visible[j]) continue;
    has_nan = has_nan || std::isnan(scores[j]);
    largest = std::max(largest, scores[j]);
  }
  if (has_nan) largest = std::numeric_limits<double>::quiet_NaN();
  if (largest == minus_infinity) return;
  if (sink != minus_infinity) sum = std::exp(sink - largest);
  for (std::size_t j = 0; j < scores.size(); ++j)
    if (row.visible[j]) sum += row.weights[j] = std::exp(scores[j] - largest);
  for (std::size_t j = 0; j < scores.size(); ++j)
    if (row.visible[j]) row.weights[j] /= sum;
  row.lse = largest + std::log(sum);
}

}  // namespace reference_detail

inline RowReference row_reference(View<const float, 4> q, View<const float, 4> k, const AttentionOptions& o,
                                  Index batch, Index head, Index query) {
  using reference_detail::minus_infinity;
  const reference_detail::Place place = reference_detail::place_of(q, k, batch, query, o);
  const auto all = static_cast<std::size_t>(k.size(2));
  const Index i = query - place.first_query;
  const Index position = i + (o.causal_offsets.data == nullptr ? o.causal_offset : o.causal_offsets(place.element));
  RowReference row{.exists = place.exists, .visible = std::vector<bool>(all), .weights = std::vector<double>(all)};
  if (i >= place.queries) return row;
  std::vector<double> scores(all, minus_infinity);
  for (Index j = 0; j < place.keys; ++j) {
    if (!reference_detail::is_visible(o, batch, head, query, j, position)) continue;
    const RelativeBias& relative = o.relative_bias;
    const double bias = o.bias.data == nullptr ? 0.0 : double{o.bias(batch, head, query, j)};
    double by_distance = 0;
    if (relative.table.data != nullptr)
      by_distance = relative.table(
          head, t5_reference(j - position, relative.table.size(1), relative.max_distance, relative.bidirectional));
    if (bias == minus_infinity || by_distance == minus_infinity) continue;
    const auto at = static_cast<std::size_t>(place.first_key + j);
    row.visible[at] = true;
    auto [score, magnitude] = reference_detail::score_of(q, k, batch, head, query, place.first_key + j, o);
    // Roundings before the cap and in it are those of this number.
    double step = o.softcap > 0 ? std::abs(score) : 0.0;
    if (o.softcap > 0) score = o.softcap * std::tanh(score / o.softcap);
    if (o.alibi_slopes.data != nullptr) score += double{o.alibi_slopes(head)} * static_cast<double>(j - position);
    step += std::abs(score);
    score += by_distance;
    if (relative.table.data != nullptr && o.bias.data != nullptr)
      row.max_relative = std::max(row.max_relative, std::abs(score));
    score += bias;
    scores[at] = score;
    row.max_step = std::max(row.max_step, step);
    row.max_score = std::max(row.max_score, std::abs(score));
    row.max_sum = std::max(row.max_sum, magnitude);
  }
  reference_detail::weigh(row, scores, o.sinks.data == nullptr ? minus_infinity : double{o.sinks(head)});
  return row;
}

inline AttentionReference attention_reference(View<const float, 4> q, View<const float, 4> k, View<const float, 4> v,
                                              const AttentionOptions& options) {
  AttentionReference result;
  for (Index b = 0; b < q.size(0); ++b) {
    for (Index h = 0; h < q.size(1); ++h) {
      for (Index i = 0; i < q.size(2); ++i) {
        RowReference row = row_reference(q, k, options, b, h, i);
        std::vector<double> out(static_cast<std::size_t>(v.size(3)), 0.0), weighted = out;
        for (Index j = 0; j < k.size(2); ++j) {
          if (!row.visible[static_cast<std::size_t>(j)]) continue;
          const double weight = row.weights[static_cast<std::size_t>(j)];
          for (Index d = 0; d < v.size(3); ++d) {
            const double value = v(b, h / (q.size(1) / v.size(1)), j, d);
            out[static_cast<std::size_t>(d)] += weight * value;
            weighted[static_cast<std::size_t>(d)] += weight * std::abs(value);
          }
        }
        result.out.insert(result.out.end(), out.begin(), out.end());
        result.weighted.insert(result.weighted.end(), weighted.begin(), weighted.end());
        row.weights = {};
        result.rows.push_back(std::move(row));
      }
    }
  }
  return result;
}

}  // namespace headlane::test
