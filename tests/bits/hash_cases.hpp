// The cases whose hashes are checked in (hashes.hpp).
#pragma once

#include "bits/sequence_hashes.hpp"
#include "core/dispatch.hpp"
#include "kernels/table.hpp"
#include "support/attention_options.hpp"
#include "support/hash.hpp"
#include "support/layer_case.hpp"
#include "support/norm_case.hpp"

#include <headlane/headlane.hpp>

#include <functional>
#include <string>
#include <vector>

namespace headlane::test {

using namespace internal;

struct HashCase {
  std::string name;
  std::function<std::uint64_t()> run;
};

inline std::uint64_t gemm_hash(Index m, Index n, Index k, const GemmOptions& options, const Layout& layout = {}) {
  Random random(7);
  const Tensor<2> a = random_tensor<2>({m, k}, random, layout), b = random_tensor<2>({k, n}, random, layout);
  const Tensor<2> c = random_tensor<2>({m, n}, random, layout);
  gemm(a.view, b.view, c.view, options);
  Hash hash;
  hash.add(c.view);
  return hash.value();
}

inline std::uint64_t stored_hash(Index m, Index n, Index k, DType type, DType activations = DType::float32) {
  Random random(7);
  const Tensor<2> a = random_tensor<2>({m, k}, random), b = random_tensor<2>({k, n}, random), c({m, n});
  gemm(a.view, PackedMatrix(b.view, {.type = type}), c.view, {.activations = activations});
  Hash hash;
  hash.add(c.view);
  return hash.value();
}

inline std::uint64_t softmax_hash(Index rows, Index n, const SoftmaxOptions& options, bool special = false) {
  Random random(8);
  const Tensor<2> x({rows, n}), y({rows, n});
  for_each(x.view, [&](float& e) { e = 5 * random.normal(); });
  if (special) {
    x.view(0, 0) = nan;
    x.view(1, 0) = infinity;
    x.view(2, n - 1) = -infinity;
  }
  softmax(x.view, y.view, options);
  Hash hash;
  hash.add(y.view);
  return hash.value();
}

// With a weight, for layer norm also a bias, and the sum with a residual.
inline std::uint64_t norm_hash(Index rows, Index n, bool centred) {
  const NormCase norm{.centred = centred, .weight = true, .bias = centred, .residual = true, .sum = true};
  const NormTensors<2> t(norm, {.shape = {rows, n}, .seed = 12, .mean = 3, .spread = 2});
  t.call().run();
  Hash hash;
  hash.add(t.y.view);
  hash.add(t.sum.view);
  return hash.value();
}

inline std::uint64_t attention_hash(const AttentionSizes& sizes, const AttentionOptions& options,
                                    const Layout& layout = {}) {
  const AttentionTensors t(sizes, 9, layout);
  t.run(options);
  Hash hash;
  hash.add(t.out.view);
  hash.add(t.lse.view);
  return hash.value();
}

// With a random mask and bias; `broadcast` as in score_shape.
inline std::uint64_t masked_hash(const AttentionSizes& sizes, AttentionOptions options, unsigned broadcast) {
  Random random(10);
  const Mask mask = random_mask(score_shape(sizes, broadcast), random, 4);
  const Tensor<4> bias = random_bias(score_shape(sizes, broadcast), random, 7);
  options.mask = stretched<const bool>(mask.view, score_shape(sizes));
  options.bias = stretched<const float>(bias.view, score_shape(sizes));
  return attention_hash(sizes, options);
}

// With random mask_bits and relative biases; `varlen`: two variable-length sequences, with one
// query and two keys in no sequence.
inline std::uint64_t relative_hash(const AttentionSizes& sizes, AttentionOptions options, bool varlen) {
  Random random(11);
  const Index keys = varlen ? sizes.kv_length - 12 : sizes.kv_length;
  const std::vector<Index> queries{0, 10, sizes.q_length - 1}, starts{2, 12, sizes.kv_length}, offsets{0, keys - 30};
  const MaskBits bits({1, sizes.q_heads, sizes.q_length, (keys + 7) / 8});
  for_each(bits.view, [&](std::uint8_t& byte) { byte = static_cast<std::uint8_t>(random.next() | random.next()); });
  const Tensor<2> table = random_table(sizes.q_heads, 32, random, 9);
  options.mask_bits = bits.view;
  options.relative_bias = {.table = table.view, .max_distance = 128, .bidirectional = !options.causal};
  if (varlen) {
    options.query_starts = {queries.data(), {3}};
    options.key_starts = {starts.data(), {3}};
    options.causal_offsets = {offsets.data(), {2}};
  }
  return attention_hash(sizes, options);
}

// Over a cache of two sequences, of kv_length and kv_length - 60 keys: nine queries each, then one.
inline std::uint64_t cache_hash(AttentionSizes sizes, DType type) {
  sizes.batch = 2;
  sizes.q_length = 9;
  const AttentionTensors t(sizes, 9);
  KvCache cache(sizes.kv_heads, sizes.head_dim, sizes.value_dim, {.page_size = 64, .type = type});
  const std::vector<Index> sequences{cache.add(), cache.add()}, lengths{sizes.kv_length, sizes.kv_length - 60};
  cache.append(sequences, t.k.view, t.v.view, {lengths.data(), {2}});
  Hash hash;
  for (const Index queries : {9, 1}) {
    attention(t.q.view.slice(2, 0, queries), cache, sequences, t.out.view.slice(2, 0, queries), causal(0));
    hash.add(t.out.view);
  }
  return hash.value();
}

// About 300,000 floats spread over all bit patterns.
inline std::uint64_t function_hash(void (*kernel)(const float* x, float* y, Index n) noexcept) {
  Hash hash;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 14281) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    float y = 0;
    kernel(&x, &y, 1);
    hash.add(y);
  }
  return hash.value();
}

