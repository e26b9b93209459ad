// The part of EveryCall (every_call.hpp) that has tensors of bfloat16 and float16.
#pragma once

#include "support/every_call.hpp"

namespace headlane::test {

template <class T, int Rank, class F>
void EveryCall::add_half(const std::string& name, const View<float, Rank>& x, const View<float, Rank>& y, const F& f) {
  const auto from = std::make_shared<HalfTensor<T, Rank>>(x.shape), to = std::make_shared<HalfTensor<T, Rank>>(y.shape);
  add(
      name,
      [=](int threads) {
        convert(x, from->view, {.num_threads = threads});
        f(from->view, to->view, threads);
        convert(to->view, y, {.num_threads = threads});
      },
      y);
}

template <class T>
void EveryCall::add_halves(const std::string& type) {
  const auto x = input<2>({8 * size_, 300}), bias = input<2>({8 * size_, 300});
  const auto add_rows = [&](const std::string& name, const auto& f) {
    add_half<T>(name + ", " + type, x, output<2>({8 * size_, 300}), f);
  };
  add_rows("activate",
           [](auto from, auto to, int threads) { activate(from, to, Activation::gelu, {.num_threads = threads}); });
  add_rows("softmax", [](auto from, auto to, int threads) {
    softmax(from, to, {.axis = 0, .causal = false, .num_threads = threads});
  });
  add_rows("layer_norm",
           [=](auto from, auto to, int threads) { layer_norm(from, to, {.residual = bias, .num_threads = threads}); });
  add_rows("rms_norm", [](auto from, auto to, int threads) { rms_norm(from, to, {.num_threads = threads}); });
  add_rows("sinusoidal_encoding",
           [](auto, auto to, int threads) { sinusoidal_encoding(to, {.offset = 3, .num_threads = threads}); });
  add_rows("add_sinusoidal_encoding",
           [](auto from, auto to, int threads) { add_sinusoidal_encoding(from, to, {.num_threads = threads}); });
  const auto heads = input<4>({2, 3, 4 * size_, 64});
  add_half<T>("rotary_embedding, " + type, heads, output<4>(heads.shape), [](auto from, auto to, int threads) {
    rotary_embedding(from, to, {.offset = 5, .num_threads = threads});
  });
}

}  // namespace headlane::test
