// linear_attention by the formula of linear_attention.hpp, step by step, to compare bits.
#pragma once

#include "core/dispatch.hpp"
#include "kernels/table.hpp"
#include "support/bit_comparison.hpp"
#include "support/linear_attention_case.hpp"

#include <headlane/norm.hpp>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

namespace headlane::test {

/// The queries or keys of a head, as the header says that they are rounded.
inline std::vector<float> rounded_rows(const LinearCall& x, const View<const float, 4>& rows) {
  std::vector<float> result = elements(rows);
  if (!x.normalize) return result;
  const Index n = rows.size(3);
  const std::vector<float> factor(static_cast<std::size_t>(n), 1 / std::sqrt(static_cast<float>(n)));
  const View<float, 2> all(result.data(), {rows.size(2), n});
  rms_norm(all, all, {.eps = x.eps / static_cast<float>(n), .weight = {factor.data(), {n}}});
  return result;
}

/// The softplus of the header, by the library's exp and log.
inline float rounded_softplus(float s) {
  const auto& kernel = internal::active();
  float t = -std::abs(s);
  kernel.exp(&t, &t, 1);
  const float w = 1.0f + t;
  float l = w;
  kernel.log(&l, &l, 1);
  l = w == 1 ? t : l * (t / (w - 1.0f));
  return (s > 0 || s != s ? s : 0) + l;
}

/// The step of a gate for a token and row i of the state.
inline float rounded_step(const LinearCall& x, Index token, Index i) {
  const float given = x.decay ? x.decay(0, 0, token) : x.row_decay(0, 0, token, i);
  const float step = rounded_softplus(given + (x.dt_bias ? x.dt_bias(0) : x.row_bias ? x.row_bias(0, i) : 0));
  return step < x.min_step ? x.min_step : step > x.max_step ? x.max_step : step;
}

/// The decay by which a token multiplies row i of the state.
inline float rounded_decay(const LinearCall& x, Index token, Index i) {
  float decay = x.decay ? x.decay(0, 0, token) : x.row_decay ? x.row_decay(0, 0, token, i) : 0;
  if (x.a_log) {
    float rate = x.a_log(0);
    internal::active().exp(&rate, &rate, 1);
    decay = -(rate * rounded_step(x, token, i));
  }
  internal::active().exp(&decay, &decay, 1);
  return decay;
}

/// The factor beta of a token.
inline float rounded_beta(const LinearCall& x, Index token) {
  float beta = x.beta(0, 0, token);
  if (x.sigmoid_beta) internal::active().activate(Activation::sigmoid, &beta, &beta, 1);
  return beta * x.beta_scale;
}

/// The header's formula, operation by operation, for a call with a state.
inline void linear_by_formula(const LinearCall& all) {
  const Index rows = all.q.size(3), n = all.q.size(2);
  const float scale = all.scale ? *all.scale : 1 / std::sqrt(static_cast<float>(rows));
  for (Index b = 0; b < all.v.size(0); ++b)
    for (Index h = 0; h < all.v.size(1); ++h) {
      const LinearCall x = all.head(b, h);
      const std::vector<float> q = rounded_rows(x, x.q), k = rounded_rows(x, x.k);
      std::vector<float> d(static_cast<std::size_t>(rows));
      for (Index t = 0; t < n; ++t) {
        for (Index i = 0; i < rows; ++i)
          d[static_cast<std::size_t>(i)] = i == 0 || x.row_decay ? rounded_decay(x, t, i) : d[0];
        const float beta = x.beta ? rounded_beta(x, t) : 1, step = x.discretize ? rounded_step(x, t, 0) : 1;
        const float *const of_q = &q[static_cast<std::size_t>(t * rows)], *const of_k =
                                                                              &k[static_cast<std::size_t>(t * rows)];
        for (Index j = 0; j < x.v.size(3); ++j) {
          float p = 0, sum = 0;
          for (Index i = 0; i < rows; ++i) {
            x.state(0, 0, i, j) *= d[static_cast<std::size_t>(i)];
            p = std::fma(x.state(0, 0, i, j), of_k[i], p);
          }
          const float v = x.v(0, 0, t, j), input = x.discretize ? v * step : v;
          const float u = x.beta ? (input - p) * beta : input;
          for (Index i = 0; i < rows; ++i) {
            x.state(0, 0, i, j) = std::fma(of_k[i], u, x.state(0, 0, i, j));
            sum = std::fma(x.state(0, 0, i, j), of_q[i], sum);
          }
          x.out(0, 0, t, j) = x.skip ? std::fma(x.skip(0), v, sum * scale) : sum * scale;
        }
      }
    }
}

/// Calls of equal tensors, which change() changes: one by the library, the other by the formula.
inline void compare_with_formula(BitComparison& bits, const LinearCase& c, const std::string& what,
                                 const std::function<void(const LinearTensors&)>& change) {
  const LinearTensors actual(c), expected(c);
  change(actual), change(expected);
  actual.call().run();
  linear_by_formula(expected.call_with_state());
  bits.add(actual.out.view, expected.out.view, text_of(c) + ", " + what);
  if (c.state) bits.add(actual.state.view, expected.state.view, text_of(c) + ", " + what + ": state");
}

}  // namespace headlane::test
