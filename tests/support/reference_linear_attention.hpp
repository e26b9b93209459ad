// linear_attention token by token in double, with the bounds of linear_attention.hpp.
#pragma once

#include "support/linear_attention_case.hpp"
#include "support/tolerance.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace headlane::test {

/// The query or key of one token.
inline std::vector<double> exact_row(const LinearCall& one, const View<const float, 4>& x) {
  std::vector<double> row;
  double square = double{one.eps};
  for (Index i = 0; i < x.size(3); ++i) {
    row.push_back(double{x(0, 0, 0, i)});
    square += row.back() * row.back();
  }
  if (one.normalize)
    for (double& e : row) e /= std::sqrt(square);
  return row;
}

/// The step of a gate for row i of the state and one token. Limits bring two steps no further from
/// each other.
struct ExactStep {
  double value = 0;
  double of_s = 0;  ///< by how many roundings a rounding of s changes it
};
inline ExactStep exact_step(const LinearCall& one, Index i) {
  const double given = double{one.decay ? one.decay(0, 0, 0) : one.row_decay(0, 0, 0, i)};
  const double s = given + (one.dt_bias ? double{one.dt_bias(0)} : one.row_bias ? double{one.row_bias(0, i)} : 0);
  const double softplus = std::max(s, 0.0) + std::log1p(std::exp(-std::abs(s)));
  return {std::clamp(softplus, double{one.min_step}, double{one.max_step}), std::abs(s) / (1 + std::exp(-s))};
}

/// The product of an element of v with the step, from which u is computed, and the bound of its
/// error. An exponential in the step may be denormal; it is then off by up to 3 denormal units.
struct ExactInput {
  double value, bound;
};
inline ExactInput exact_input(const LinearCall& one, const ExactStep& step, double v) {
  if (!one.discretize) return {v, 0};
  return {v * step.value, ((9 * step.value + step.of_s) * unit + 3 * smallest) * std::abs(v) + smallest};
}

struct ExactDecay {
  double factor = 1;     ///< multiplies a row of the state
  double roundings = 0;  ///< by which the gate widens the bounds of the header
};
/// The decay of row i of the state for one token.
inline ExactDecay exact_decay(const LinearCall& one, Index i) {
  if (!one.decay && !one.row_decay) return {};
  const double given = double{one.decay ? one.decay(0, 0, 0) : one.row_decay(0, 0, 0, i)};
  if (!one.a_log) return {std::exp(given), 0};
  const ExactStep step = exact_step(one, i);
  const double rate = std::exp(double{one.a_log(0)}), log_decay = -rate * step.value;
  return {std::exp(log_decay), 11 * std::abs(log_decay) + rate * step.of_s};
}

/// beta of one token, and how far its product may be off, relatively: sigmoid by 3 ULP.
struct ExactBeta {
  double beta = 1, relative = 0;
};
inline ExactBeta exact_beta(const LinearCall& one) {
  if (!one.beta) return {};
  const double given = double{one.beta(0, 0, 0)}, beta = one.sigmoid_beta ? 1 / (1 + std::exp(-given)) : given;
  return {double{one.beta_scale} * beta, ((one.sigmoid_beta ? 6 : 0) + (one.beta_scale == 1 ? 0 : 1)) * unit};
}

