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

/// One row; empty weight or bias: none.
inline ExpectedRow norm_reference(const NormCase& norm, const std::vector<float>& s, const std::vector<float>& weight,
                                  const std::vector<float>& bias) {
  const double n = static_cast<double>(s.size()), chain = std::ceil(n / 64);
  double mean = 0, magnitude = 0, square = 0;
  for (const float e : s) {
    mean += double{e} / n;
    magnitude += std::abs(double{e}) / n;
  }
  if (!norm.centred) mean = 0;
  for (const float e : s) square += (double{e} - mean) * (double{e} - mean) / n;
  const double root = std::sqrt(square + double{norm.eps});
  const double g = chain + 11, w = g * unit * magnitude / root;
  ExpectedRow result;
  for (std::size_t i = 0; i < s.size(); ++i) {
    const double z = (double{s[i]} - mean) / root, factor = weight.empty() ? 1.0 : double{weight[i]};
    const double y = z * factor + (bias.empty() ? 0.0 : double{bias[i]}), small = smallest * (1 + std::abs(factor));
    result.value.push_back(y);
    if (norm.centred)
      result.bound.push_back(g * unit * (1 + 2 * w) * (1 + 2 * w) * (1 + std::abs(z)) * std::abs(factor) +
                             unit * std::abs(y) + small);
    else result.bound.push_back((chain / 2 + 8) * unit * std::abs(y) + small);
  }
  return result;
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