/// A decoder layer on 11 positions and then on 5 more over caches; its feed-forward and encoder
/// parts alone.
inline std::uint64_t layer_hash(const LayerSizes& s) {
  const RandomState state = random_layer(s, 13, true);
  const DecoderLayer decoder(state.dict, "", s.options());
  Random random(14);
  const Tensor<3> x = random_tensor<3>({2, 16, s.d_model}, random),
                  memory = random_tensor<3>({2, 9, s.memory_width}, random);
  const Tensor<3> y({2, 16, s.d_model});
  KvCache cache(s.kv_heads, s.head_dim, s.head_dim), projected(s.kv_heads, s.head_dim, s.head_dim);
  const std::vector<Index> sequences{cache.add(), cache.add()}, others{projected.add(), projected.add()};
  decoder.multihead_attn().project_memory(memory.view, projected, others);
  for (const auto& [first, end] : {std::pair<Index, Index>{0, 11}, {11, 16}})
    decoder.forward(x.view.slice(1, first, end), cache, sequences, projected, others, y.view.slice(1, first, end));
  Hash hash;
  hash.add(y.view);
  EncoderLayer(state.dict, "", s.options()).forward(x.view, y.view);
  hash.add(y.view);
  FeedForward(state.dict, "", {s.layer.activation}).forward(x.view, y.view);
  hash.add(y.view);
  return hash.value();
}

