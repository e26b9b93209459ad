// The oracle of layers: the papers' formulas as naive loops in double, with a bound for the error
// of each element. Each step adds the error stated in the header of its function, at values as far
// off as they may be, to the propagated errors e of its inputs:
//
//   products     Σ |w|·e
//   attention    scores off by at most D change probabilities p by factors within e^±2D, and Σ p v
//                by (e^2D - 1) Σ p|v| + e^2D Σ p e
//   norms        z = d / r: d is off by e (layer norm: plus the mean of e); r, a root of a sum of
//                squares, by at most the root of the mean square of that
//   activations  their largest slope · e
#pragma once

#include "support/norm_case.hpp"
#include "support/tolerance.hpp"

#include <headlane/layers.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <string>
#include <vector>

namespace headlane::test {

/// [batch, length, width], and the largest error of each element.
struct Bounded {
  std::array<Index, 3> shape{};
  std::vector<double> value, error;

  Bounded() = default;
  explicit Bounded(const std::array<Index, 3>& shape_)
      : shape(shape_), value(static_cast<std::size_t>(shape_[0] * shape_[1] * shape_[2])), error(value.size()) {}
  explicit Bounded(const View<const float, 3>& x) : Bounded(x.shape) {
    const std::vector<float> all = elements(x);
    std::copy(all.begin(), all.end(), value.begin());
  }
  [[nodiscard]] std::size_t at(Index b, Index i, Index j) const {
    return static_cast<std::size_t>((b * shape[1] + i) * shape[2] + j);
  }
  /// A float of this exact value, after one more rounding.
  void round(std::size_t i) { error[i] += unit * (std::abs(value[i]) + error[i]); }
};

/// Is key j visible to query i of batch element b?
using IsVisible = std::function<bool(Index b, Index i, Index j)>;

namespace layer_oracle {

inline View<const float, 2> matrix(const StateDict& state, const std::string& name) {
  const AnyView<const float>& w = state.at(name);
  return {w.data, {w.shape[0], w.shape[1]}, {w.strides[0], w.strides[1]}};
}

/// Elements first … end-1 of a vector of the state dict; zeros if it is absent.
inline std::vector<double> vector(const StateDict& state, const std::string& name, Index first, Index end,
                                  double otherwise = 0) {
  std::vector<double> result(static_cast<std::size_t>(end - first), otherwise);
  const auto found = state.find(name);
  for (Index i = first; i < end && found != state.end(); ++i)
    result[static_cast<std::size_t>(i - first)] = found->second.data[i * found->second.strides[0]];
  return result;
}

inline double activation(Activation kind, double x) {
  const double pi = std::numbers::pi, cubic = 2 * std::sqrt(2 / pi) * (x + 0.044715 * x * x * x);
  switch (kind) {
    case Activation::none:
      return x;
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::gelu:
      return x * std::erfc(-x / std::sqrt(2.0)) / 2;
    case Activation::gelu_tanh:
      return x / (1 + std::exp(-cubic));
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::tanh:
      return std::tanh(x);
    case Activation::erf:
      return std::erf(x);
  }
  return x;
}

/// The error in units in the last place, at most 2^-23 of the result each.
inline double ulps(Activation kind, double x) {
  const double cubic = 2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  switch (kind) {
    case Activation::none:
    case Activation::relu:
      return 0;
    case Activation::gelu:
      return 10;
    case Activation::gelu_tanh:
      return 5 + 4 * std::max(-cubic, 0.0);
    case Activation::silu:
      return 4;
    case Activation::sigmoid:
      return 3;
    case Activation::tanh:
    case Activation::erf:
      return 2;
  }
  return 0;
}

inline void activate(Bounded& x, Activation kind) {
  for (std::size_t i = 0; i < x.value.size() && kind != Activation::none; ++i) {
    const double low = x.value[i] - x.error[i], slope = 1.2 * x.error[i];  // gelu's slope is at most 1.13
    x.value[i] = activation(kind, x.value[i]);
    x.error[i] =
        slope + ulps(kind, low) * 2 * unit * (std::abs(x.value[i]) + slope) + (kind == Activation::relu ? 0 : 0x1p-119);
  }
}

inline Bounded linear(const Bounded& x, const View<const float, 2>& weight, const std::vector<double>& bias,
                      bool with_bias) {
  const Index in = x.shape[2];
  Bounded y({x.shape[0], x.shape[1], weight.shape[0]});
  for (Index row = 0; row < x.shape[0] * x.shape[1]; ++row)
    for (Index j = 0; j < weight.shape[0]; ++j) {
      double sum = 0, magnitude = 0, error = 0;
      for (Index p = 0; p < in; ++p) {
        const auto at = static_cast<std::size_t>(row * in + p);
        const double w = weight(j, p);
        sum += w * x.value[at];
        magnitude += std::abs(w) * (std::abs(x.value[at]) + x.error[at]);
        error += std::abs(w) * x.error[at];
      }
      const auto to = static_cast<std::size_t>(row * weight.shape[0] + j);
      y.value[to] = sum + (with_bias ? bias[static_cast<std::size_t>(j)] : 0.0);
      y.error[to] = error + gemm_bound(in, magnitude);
      if (with_bias) y.round(to);
    }
  return y;
}

/// Rows first … end of a weight and a bias.
inline Bounded linear(const Bounded& x, const StateDict& state, const std::string& weight, const std::string& bias,
                      Index first = 0, Index end = -1) {
  const View<const float, 2> w = matrix(state, weight);
  const Index last = end < 0 ? w.shape[0] : end;
  return linear(x, w.slice(0, first, last), vector(state, bias, first, last), state.contains(bias));
}

inline Bounded add(Bounded x, const Bounded& y) {
  for (std::size_t i = 0; i < x.value.size(); ++i) {
    x.value[i] += y.value[i];
    x.error[i] += y.error[i];
    x.round(i);
  }
  return x;
}

inline Bounded norm(const Bounded& x, const StateDict& state, const std::string& prefix, NormKind kind, float eps) {
  const auto n = static_cast<std::ptrdiff_t>(x.shape[2]);
  const NormCase norm{.centred = kind == NormKind::layer, .eps = eps};
  const std::vector<double> weight = vector(state, prefix + "weight", 0, n);
  const std::vector<double> bias = norm.centred ? vector(state, prefix + "bias", 0, n) : std::vector<double>();
  Bounded y(x.shape);
  for (std::ptrdiff_t first = 0; first < x.shape[0] * x.shape[1] * n; first += n) {
    const auto row = [&](const std::vector<double>& all) {
      return std::vector<double>(all.begin() + first, all.begin() + first + n);
    };
    const ExpectedRow expected = norm_reference(norm, row(x.value), row(x.error), weight, bias);
    std::copy(expected.value.begin(), expected.value.end(), y.value.begin() + first);
    std::copy(expected.bound.begin(), expected.bound.end(), y.error.begin() + first);
  }
  return y;
}

/// Heads side by side in q, k and v.
inline Bounded attention(const Bounded& q, const Bounded& k, const Bounded& v, Index heads, Index kv_heads,
                         const IsVisible& visible) {
  const Index dim = q.shape[2] / heads, keys = k.shape[1];
  const double scale = 1 / std::sqrt(static_cast<double>(dim));
  Bounded out(q.shape);
  for (Index b = 0; b < q.shape[0]; ++b)
    for (Index h = 0; h < heads; ++h)
      for (Index i = 0; i < q.shape[1]; ++i) {
        std::vector<double> scores;
        std::vector<Index> of;
        double off = 0, magnitude = 0, largest = 0, max = -HUGE_VAL, sum = 0;
        const Index from = h / (heads / kv_heads) * dim;
        for (Index j = 0; j < keys; ++j) {
          if (!visible(b, i, j)) continue;
          double score = 0, error = 0, products = 0;
          for (Index d = 0; d < dim; ++d) {
            const std::size_t x = q.at(b, i, h * dim + d), y = k.at(b, j, from + d);
            score += scale * q.value[x] * k.value[y];
            const double whole = (std::abs(q.value[x]) + q.error[x]) * (std::abs(k.value[y]) + k.error[y]);
            products += scale * whole;
            error += scale * (whole - std::abs(q.value[x]) * std::abs(k.value[y]));
          }
          scores.push_back(score);
          of.push_back(j);
          off = std::max(off, error);
          magnitude = std::max(magnitude, products);
          largest = std::max(largest, std::abs(score) + error);
          max = std::max(max, score);
        }
        if (scores.empty()) continue;  // 0
        for (double& s : scores) sum += s = std::exp(s - max);
        const double spread = std::exp(2 * off), own = attention_relative_bound(dim, keys, magnitude, largest);
        for (Index d = 0; d < dim; ++d) {
          double value = 0, weighted = 0, error = 0;
          for (std::size_t j = 0; j < scores.size(); ++j) {
            const std::size_t y = v.at(b, of[j], from + d);
            value += scores[j] / sum * v.value[y];
            weighted += scores[j] / sum * std::abs(v.value[y]);
            error += scores[j] / sum * v.error[y];
          }
          const std::size_t to = out.at(b, i, h * dim + d);
          out.value[to] = value;
          out.error[to] = (spread - 1) * weighted + spread * error + own * spread * (weighted + error);
        }
      }
  return out;
}

}  // namespace layer_oracle

}  // namespace headlane::test
