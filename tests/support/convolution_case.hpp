// causal_convolution in double with the bound of causal_convolution.hpp, the bits of its
// formula, and calls with operands in any layout.
#pragma once

#include "support/activation_case.hpp"
#include "support/sequence_case.hpp"
#include "support/tolerance.hpp"

#include <headlane/activation.hpp>
#include <headlane/causal_convolution.hpp>

#include <array>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

namespace headlane::test {

struct ConvolutionCase {
  Index batch = 1, length = 1, channels = 1, width = 1;
  bool bias = false, state = false;
  Activation activation = Activation::none;
  std::uint64_t seed = 1;
  Index layout = -1;   ///< of layouts(), for the first operand; -1: all operands are dense
  bool alike = false;  ///< the same layout for all operands, otherwise each has the next one

  [[nodiscard]] Layout layout_of(Index operand) const { return layout_from(layouts(), layout, alike, operand); }
};

inline std::string text_of(const ConvolutionCase& c) {
  std::ostringstream text;
  text << text_of(std::array{c.batch, c.length, c.channels, c.width}) << (c.bias ? ", bias" : "")
       << (c.state ? ", state" : "") << ", activation " << static_cast<int>(c.activation) << ", layout "
       << c.layout_of(0).name << (c.alike ? ", alike" : "");
  return text.str();
}

/// The number-th of all 32 combinations of options.
inline ConvolutionCase with_options(ConvolutionCase c, Index number) {
  c.bias = number % 2 == 1;
  c.state = number / 2 % 2 == 1;
  c.activation = static_cast<Activation>(number / 4 % 8);
  return c;
}

/// The operands of a call. Those of a view without data are not given.
struct ConvolutionCall {
  View<const float, 3> x;
  View<const float, 2> weight;
  View<float, 3> y;
  View<const float, 1> bias = {};
  View<float, 3> state = {};
  Activation activation = Activation::none;
  int num_threads = 0;

  [[nodiscard]] CausalConvolutionOptions options() const {
    return {.bias = bias, .activation = activation, .state = state, .num_threads = num_threads};
  }
  void run() const { causal_convolution(x, weight, y, options()); }

  /// Tokens first … end - 1.
  [[nodiscard]] ConvolutionCall tokens(Index first, Index end) const {
    ConvolutionCall result = *this;
    result.x = x.slice(1, first, end);
    result.y = y.slice(1, first, end);
    return result;
  }
  /// Some channels of one batch element.
  [[nodiscard]] ConvolutionCall part(Index b, Index first, Index end) const {
    ConvolutionCall result = *this;
    result.x = x.slice(0, b, b + 1).slice(2, first, end);
    result.y = y.slice(0, b, b + 1).slice(2, first, end);
    result.weight = weight.slice(0, first, end);
    if (bias) result.bias = bias.slice(0, first, end);
    if (state) result.state = state.slice(0, b, b + 1).slice(1, first, end);
    return result;
  }
};

/// All tensors of a call; those that the case does not use are not passed.
struct ConvolutionTensors {
  ConvolutionCase c;
  Tensor<3> x, y, state;
  Tensor<2> weight;
  Tensor<1> bias;

  explicit ConvolutionTensors(const ConvolutionCase& c_)
      : c(c_),
        x({c.batch, c.length, c.channels}, c.layout_of(0)),
        y({c.batch, c.length, c.channels}, c.layout_of(1)),
        state({c.batch, c.channels, c.width - 1}, c.layout_of(2)),
        weight({c.channels, c.width}, c.layout_of(3)),
        bias({c.channels}, c.layout_of(4)) {
    Random random(c.seed);
    fill_normal(x.view, random);
    fill_normal(state.view, random);
    fill_normal(weight.view, random);
    fill_normal(bias.view, random);
  }