inline std::vector<HashCase> gemm_and_softmax_cases() {
  const Layout transposed{"transposed", Order::columns};
  return {
      {"gemm 1 1 1", [] { return gemm_hash(1, 1, 1, {}); }},
      {"gemm 1 512 512", [] { return gemm_hash(1, 512, 512, {}); }},
      {"gemm 13 35 17", [] { return gemm_hash(13, 35, 17, {.alpha = 0.7f, .beta = 1.3f}); }},
      {"gemm 64 64 64", [] { return gemm_hash(64, 64, 64, {}); }},
      {"gemm 50 70 513", [] { return gemm_hash(50, 70, 513, {.alpha = 1.3f, .beta = -1.0f}); }},
      {"gemm 33 129 1100", [] { return gemm_hash(33, 129, 1100, {}); }},
      {"gemm 33 129 1100 transposed", [=] { return gemm_hash(33, 129, 1100, {}, transposed); }},
      {"gemm bfloat16 33 129 1100", [] { return stored_hash(33, 129, 1100, DType::bfloat16); }},
      {"gemm float16 5 129 515", [] { return stored_hash(5, 129, 515, DType::float16); }},
      {"gemm int8 5 129 515", [] { return stored_hash(5, 129, 515, DType::int8); }},
      {"gemm int8 33 129 1102", [] { return stored_hash(33, 129, 1102, DType::int8); }},
      {"gemm int8_group32 5 129 515", [] { return stored_hash(5, 129, 515, DType::int8_group32); }},
      {"gemm int8_group32 33 129 1102", [] { return stored_hash(33, 129, 1102, DType::int8_group32); }},
      {"gemm int4_group32 5 129 515", [] { return stored_hash(5, 129, 515, DType::int4_group32); }},
      {"gemm int4_group32 33 129 1102", [] { return stored_hash(33, 129, 1102, DType::int4_group32); }},
      {"gemm int8 x int8 5 129 515", [] { return stored_hash(5, 129, 515, DType::int8, DType::int8); }},
      {"gemm int8 x int8 33 129 1102", [] { return stored_hash(33, 129, 1102, DType::int8, DType::int8); }},
      {"gemm int8_group32 x int8 5 129 515", [] { return stored_hash(5, 129, 515, DType::int8_group32, DType::int8); }},
      {"gemm int4_group32 x int8 33 129 1102",
       [] { return stored_hash(33, 129, 1102, DType::int4_group32, DType::int8); }},
      {"gemm 19 21 0", [] { return gemm_hash(19, 21, 0, {.alpha = 1.0f, .beta = 0.7f}); }},
      {"softmax 5 1", [] { return softmax_hash(5, 1, {}); }},
      {"softmax 7 37", [] { return softmax_hash(7, 37, {}); }},
      {"softmax 7 37 scale", [] { return softmax_hash(7, 37, {.scale = -0.3f}); }},
      {"softmax 4 512", [] { return softmax_hash(4, 512, {}); }},
      {"softmax 3 5000", [] { return softmax_hash(3, 5000, {.scale = 0.125f}); }},
      {"softmax 5 100 special", [] { return softmax_hash(5, 100, {}, true); }},
      {"log_softmax 7 37", [] { return softmax_hash(7, 37, {.log = true}); }},
      {"log_softmax 3 5000", [] { return softmax_hash(3, 5000, {.scale = 0.7f, .log = true}); }},
      {"log_softmax 5 100 special", [] { return softmax_hash(5, 100, {.log = true}, true); }},
  };
}

inline std::vector<HashCase> attention_cases() {
  const AttentionSizes eight_heads{.q_heads = 8, .q_length = 64, .kv_length = 64};
  const AttentionSizes batch{.batch = 2, .q_heads = 4, .q_length = 20, .kv_length = 33, .head_dim = 24};
  const AttentionSizes grouped{
      .batch = 2, .q_heads = 6, .kv_heads = 2, .q_length = 17, .kv_length = 50, .head_dim = 16, .value_dim = 40};
  const Layout heads{"BSHD", Order::middle};
  return {
      {"attention 8 heads of 64", [=] { return attention_hash(eight_heads, {}); }},
      {"attention 8 heads of 64 causal", [=] { return attention_hash(eight_heads, causal(0)); }},
      {"attention BSHD", [=] { return attention_hash(batch, {}, heads); }},
      {"attention grouped", [=] { return attention_hash(grouped, causal(20)); }},
      {"attention softcap", [=] { return attention_hash(grouped, {.softcap = 1.5f}); }},
      {"attention decode", [] { return attention_hash({.q_heads = 2, .kv_length = 1500}, {}); }},
      {"attention blocks",
       [] { return attention_hash({.q_length = 30, .kv_length = 1100, .head_dim = 32}, causal(1050)); }},
      {"attention negative offset",
       [] { return attention_hash({.q_length = 30, .kv_length = 40, .head_dim = 32}, causal(-10)); }},
      {"attention head_dim 1", [] { return attention_hash({.q_length = 9, .kv_length = 21, .head_dim = 1}, {}); }},
      {"attention head_dim 256",
       [] { return attention_hash({.q_length = 9, .kv_length = 21, .head_dim = 256}, scaled(0.1f)); }},
      {"attention scale -2",
       [] { return attention_hash({.q_length = 9, .kv_length = 600, .head_dim = 20}, scaled(-2)); }},
  };
}

