// The oracle: naive loops in double that share nothing with src/. Beside each value it returns the sums that the stated
// error bounds are made of.
#pragma once

#include <headlane/attention.hpp>
#include <headlane/gemm.hpp>
#include <headlane/softmax.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace headlane::test {

struct GemmReference {
  std::vector<double> value;
  std::vector<double> magnitude;  ///< |alpha| Σ|a||b| + |beta| |c|
};

/// Row-major [m, n]; `c` is what the output holds before the call.
inline GemmReference gemm_reference(View<const float, 2> a, View<const float, 2> b, View<const float, 2> c,
                                    const GemmOptions& options) {
  GemmReference result;
  const double alpha = options.alpha, beta = options.beta;
  for (Index i = 0; i < c.size(0); ++i) {
    for (Index j = 0; j < c.size(1); ++j) {
      double sum = 0, magnitude = 0;
      for (Index p = 0; p < a.size(1) && alpha != 0; ++p) {
        const double product = double{a(i, p)} * double{b(p, j)};
        sum += product;
        magnitude += std::abs(product);
      }
      const double before = beta == 0 ? 0.0 : beta * double{c(i, j)};
      result.value.push_back(alpha == 0 ? before : alpha * sum + before);
      result.magnitude.push_back(std::abs(alpha) * magnitude + std::abs(before));
    }
  }
  return result;
}

struct SoftmaxReference {
  std::vector<double> value;
  std::vector<double> distance;  ///< |s_j - max s|
};

/// One row.
inline SoftmaxReference softmax_reference(const std::vector<float>& x, const SoftmaxOptions& options) {
  SoftmaxReference result;
  double max = -std::numeric_limits<double>::infinity();
  std::vector<double> scaled;
  for (const float element : x) {
    scaled.push_back(double{options.scale} * double{element});
    if (!(scaled.back() <= max)) max = scaled.back();  // a NaN becomes the maximum, and then the whole row
    if (std::isnan(max)) break;
  }
  double sum = 0;
  for (const double s : scaled) sum += std::exp(s - max);
  for (std::size_t j = 0; j < x.size(); ++j) {
    const double shifted = std::isnan(max) ? max : scaled[j] - max;
    result.value.push_back(options.log ? shifted - std::log(sum) : std::exp(shifted) / sum);
    result.distance.push_back(std::abs(shifted));
  }
  return result;
}

struct AttentionReference {
  // [batch, head, query, value_dim]
  std::vector<double> out;
  std::vector<double> weighted;  ///< Σ_j p_j |v_j|
  // [batch, head, query]
  std::vector<double> lse;
  std::vector<double> max_score;  ///< max_j |score_j|
  std::vector<double> max_step;  ///< largest magnitudes of what the scores were before the softcap, and before the bias
  std::vector<double> max_sum;   ///< S = max_j Σ|q||k| · |scale|
};

namespace reference_detail {

struct Row {
  std::vector<double> scores;  // of the keys that are seen
  std::vector<Index> keys;
  double max = -std::numeric_limits<double>::infinity();
  double max_score = 0, max_sum = 0, max_before_cap = 0, max_added = 0;
};

inline Row attention_scores(View<const float, 4> q, View<const float, 4> k, Index batch, Index head, Index query,
                            const AttentionOptions& options) {
  Row row;
  const Index kv_head = head / (q.size(1) / k.size(1));
  const double scale = options.scale ? double{*options.scale} : 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  const Index position = query + options.causal_offset;
  const auto length = [&](const View<const Index, 1>& lengths, Index otherwise) {
    return lengths.data == nullptr ? otherwise : lengths(batch);
  };
  if (query >= length(options.query_lengths, q.size(2))) return row;
  for (Index j = 0; j < length(options.key_lengths, k.size(2)); ++j) {
    if (options.causal && j > position) break;
    if (options.window_left >= 0 && j < position - options.window_left) continue;
    if (options.window_right >= 0 && j > position + options.window_right) break;
    if (options.mask.data != nullptr && !options.mask(batch, head, query, j)) continue;
    const double bias = options.bias.data == nullptr ? 0.0 : double{options.bias(batch, head, query, j)};
    if (bias == -std::numeric_limits<double>::infinity()) continue;
    double score = 0, sum = 0;
    for (Index d = 0; d < q.size(3); ++d) {
      const double product = scale * double{q(batch, head, query, d)} * double{k(batch, kv_head, j, d)};
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
    score += bias;
    row.scores.push_back(score);
    row.keys.push_back(j);
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
  AttentionReference result;
  for (Index b = 0; b < q.size(0); ++b) {
    for (Index h = 0; h < q.size(1); ++h) {
      for (Index i = 0; i < q.size(2); ++i) {
        const reference_detail::Row row = reference_detail::attention_scores(q, k, b, h, i, options);
        const bool empty = row.max == -std::numeric_limits<double>::infinity();
        const bool padding = options.query_lengths.data != nullptr && i >= options.query_lengths(b);
        const double no_sink = -std::numeric_limits<double>::infinity();
        const double sink = options.sinks.data == nullptr || padding ? no_sink : double{options.sinks(h)};
        const double largest = std::max(row.max, sink);
        std::vector<double> out(static_cast<std::size_t>(v.size(3)), 0.0), weighted = out;
        double sum = sink == no_sink ? 0 : std::exp(sink - largest);
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
        result.lse.push_back(largest == no_sink ? no_sink : std::isnan(row.max) ? row.max : largest + std::log(sum));
        result.max_step.push_back(row.max_before_cap + row.max_added);
        result.max_score.push_back(row.max_score);
        result.max_sum.push_back(row.max_sum);
      }
    }
  }
  return result;
}

}  // namespace headlane::test