  [[nodiscard]] ConvolutionCall call(int num_threads = 0) const {
    ConvolutionCall call{.x = x.view, .weight = weight.view, .y = y.view};
    if (c.bias) call.bias = bias.view;
    if (c.state) call.state = state.view;
    call.activation = c.activation;
    call.num_threads = num_threads;
    return call;
  }
  [[nodiscard]] const Tensor<3>& output() const { return y; }
  [[nodiscard]] std::vector<std::vector<float>> inputs() const {
    return {elements(x.view), elements(weight.view), elements(bias.view)};
  }
  [[nodiscard]] bool surroundings_untouched() const {
    return y.surroundings_untouched() && state.surroundings_untouched();
  }
};

/// The input that a token and a state before the first one have: those before token 0 are in
/// `before`, which is [batch, channels, width - 1], or are 0.
inline float input_at(const ConvolutionCall& x, const View<const float, 3>& before, Index b, Index t, Index c) {
  if (t >= 0) return x.x(b, t, c);
  return x.state ? before(b, c, before.size(2) + t) : 0.0f;
}

/// y and the state after a call against the oracle; `before` is the state before it.
inline void compare_convolution(const ConvolutionCall& x, const View<const float, 3>& before, Comparison comparison) {
  const Index width = x.weight.size(1);
  const ActivationCase* activation = nullptr;
  for (const ActivationCase& one : activation_cases)
    if (one.activation == x.activation) activation = &one;
  for_each_position(x.y.shape, [&](const auto& at) {
    const auto [b, t, c] = at;
    double sum = x.bias ? double{x.bias(c)} : 0, size = std::abs(sum);
    for (Index j = 0; j < width; ++j) {
      const double product = double{x.weight(c, j)} * double{input_at(x, before, b, t - (width - 1) + j, c)};
      sum += product;
      size += std::abs(product);
    }
    const double off = static_cast<double>(width) * (unit * size + smallest);
    if (activation == nullptr) return comparison.add({b, t, c}, x.y(b, t, c), sum, off);
    // No activation has a slope above 1.2. The limits rise where x falls.
    const double exact = activation->exact(sum);
    comparison.add({b, t, c}, x.y(b, t, c), exact,
                   1.2 * off + activation->limit(sum - off) * 2 * unit * std::abs(exact) + 0x1p-119);
  });
  if (x.y.size(1) > 0 || x.y.size(2) > 0) comparison.finish();
  if (!x.state) return;
  Index wrong = 0;
  for_each_position(x.state.shape, [&](const auto& at) {
    const auto [b, c, i] = at;
    const float expected = input_at(x, before, b, x.x.size(1) - (width - 1) + i, c);
    wrong += bits_of(x.state(b, c, i)) == bits_of(expected) ? 0 : 1;
  });
  CHECK_MESSAGE(wrong == 0, "isa ", isa(), ": elements of the state are wrong");
}

/// One call against the oracle. Inputs and surroundings are unchanged.
inline void check_convolution(const ConvolutionCase& c) {
  const ConvolutionTensors t(c);
  const std::string text = text_of(c);
  INFO(text);
  const Tensor<3> before(t.state.view.shape);
  copy<3>(t.state.view, before.view);
  const auto inputs = t.inputs();
  t.call(static_cast<int>(c.seed % 3)).run();
  if (c.length == 0) CHECK(different_bits(t.state.view, before.view) == 0);
  else
    compare_convolution(t.call(), before.view,
                        {"causal_convolution", text, c.seed,
                         c.activation == Activation::relu ? Comparison::Kind::special : Comparison::Kind::data});
  CHECK(t.inputs() == inputs);
  CHECK(t.surroundings_untouched());
}

/// The header's formula, operation by operation.
inline void convolve_by_formula(const ConvolutionCall& x) {
  const Index width = x.weight.size(1);
  for_each_position(x.y.shape, [&](const auto& at) {
    const auto [b, t, c] = at;
    float sum = x.bias ? x.bias(c) : 0;
    for (Index j = 0; j < width; ++j)
      sum = std::fma(input_at(x, x.state, b, t - (width - 1) + j, c), x.weight(c, j), sum);
    x.y(b, t, c) = sum;
  });
  if (x.activation != Activation::none) activate(x.y, x.y, x.activation);
}

}  // namespace headlane::test