/// One token of one head against the oracle: the state after it from the state before it, and
/// out from the state after it. `at`: batch element, head, token.
inline void compare_token(const LinearCall& one, const View<const float, 4>& before, const std::array<Index, 3>& at,
                          Comparison& out, Comparison& state) {
  const Index rows = one.q.size(3), columns = one.v.size(3);
  const std::vector<double> q = exact_row(one, one.q), k = exact_row(one, one.k);
  const double n = static_cast<double>(rows), off = one.normalize ? (n / 64 + 11) * unit : 0;
  const double scale = one.scale ? double{*one.scale} : 1 / std::sqrt(n), tiny = (n + 4) * smallest;
  const bool decays = one.decay || one.row_decay;
  const auto [beta, beta_off] = exact_beta(one);
  const ExactStep step = one.discretize ? exact_step(one, 0) : ExactStep{};
  std::vector<ExactDecay> d;
  for (Index i = 0; i < rows; ++i) d.push_back(exact_decay(one, i));
  for (Index j = 0; j < columns; ++j) {
    double p = 0, p_bound = tiny, read = 0, of_read = 0;
    for (std::size_t i = 0; i < q.size(); ++i) {
      const auto row = static_cast<Index>(i);
      const double product = d[i].factor * double{before(0, 0, row, j)} * k[i];
      const double after = double{one.state(0, 0, row, j)} * q[i];
      p += product, p_bound += ((n + 4 + d[i].roundings) * unit + off) * std::abs(product);
      read += after, of_read += std::abs(after);
    }
    const double v = double{one.v(0, 0, 0, j)}, skipped = one.skip ? double{one.skip(0)} * v : 0;
    const auto [input, v_bound] = exact_input(one, step, v);
    const double of_u = std::abs(input - p) + p_bound + v_bound, u = one.beta ? (input - p) * beta : input;
    const double u_bound =
        one.beta ? (p_bound + v_bound + (2 * unit + beta_off) * of_u) * std::abs(beta) * (1 + beta_off) + 2 * smallest
                 : v_bound;
    for (std::size_t i = 0; i < q.size(); ++i) {
      const auto row = static_cast<Index>(i);
      const double kept = d[i].factor * double{before(0, 0, row, j)}, exact = kept + k[i] * u, size = std::abs(k[i]);
      // exp is off by 1 ULP, which are up to two roundings.
      const double of_decay = decays ? (3 + d[i].roundings) * unit * std::abs(kept) : 0;
      const double more = of_decay + size * (u_bound + off * (std::abs(u) + u_bound));
      state.add({at[0], at[1], at[2], row, j}, one.state(0, 0, row, j), exact,
                more + unit * (std::abs(exact) + more) + 3 * smallest);
    }
    // fma with skip rounds once.
    const float y = one.out(0, 0, 0, j);
    out.add({at[0], at[1], at[2], j}, y, scale * read + skipped,
            ((n + (one.scale ? 2 : 3)) * unit + off) * std::abs(scale) * of_read + tiny * (1 + std::abs(scale)) +
                (one.skip ? unit * std::abs(double{y}) + smallest : 0));
  }
}

/// One call against the oracle, which goes from token to token by calls of one token each: their
/// bits are those of the one call. Inputs and surroundings are unchanged.
inline void check_linear(const LinearCase& c, Comparison::Kind kind = Comparison::Kind::data) {
  const std::string text = text_of(c);
  LinearCase dense = c;
  dense.layout = -1;
  const LinearTensors steps(dense), whole(c);
  INFO(text);
  const LinearCall all = steps.call_with_state();
  const Tensor<4> before(all.state.shape);
  Comparison out("linear_attention", text, c.seed, kind), state("linear_attention: state", text, c.seed, kind);
  for (Index t = 0; t < c.length; ++t) {
    copy<4>(all.state, before.view);
    all.tokens(t, t + 1).run();
    for (Index b = 0; b < c.batch; ++b)
      for (Index h = 0; h < c.heads; ++h)
        compare_token(all.head(b, h).tokens(t, t + 1), before.view.slice(0, b, b + 1).slice(1, h, h + 1), {b, h, t},
                      out, state);
  }
  if (out.count() > 0) out.finish(), state.finish();
  const auto inputs = whole.inputs();
  whole.call(static_cast<int>(c.seed % 3)).run();
  CHECK_MESSAGE(different_bits(whole.out.view, steps.out.view) == 0, "isa ", isa());
  if (c.state) CHECK_MESSAGE(different_bits(whole.state.view, steps.state.view) == 0, "isa ", isa());
  CHECK(whole.inputs() == inputs);
  CHECK(whole.surroundings_untouched());
}

}  // namespace headlane::test
