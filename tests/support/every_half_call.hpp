// The part of EveryCall (every_call.hpp) that has tensors of bfloat16 and float16.
#pragma once

#include "support/every_call.hpp"

namespace headlane::test {

template <class T, int Rank, class F>
void EveryCall::add_half(const std::string& name, const View<float, Rank>& x, const View<float, Rank>& y, const F& f) {
  const auto from = std::make_shared<HalfTensor<T, Rank>>(x), to = std::make_shared<HalfTensor<T, Rank>>(y.shape);
  add(
      name,
      [=](int threads) {
        f(from->view, to->view, threads);
        convert(to->view, y, {.num_threads = threads});
      },
      y);
}

template <class T>
void EveryCall::add_half_rows(const std::string& type) {
  const auto x = input<2>({8 * size_, 300}), bias = input<2>({8 * size_, 300});
  const auto add_rows = [&](const std::string& name, const auto& f) {
    add_half<T>(name + ", " + type, x, output<2>({8 * size_, 300}), f);
  };
  add_rows("convert", [=](auto, auto to, int threads) { convert(x, to, {.num_threads = threads}); });
  add_rows("activate",
           [](auto from, auto to, int threads) { activate(from, to, Activation::gelu, {.num_threads = threads}); });
  const auto half_bias = std::make_shared<HalfTensor<T, 2>>(input<2>({1, 300}));
  add_rows("softmax", [=, rows = 8 * size_](auto from, auto to, int threads) {
    softmax(from, to, {.axis = 0, .bias = half_bias->view.select(0, 0).broadcast(0, rows), .num_threads = threads});
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

template <class T>
void EveryCall::add_half_products(const std::string& type) {
  const auto a = input<2>({size_, 70}), b = input<2>({70, 90});
  const auto right = std::make_shared<HalfTensor<T, 2>>(b),
             residual = std::make_shared<HalfTensor<T, 2>>(input<2>({size_, 90}));
  add_half<T>("gemm, " + type, a, output<2>({size_, 90}), [=](auto from, auto to, int threads) {
    gemm(from, right->view, to, {.alpha = 0.7f, .residual = residual->view, .num_threads = threads});
  });
  add_half<T>("gemm_gated, " + type, a, output<2>({size_, 90}), [=](auto from, auto to, int threads) {
    gemm_gated(from, right->view, right->view, to, {.num_threads = threads});
  });
  add_half<T>("gemm_batch, list, " + type, a, output<2>({size_, 90}), [=](auto from, auto to, int threads) {
    const GemmProblemOf<T> problem{.a = from, .b = right->view, .c = to, .options = {.residual = residual->view}};
    gemm_batch(std::span(&problem, 1), threads);
  });
}

template <class T>
void EveryCall::add_half_attention(const std::string& type) {
  const auto q = input<4>({2, 4, size_, 48}), k = input<4>({2, 2, size_ + 520, 48}),
             v = input<4>({2, 2, size_ + 520, 40});
  const auto keys = std::make_shared<HalfTensor<T, 4>>(k), values = std::make_shared<HalfTensor<T, 4>>(v);
  const auto bias = std::make_shared<HalfTensor<T, 4>>(input<4>({1, 4, 1, size_ + 520}));
  const FloatingView<4> biases(bias->view.data, {2, 4, size_, size_ + 520}, {0, size_ + 520, 0, 1});
  add_half<T>("attention, " + type, q, output<4>({2, 4, size_, 40}), [=](auto from, auto to, int threads) {
    const std::shared_ptr<HalfTensor<T, 4>> owner = bias;
    attention(from, keys->view, values->view, to,
              {.causal = true, .causal_offset = 520, .bias = biases, .num_threads = threads});
  });
  add_half<T>(
      "attention_weights, " + type, q, output<4>({2, 4, size_, size_ + 520}),
      [=](auto from, auto to, int threads) { attention_weights(from, keys->view, to, {.num_threads = threads}); });
  const auto lse = input<3>({2, 4, size_});
  add_half<T>("merge, " + type, input<4>({2, 4, size_, 40}), output<4>({2, 4, size_, 40}),
              [=](auto from, auto to, int threads) {
                const AttentionPartOf<T> part{from, lse};
                merge(std::array{part, part}, to, {.num_threads = threads});
              });
  KvCache& cache = caches_.emplace_back(2, 48, 40, KvCacheOptions{.type = DType::bfloat16});
  const std::array<Index, 2> sequences{cache.add(), cache.add()};
  add_half<T>("attention over a cache, " + type, q, output<4>({2, 4, size_, 40}),
              [=, &cache](auto from, auto to, int threads) {
                if (cache.length(sequences[0]) == 0) cache.append(sequences, k, v);
                attention(from, cache, sequences, to, {.num_threads = threads});
              });
  const auto rows = input<3>({1, size_, 96});
  add_half<T>("multi_head_attention, " + type, rows, output<3>(rows.shape), [](auto from, auto to, int threads) {
    multi_head_attention(from, from, from, to, 3, {.num_threads = threads});
  });
}

// States are float32, and 0 before each call.
template <class T>
void EveryCall::add_half_recurrent(const std::string& type) {
  const auto q = std::make_shared<HalfTensor<T, 4>>(input<4>({2, 2, size_, 48})),
             k = std::make_shared<HalfTensor<T, 4>>(input<4>({2, 2, size_, 48}));
  const auto log_decay = input<3>({2, 4, size_});
  const auto a_log = input<1>({4}), skip = input<1>({4});
  const auto state = output<4>({2, 4, 48, 40});
  add_half<T>("linear_attention, " + type, input<4>({2, 4, size_, 40}), output<4>({2, 4, size_, 40}),
              [=](auto from, auto to, int threads) {
                for_each(state, [](float& x) { x = 0; });
                linear_attention(q->view, k->view, from, to,
                                 {.log_decay = log_decay,
                                  .a_log = a_log,
                                  .discretize = true,
                                  .skip = skip,
                                  .state = state,
                                  .num_threads = threads});
              });
  const auto weight = input<2>({700, 4});
  add_half<T>("causal_convolution, " + type, input<3>({2, size_, 700}), output<3>({2, size_, 700}),
              [=](auto from, auto to, int threads) {
                causal_convolution(from, weight, to, {.activation = Activation::silu, .num_threads = threads});
              });
}

template <class T>
void EveryCall::add_halves(const std::string& type, Calls calls) {
  add_half_rows<T>(type);
  add_half_products<T>(type);
  add_half_attention<T>(type);
  add_half_recurrent<T>(type);
  if (calls == Calls::of_functions) return;
  const PackedMatrix& packed = packed_.emplace_back(input<2>({70, 90}));
  add_half<T>("gemm_batch, packed, " + type, input<2>({size_, 70}), output<2>({size_, 90}),
              [&packed](auto from, auto to, int threads) {
                gemm_batch(from.broadcast(0, 1), packed, to.broadcast(0, 1), {.num_threads = threads});
              });
  const LayerSizes sizes{.d_model = 64, .heads = 4, .kv_heads = 2, .head_dim = 16, .memory_width = 64, .d_ff = 130};
  for (const AnyLayer& layer : all_layers(sizes, 3)) {
    const auto memory = std::make_shared<HalfTensor<T, 3>>(input<3>({2, size_ + 9, sizes.memory_width}));
    add_half<T>(layer.name + ", " + type, input<3>({2, size_, layer.in}), output<3>({2, size_, layer.out}),
                [=, forward = layer.of<T>()](auto from, auto to, int threads) {
                  forward(from, memory->view, to, {.num_threads = threads});
                });
  }
}

}  // namespace headlane::test
