// Layer norm and RMS norm in double with the bounds of norm.hpp, and calls with operands in any
// layout.
#pragma once

#include "support/rowwise_case.hpp"

#include <headlane/norm.hpp>

#include <cmath>
#include <string>
#include <vector>

namespace headlane::test {

struct NormCase {
  bool centred = true;  ///< layer norm; otherwise RMS norm
  bool weight = false, bias = false, residual = false, sum = false;
  float eps = 1e-5f;
  Index vector_step = 1;  ///< stride of weight and bias, whose order is reversed if it is above 2
};

inline const char* name_of(const NormCase& norm) { return norm.centred ? "layer_norm" : "rms_norm"; }

inline std::string options_of(const NormCase& norm) {
  return std::string(norm.weight ? ", weight" : "") + (norm.bias ? ", bias" : "") +
         (norm.residual ? ", residual" : "") + (norm.sum ? ", sum" : "");
}

inline std::string text_of(const NormCase& norm) { return name_of(norm) + options_of(norm); }

/// A call of either function.
struct NormCall {
  bool centred = true;
  AnyView<const float> x = {};
  AnyView<float> y = {};
  float eps = 1e-5f;
  View<const float, 1> weight = {}, bias = {};
  AnyView<const float> residual = {};
  AnyView<float> sum = {};
  int num_threads = 0;

  void run() const {
    if (centred)
      layer_norm(
          x, y,
          {.eps = eps, .weight = weight, .bias = bias, .residual = residual, .sum = sum, .num_threads = num_threads});
    else rms_norm(x, y, {.eps = eps, .weight = weight, .residual = residual, .sum = sum, .num_threads = num_threads});
  }
};

/// All tensors of a call; those that the case does not use are not passed.
template <int Rank>
struct NormTensors {
  NormCase norm;
  Tensor<Rank> x, y, residual, sum;
  Tensor<1> weight, bias;

  NormTensors(const NormCase& norm_, const RowsCase<Rank>& rows)
      : norm(norm_),
        x(rows.shape, rows.layout_x),
        y(rows.shape, rows.layout_y),
        residual(rows.shape, rows.layout_y),
        sum(rows.shape, rows.layout_x),
        weight({rows.shape.back()}, {.name = "", .step = norm.vector_step}),
        bias({rows.shape.back()}, {.name = "", .step = norm.vector_step, .reversed = norm.vector_step > 2}) {
    Random random(rows.seed);
    for_each(x.view, [&](float& e) { e = rows.mean + rows.spread * random.normal(); });
    for_each(residual.view, [&](float& e) { e = rows.spread * random.normal(); });
    for_each(weight.view, [&](float& e) { e = 1 + random.uniform(); });
    fill_normal(bias.view, random);
  }

  [[nodiscard]] NormCall call(int num_threads = 0) const {
    NormCall call{.centred = norm.centred, .x = x.view, .y = y.view, .eps = norm.eps, .num_threads = num_threads};
    if (norm.weight) call.weight = weight.view;
    if (norm.bias) call.bias = bias.view;
    if (norm.residual) call.residual = residual.view;
    if (norm.sum) call.sum = sum.view;
    return call;
  }

  /// The rows that are normalised, each rounding once.
  [[nodiscard]] std::vector<float> rows() const {
    std::vector<float> s = elements(x.view);
    const std::vector<float> r = elements(residual.view);
    for (std::size_t i = 0; norm.residual && i < s.size(); ++i) s[i] += r[i];
    return s;
  }
};

/// One row of x, whose elements may be off by these errors; empty weight or bias: none.
inline ExpectedRow norm_reference(const NormCase& norm, const std::vector<double>& x, const std::vector<double>& errors,
                                  const std::vector<double>& weight, const std::vector<double>& bias) {
  const double n = static_cast<double>(x.size()), chain = std::ceil(n / 64);
  double mean = 0, magnitude = 0, mean_error = 0, square = 0, square_error = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    mean += x[i] / n;
    magnitude += (std::abs(x[i]) + errors[i]) / n;
    mean_error += errors[i] / n;
  }
  if (!norm.centred) mean = mean_error = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    square += (x[i] - mean) * (x[i] - mean) / n;
    square_error += (errors[i] + mean_error) * (errors[i] + mean_error) / n;
  }
  const double root = std::sqrt(square + double{norm.eps}), off = std::sqrt(square_error), least = root - off;
  if (off != 0) REQUIRE(least > 0);  // otherwise there is no bound
  const double g = chain + 11, w = g * unit * magnitude / least;
  ExpectedRow result;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double z = (x[i] - mean) / root, from = (errors[i] + mean_error + std::abs(z) * off) / least;
    const double signed_factor = weight.empty() ? 1.0 : weight[i], factor = std::abs(signed_factor);
    const double y = z * signed_factor + (bias.empty() ? 0.0 : bias[i]), size = std::abs(y) + from * factor;
    const double own = norm.centred
                           ? g * unit * (1 + 2 * w) * (1 + 2 * w) * (1 + std::abs(z) + from) * factor + unit * size
                           : (chain / 2 + 8) * unit * size;
    result.value.push_back(y);
    result.bound.push_back(from * factor + own + smallest * (1 + factor));
  }
  return result;
}

/// One row of exact elements.
inline ExpectedRow norm_reference(const NormCase& norm, const std::vector<float>& s, const std::vector<float>& weight,
                                  const std::vector<float>& bias) {
  const auto wide = [](const std::vector<float>& x) { return std::vector<double>(x.begin(), x.end()); };
  return norm_reference(norm, wide(s), std::vector<double>(s.size()), wide(weight), wide(bias));
}

/// Every combination of what may be given.
inline std::vector<NormCase> norm_cases() {
  std::vector<NormCase> all;
  for (unsigned bits = 0; bits < 32; ++bits) {
    const NormCase one{.centred = (bits & 1) == 0,
                       .weight = (bits & 2) != 0,
                       .bias = (bits & 4) != 0,
                       .residual = (bits & 8) != 0,
                       .sum = (bits & 16) != 0};
    if (one.centred || !one.bias) all.push_back(one);
  }
  return all;
}

}  // namespace headlane::test
