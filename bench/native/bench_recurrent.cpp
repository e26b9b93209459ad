// Operations whose state goes from token to token: the gated delta rule of whole sequences and of
// one token, and the causal convolution before it, in the sizes of Qwen3-Next and Qwen3.5.
#include "buffer.hpp"
#include "cases.hpp"
#include "machine.hpp"

#include <headlane/causal_convolution.hpp>
#include <headlane/linear_attention.hpp>

#include <memory>
#include <string>

namespace bench {

namespace {

using headlane::View;

constexpr Index rule_heads = 16, rule_dim = 128, channels = 6144, width = 4;

struct RuleData {
  explicit RuleData(const DeltaRuleShape& s)
      : q(s.batch * s.length * s.heads * s.dim, 1),
        k(q.values().size(), 2, 0.1f),
        v(q.values().size(), 3),
        out(q.values().size()),
        decay(s.batch * s.length * s.heads, 4),
        beta(s.batch * s.length * s.heads, 5),
        state(s.batch * s.heads * s.dim * s.dim),
        copy(s.batch * s.heads * s.dim * s.dim) {
    for (float& x : decay.values()) x = -0.1f * x * x;  // of exponents, at most 0
    for (float& x : beta.values()) x = 0.5f + 0.4f * x;
  }
  Buffer q, k, v, out, decay, beta, state, copy;
};

Case rule_case(Index batch, Index length, bool quick = false) {
  const DeltaRuleShape s{batch, length, rule_heads, rule_dim};
  const double elements = static_cast<double>(batch * s.heads * s.dim * s.dim);
  const double flops = 8.0 * static_cast<double>(length) * elements;
  const bool step = length == 1;
  const auto prepare = [=] {
    const auto data = std::make_shared<RuleData>(s);
    const auto rows = [&](float* x) {
      return View<float, 4>(x, {s.batch, s.heads, s.length, s.dim},
                            {s.length * s.heads * s.dim, s.dim, s.heads * s.dim, 1});
    };
    const auto tokens = [&](const float* x) {
      return View<const float, 3>(x, {s.batch, s.heads, s.length}, {s.length * s.heads, 1, s.heads});
    };
    const View<float, 4> q = rows(data->q.data()), k = rows(data->k.data()), v = rows(data->v.data()),
                         out = rows(data->out.data());
    headlane::LinearAttentionOptions options;
    options.normalize = true;
    options.log_decay = tokens(data->decay.data());
    options.beta = tokens(data->beta.data());
    if (step) options.state = {data->state.data(), {s.batch, s.heads, s.dim, s.dim}};
    Work work{.library = [=] { headlane::linear_attention(q, k, v, out, options); },
              .naive =
                  [=](int threads) {
                    naive_delta_rule(data->q.data(), data->k.data(), data->v.data(), data->decay.data(),
                                     data->beta.data(), data->state.data(), data->out.data(), s, threads);
                  },
              .limit = fma_peak,
              .output = data->out.values()};
    if (step) {
      work.limit = [data](std::string_view, int threads) {
        return 2.0 * sizeof(float) * copied_elements(data->state, data->copy, threads);
      };
    }
    return work;
  };
  return {.op = step ? "delta_step" : "delta_rule",
          .size = (batch > 1 ? std::to_string(batch) + "x" : "") + std::to_string(length),
          .amount = step ? 2.0 * sizeof(float) * elements : flops,
          .flops = flops,
          .quick = quick,
          .prepare = prepare};
}

struct ConvolutionData {
  explicit ConvolutionData(Index rows) : x(rows * channels, 1), y(rows * channels), weight(channels * width, 2) {}
  Buffer x, y, weight;
};

Case convolution_case(Index rows, bool quick = false) {
  const double elements = static_cast<double>(rows * channels);
  const auto prepare = [=] {
    const auto data = std::make_shared<ConvolutionData>(rows);
    const View<const float, 3> x(data->x.data(), {1, rows, channels});
    const View<const float, 2> weight(data->weight.data(), {channels, width});
    const View<float, 3> y(data->y.data(), {1, rows, channels});
    return Work{
        .library = [=] { headlane::causal_convolution(x, weight, y, {.activation = headlane::Activation::silu}); },
        .naive = [=](int threads) { naive_convolution(x.data, weight.data, y.data, rows, channels, width, threads); },
        .limit = [data](std::string_view, int threads) { return copied_elements(data->x, data->y, threads); },
        .output = data->y.values()};
  };
  return {.op = "convolution",
          .size = std::to_string(rows) + "x" + std::to_string(channels),
          .amount = elements,
          .flops = 40 * elements,
          .quick = quick,
          .prepare = prepare};
}

}  // namespace

std::vector<Case> recurrent_cases() {
  return {rule_case(1, 64), rule_case(1, 512, true), rule_case(8, 512),          rule_case(1, 1, true),
          rule_case(32, 1), convolution_case(1),     convolution_case(512, true)};
}

}  // namespace bench
