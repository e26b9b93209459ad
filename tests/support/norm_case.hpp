// Layer norm and RMS norm in double with the bounds of norm.hpp, and calls with operands in any
// layout.
#pragma once

#include "support/data.hpp"
#include "support/tolerance.hpp"

#include <headlane/norm.hpp>

#include <cmath>
#include <string>
#include <vector>

namespace headlane::test {

struct NormCase {
  bool centred = true;  ///< layer norm; otherwise RMS norm
  bool weight = false, bias = false, residual = false, sum = false;
  float eps = 1e-5f;
};

/// All tensors of a call; those that the case does not use are not passed.
template <int Rank>
struct NormTensors {
  using Shape = std::array<Index, static_cast<std::size_t>(Rank)>;
  NormCase norm;
  Tensor<Rank> x, y, residual, sum;
  Tensor<1> weight, bias;

  NormTensors(const NormCase& wanted, const Shape& shape, std::uint64_t seed, float mean = 0, float spread = 1,
              const Layout& layout = {}, const Layout& of_y = {}, Index step = 1)
      : norm(wanted),
        x(shape, layout),
        y(shape, of_y),
        residual(shape, of_y),
        sum(shape, layout),
        weight({shape.back()}, {.name = "", .step = step}),
        bias({shape.back()}, {.name = "", .step = step, .reversed = step > 2}) {
    Random random(seed);
    for_each(x.view, [&](float& e) { e = mean + spread * random.normal(); });
    for_each(residual.view, [&](float& e) { e = spread * random.normal(); });
    for_each(weight.view, [&](float& e) { e = 1 + random.uniform(); });
    fill_normal(bias.view, random);
  }

  void run_on(AnyView<const float> from, AnyView<float> to, AnyView<const float> of_residual, AnyView<float> of_sum,
              int threads = 0) const {
    View<const float, 1> of_weight, of_bias;
    if (norm.weight) of_weight = weight.view;
    if (norm.bias) of_bias = bias.view;
    if (!norm.residual) of_residual = {};
    if (!norm.sum) of_sum = {};
    if (norm.centred) layer_norm(from, to, {norm.eps, of_weight, of_bias, of_residual, of_sum, threads});
    else rms_norm(from, to, {norm.eps, of_weight, of_residual, of_sum, threads});
  }
  void run(int threads = 0) const { run_on(x.view, y.view, residual.view, sum.view, threads); }

  /// The rows that are normalised, each rounding once.
  [[nodiscard]] std::vector<float> rows() const {
    std::vector<float> s = elements(x.view);
    const std::vector<float> r = elements(residual.view);
    for (std::size_t i = 0; norm.residual && i < s.size(); ++i) s[i] += r[i];
    return s;
  }
};

struct NormReference {
  std::vector<double> value, bound;
};

/// One row; empty weight or bias: none.
inline NormReference norm_reference(const NormCase& norm, const std::vector<float>& s, const std::vector<float>& weight,
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
  NormReference result;
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

/// y and sum of a call that has been made, against the oracle on s.
template <int Rank>
void compare_norm(const NormTensors<Rank>& t, const std::vector<float>& s, const std::vector<float>& y,
                  const std::string& what, Comparison::Kind kind = Comparison::Kind::data) {
  const auto n = static_cast<std::size_t>(t.x.view.size(-1));
  const std::string text = what + " " + text_of(t.x.view.shape) + (t.norm.weight ? ", weight" : "") +
                           (t.norm.bias ? ", bias" : "") + (t.norm.residual ? ", residual" : "") +
                           (t.norm.sum ? ", sum" : "");
  REQUIRE(y.size() == s.size());
  if (s.empty()) return;
  const std::vector<float> none, weight = t.norm.weight ? elements(t.weight.view) : none;
  const std::vector<float> bias = t.norm.bias ? elements(t.bias.view) : none;
  Comparison comparison(t.norm.centred ? "layer_norm" : "rms_norm", text, 0, kind);
  for (std::size_t first = 0; first < s.size(); first += n) {
    const std::vector<float> row(s.begin() + static_cast<Index>(first), s.begin() + static_cast<Index>(first + n));
    const NormReference expected = norm_reference(t.norm, row, weight, bias);
    for (std::size_t i = 0; i < n; ++i)
      comparison.add({static_cast<Index>(first / n), static_cast<Index>(i)}, y[first + i], expected.value[i],
                     expected.bound[i]);
  }
  comparison.finish();
}

/// Every combination of what may be given.
inline std::vector<NormCase> norm_cases() {
  std::vector<NormCase> all;
  for (unsigned bits = 0; bits < 32; ++bits) {
    const NormCase one{(bits & 1) == 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, (bits & 16) != 0};
    if (one.centred || !one.bias) all.push_back(one);
  }
  return all;
}

inline std::string text_of(const NormCase& norm) {
  return std::string(norm.centred ? "layer_norm" : "rms_norm") + (norm.weight ? " weight" : "") +
         (norm.bias ? " bias" : "") + (norm.residual ? " residual" : "") + (norm.sum ? " sum" : "");
}

}  // namespace headlane::test
