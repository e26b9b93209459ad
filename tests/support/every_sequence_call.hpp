// The part of EveryCall (every_call.hpp) that has positions and states of a sequence.
#pragma once

#include "support/every_call.hpp"

namespace headlane::test {

inline void EveryCall::add_positions() {
  const auto x = input<4>({2, 3, 4 * size_, 64}), added = output<4>({2, 3, 4 * size_, 64}),
             turned = output<4>({2, 3, 4 * size_, 64});
  const auto table = output<2>({4 * size_, 96});
  add(
      "sinusoidal_encoding", [=](int threads) { sinusoidal_encoding(table, {.offset = 3, .num_threads = threads}); },
      table);
  add(
      "add_sinusoidal_encoding", [=](int threads) { add_sinusoidal_encoding(x, added, {.num_threads = threads}); },
      added);
  add(
      "rotary_embedding", [=](int threads) { rotary_embedding(x, turned, {.offset = 5, .num_threads = threads}); },
      turned);
  const auto slopes = output<1>({12});
  add("alibi_slopes", [=](int) { alibi_slopes(slopes); }, slopes);
  const auto buckets = output<1>({400});
  add(
      "t5_bucket",
      [=](int) {  // the thresholds are worked out anew each time
        for (Index i = 0; i < 400; ++i) buckets(i) = static_cast<float>(t5_bucket(i - 200, 32, 128 + i % 2));
      },
      buckets);
}

// States are 0 before each call.
inline void EveryCall::add_recurrent() {
  const auto q = input<4>({2, 2, size_, 48}), k = input<4>({2, 2, size_, 48}), v = input<4>({2, 4, size_, 40});
  const auto log_decay = input<4>({2, 4, size_, 48});
  const auto beta = input<3>({2, 4, size_});
  const auto out = [&] { return output<4>({2, 4, size_, 40}); };
  const auto plain = out(), delta = out(), decoded = out(), state = output<4>({2, 4, 48, 40});
  add("linear_attention", [=](int threads) { linear_attention(q, k, v, plain, {.num_threads = threads}); }, plain);
  add(
      "linear_attention, the delta rule",
      [=](int threads) {
        for_each(state, [](float& x) { x = 0; });
        linear_attention(
            q, k, v, delta,
            {.normalize = true, .log_decay = log_decay, .beta = beta, .state = state, .num_threads = threads});
      },
      delta, state);
  const auto gated = out(), last = output<4>({2, 4, 48, 40});
  const auto a_log = input<1>({4});
  const auto dt_bias = input<2>({4, 48});
  add(
      "linear_attention, gates",
      [=](int threads) {
        for_each(last, [](float& x) { x = 0; });
        linear_attention(q, k, v, gated,
                         {.normalize = true,
                          .log_decay = log_decay,
                          .beta = beta,
                          .a_log = a_log,
                          .dt_bias = dt_bias,
                          .sigmoid_beta = true,
                          .beta_scale = 1.75f,
                          .state = last,
                          .num_threads = threads});
      },
      gated, last);
  const auto stepped = out(), states = output<4>({2, 4, 48, 40});
  const auto skip = input<1>({4});
  const View<const float, 3> gates(log_decay.data, {2, 4, size_});
  LinearAttentionOptions mamba{.log_decay = gates, .a_log = a_log, .discretize = true, .skip = skip, .state = states};
  add(
      "linear_attention, discretize and skip",
      [=](int threads) mutable {
        for_each(states, [](float& x) { x = 0; });
        mamba.num_threads = threads;
        linear_attention(q, k, v, stepped, mamba);
      },
      stepped, states);
  const auto kept = output<4>({2, 4, 48, 40});
  add(
      "linear_attention, token by token",
      [=, tokens = size_](int threads) {
        for_each(kept, [](float& x) { x = 0; });
        for (Index t = 0; t < tokens; ++t) {
          const auto at = [t](const auto& view) { return view.slice(2, t, t + 1); };
          linear_attention(at(q), at(k), at(v), at(decoded), {.state = kept, .num_threads = threads});
        }
      },
      decoded, kept);
}

inline void EveryCall::add_convolution() {
  const auto x = input<3>({2, size_, 700}), y = output<3>({2, size_, 700}), before = output<3>({2, 700, 3});
  const auto weight = input<2>({700, 4});
  const auto bias = input<1>({700});
  add(
      "causal_convolution",
      [=](int threads) {
        for_each(before, [](float& e) { e = 0; });
        causal_convolution(x, weight, y,
                           {.bias = bias, .activation = Activation::gelu, .state = before, .num_threads = threads});
      },
      y, before);
}

}  // namespace headlane::test
