// The oracle of GEMM and softmax: naive loops in double, independent of src/. Besides each value it
// returns the sums in the stated error bounds. And the bits of a product, by the header's formula.
#pragma once

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

/// One element of a product, bit by bit as gemm.hpp computes it: a(p) and b(p) are the factors, c
/// is what the output holds before the call.
template <class A, class B>
float gemm_element(Index k, const A& a, const B& b, const GemmOptions& options = {}, float c = 0) {
  c = options.beta == 0 ? 0.0f : options.beta * c;
  for (Index block = 0; block < k && options.alpha != 0; block += 512) {
    const Index block_end = std::min<Index>(block + 512, k);
    float sum = 0;
    for (Index first = block; first < block_end; first += 128) {
      float chain = 0;
      for (Index p = first; p < std::min<Index>(first + 128, block_end); ++p) chain = std::fma(a(p), b(p), chain);
      sum = first == block ? chain : sum + chain;
    }
    c = std::fma(options.alpha, sum, c);
  }
  return c;
}

struct SoftmaxReference {
  std::vector<double> value;
  std::vector<double> distance;  ///< |s_j - max s|
  double max = 0;                ///< max s; of masked_softmax_reference() only
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

/// One row, of which only elements that `visible` says take part; no bias if it is empty.
inline SoftmaxReference masked_softmax_reference(const std::vector<float>& x, const std::vector<bool>& visible,
                                                 const std::vector<float>& bias, const SoftmaxOptions& options) {
  const double inf = std::numeric_limits<double>::infinity(), hidden = options.log ? -inf : 0.0;
  SoftmaxReference result;
  result.value.assign(x.size(), hidden);
  result.distance.assign(x.size(), 0);
  std::vector<double> scores(x.size(), -inf);
  double max = -inf, sum = 0;
  bool invalid = false;
  for (std::size_t j = 0; j < x.size(); ++j) {
    if (!visible[j]) continue;
    scores[j] = double{options.scale} * double{x[j]} + (bias.empty() ? 0.0 : double{bias[j]});
    invalid = invalid || std::isnan(scores[j]) || scores[j] == inf;
    max = std::max(max, scores[j]);
  }
  if (max == -inf && !invalid) return result;
  for (const double s : scores) sum += std::exp(s - max);
  for (std::size_t j = 0; j < x.size(); ++j) {
    if (!visible[j]) continue;
    const double shifted = invalid ? std::numeric_limits<double>::quiet_NaN() : scores[j] - max;
    result.value[j] = options.log ? shifted - std::log(sum) : std::exp(shifted) / sum;
    result.distance[j] = std::abs(shifted);
  }
  result.max = max;
  return result;
}

}  // namespace headlane::test