inline std::vector<HashCase> attention_option_cases() {
  const AttentionSizes batch{
      .batch = 2, .q_heads = 4, .kv_heads = 2, .q_length = 30, .kv_length = 70, .head_dim = 24, .value_dim = 40};
  const AttentionSizes blocks{.q_heads = 2, .q_length = 30, .kv_length = 600, .head_dim = 24, .value_dim = 40};
  AttentionSizes grouped = blocks, sequences = blocks;
  grouped.q_heads = sequences.q_heads = 4;
  sequences.q_length = 60;
  sequences.kv_length = 700;
  return {
      {"attention mask and bias", [=] { return masked_hash(batch, {}, 0); }},
      {"attention mask and bias causal", [=] { return masked_hash(blocks, causal(571), 4); }},
      {"attention relative bias", [=] { return relative_hash(grouped, {}, false); }},
      {"attention variable-length", [=] { return relative_hash(sequences, causal(0), true); }},
      {"attention over a cache", [=] { return cache_hash(grouped, DType::float32); }},
      {"attention over a cache bfloat16", [=] { return cache_hash(grouped, DType::bfloat16); }},
      {"attention over a cache float16", [=] { return cache_hash(grouped, DType::float16); }},
      {"attention over a cache int8", [=] { return cache_hash(grouped, DType::int8); }},
  };
}

inline std::vector<HashCase> other_cases() {
  return {
      {"layer_norm 5 700", [] { return norm_hash(5, 700, true); }},
      {"rms_norm 5 700", [] { return norm_hash(5, 700, false); }},
      {"sinusoidal 300 64", [] { return sinusoidal_hash(300, 64, {}); }},
      {"sinusoidal 30 512", [] { return sinusoidal_hash(30, 512, {.offset = 1000000}); }},
      {"sinusoidal 41 37 doubled",
       [] { return sinusoidal_hash(41, 37, {.exponent = SinusoidalExponent::doubled, .interleaved = false}); }},
      {"rotary 2 3 50 64", [] { return rotary_hash({2, 3, 50, 64}, {.offset = 77}); }},
      {"rotary 1 2 30 100 interleaved",
       [] { return rotary_hash({1, 2, 30, 100}, {.base = 500000, .rotary_dim = 62, .interleaved = true}); }},
      {"alibi slopes", [] { return slopes_hash(); }},
      {"linear_attention 2 2 4 70 33 40", [] { return linear_hash({.beta = true, .state = true}); }},
      {"linear_attention token decay", [] { return linear_hash({.decay = Decay::token, .scale = 0.3f}); }},
      {"linear_attention row decay normalize",
       [] { return linear_hash({.decay = Decay::row, .beta = true, .state = true, .normalize = true}); }},
      {"linear_attention token gate",
       [] {
         return linear_hash(with_gates({.decay = Decay::token, .beta = true, .state = true, .normalize = true}, 14));
       }},
      {"linear_attention row gate",
       [] { return linear_hash(with_gates({.decay = Decay::row, .beta = true, .state = true}, 15)); }},
      {"linear_attention mamba",
       [] { return linear_hash(with_steps(with_gates({.decay = Decay::token, .state = true, .scale = 1.0f}, 2), 3)); }},
      {"linear_attention discretize beta",
       [] { return linear_hash(with_steps(with_gates({.decay = Decay::token, .beta = true, .state = true}, 13), 1)); }},
      {"linear_attention skip", [] { return linear_hash({.beta = true, .skip = true}); }},
      {"causal_convolution 2 70 300 4", [] { return convolution_hash(4, Activation::none); }},
      {"causal_convolution 2 70 300 7 silu", [] { return convolution_hash(7, Activation::silu); }},
      {"layers", [] { return layer_hash({}); }},
      {"layers pre-norm grouped", [] { return layer_hash(layer_sizes()[1]); }},
      {"layers rms gated", [] { return layer_hash(layer_sizes()[2]); }},
      {"exp", [] { return function_hash(active().exp); }},
      {"log", [] { return function_hash(active().log); }},
  };
}

/// All cases, in the order of the table.
inline std::vector<HashCase> hash_cases() {
  std::vector<HashCase> all = gemm_and_softmax_cases();
  for (const auto& more : {attention_cases(), attention_option_cases(), other_cases()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace headlane::test
