// Layers with random weights of any sizes, all behind one interface, for tests that check the same
// property of each.
#pragma once

#include "support/data.hpp"

#include <headlane/dtype.hpp>
#include <headlane/layers.hpp>

#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace headlane::test {

/// A state dict that owns its tensors, each in another layout.
class RandomState {
 public:
  explicit RandomState(std::uint64_t seed, float gain = 1) : random_(seed), gain_(gain) {}
  RandomState(RandomState&&) = default;

  /// Its product with a row has about `gain` times the magnitude of the row.
  void matrix(const std::string& name, Index rows, Index columns) {
    matrices_.emplace_back(std::array<Index, 2>{rows, columns}, random_.pick(layouts()));
    const float scale = columns == 0 ? 0 : gain_ / std::sqrt(static_cast<float>(columns));
    for_each(matrices_.back().view, [&](float& w) { w = scale * random_.normal(); });
    dict[name] = View<const float, 2>(matrices_.back().view);
  }
  void vector(const std::string& name, Index size, float mean = 0) {
    vectors_.emplace_back(std::array<Index, 1>{size}, random_.pick(layouts()));
    for_each(vectors_.back().view, [&](float& w) { w = mean + 0.3f * random_.normal(); });
    dict[name] = View<const float, 1>(vectors_.back().view);
  }

  StateDict dict;

 private:
  Random random_;
  float gain_;
  std::deque<Tensor<2>> matrices_;
  std::deque<Tensor<1>> vectors_;
};

struct LayerSizes {
  Index d_model = 24, heads = 3, kv_heads = 3, head_dim = 8, memory_width = 24, d_ff = 40;
  bool bias = true, gated = false;
  TransformerLayerOptions layer = {};

  [[nodiscard]] MultiHeadAttentionOptions attention() const { return {.heads = heads, .kv_heads = kv_heads}; }
  [[nodiscard]] TransformerLayerOptions options() const {
    TransformerLayerOptions all = layer;
    all.attention = attention();
    return all;
  }
};

inline std::string text_of(const LayerSizes& s) {
  return "d_model " + std::to_string(s.d_model) + ", heads " + std::to_string(s.heads) + "/" +
         std::to_string(s.kv_heads) + " of " + std::to_string(s.head_dim) + ", memory " +
         std::to_string(s.memory_width) + ", d_ff " + std::to_string(s.d_ff) + (s.bias ? ", biases" : "") +
         (s.gated ? ", gated" : "") + (s.layer.norm_first ? ", norm first" : "") +
         (s.layer.norm == NormKind::rms ? ", rms" : "") + ", activation " +
         std::to_string(static_cast<int>(s.layer.activation));
}

/// As in PyTorch: one matrix if memory is as wide as x, otherwise three.
inline void add_attention(RandomState& state, const std::string& prefix, const LayerSizes& s, bool cross) {
  const Index q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim, memory = cross ? s.memory_width : s.d_model;
  if (memory == s.d_model) {
    state.matrix(prefix + "in_proj_weight", q + 2 * kv, s.d_model);
  } else {
    state.matrix(prefix + "q_proj_weight", q, s.d_model);
    state.matrix(prefix + "k_proj_weight", kv, memory);
    state.matrix(prefix + "v_proj_weight", kv, memory);
  }
  state.matrix(prefix + "out_proj.weight", s.d_model, q);
  if (!s.bias) return;
  state.vector(prefix + "in_proj_bias", q + 2 * kv);
  state.vector(prefix + "out_proj.bias", s.d_model);
}

inline void add_feed_forward(RandomState& state, const std::string& prefix, const LayerSizes& s) {
  const auto linear = [&](const std::string& name, Index out, Index in) {
    state.matrix(prefix + name + ".weight", out, in);
    if (s.bias) state.vector(prefix + name + ".bias", out);
  };
  linear("linear1", s.d_ff, s.d_model);
  if (s.gated) linear("linear_gate", s.d_ff, s.d_model);
  linear("linear2", s.d_model, s.d_ff);
}

/// An encoder layer, or a decoder layer.
inline RandomState random_layer(const LayerSizes& s, std::uint64_t seed, bool decoder, const std::string& prefix = "",
                                float gain = 1) {
  RandomState state(seed, gain);
  add_attention(state, prefix + "self_attn.", s, false);
  if (decoder) add_attention(state, prefix + "multihead_attn.", s, true);
  add_feed_forward(state, prefix, s);
  for (const char* norm : {"norm1", "norm2", "norm3"}) {
    if (std::string_view(norm) == "norm3" && !decoder) continue;
    state.vector(prefix + norm + ".weight", s.d_model, 1);
    if (s.layer.norm == NormKind::layer && s.bias) state.vector(prefix + norm + ".bias", s.d_model);
  }
  return state;
}

/// Any layer. Layers without attention use only num_threads of the options; layers without
/// cross-attention ignore the memory.
struct AnyLayer {
  template <class T>
  using Forward = std::function<void(const View<const T, 3>& x, const View<const T, 3>& memory, const View<T, 3>& y,
                                     const AttentionOptions& options)>;
  std::string name;
  Index in = 0, out = 0;
  bool in_place = true;  ///< y may be x
  bool self = false;     ///< rows of a batch element attend to each other
  bool cross = false;    ///< they attend to the memory
  Forward<float> forward = nullptr;
  Forward<bfloat16> forward_bfloat16 = nullptr;
  Forward<float16> forward_float16 = nullptr;

  /// forward() of tensors of this type.
  template <class T>
  [[nodiscard]] const Forward<T>& of() const {
    if constexpr (std::is_same_v<T, bfloat16>) return forward_bfloat16;
    else if constexpr (std::is_same_v<T, float16>) return forward_float16;
    else return forward;
  }
};

/// Every layer, with these sizes.
inline std::vector<AnyLayer> all_layers(const LayerSizes& s, std::uint64_t seed) {
  using Options = const AttentionOptions&;
  std::vector<AnyLayer> all;
  const auto add = [&](AnyLayer layer, const auto& forward) {
    layer.forward = forward;
    layer.forward_bfloat16 = forward;
    layer.forward_float16 = forward;
    all.push_back(std::move(layer));
  };
  const auto state = std::make_shared<RandomState>(random_layer(s, seed, true));
  const StateDict& dict = state->dict;
  const auto linear = std::make_shared<Linear>(dict, "linear1.");
  add({.name = "Linear", .in = s.d_model, .out = s.d_ff, .in_place = false},
      [=](const auto& x, const auto&, const auto& y, Options o) {
        linear->forward(x, y, {.activation = s.layer.activation, .num_threads = o.num_threads});
      });
  const auto norm = std::make_shared<Normalization>(dict, "norm1.", s.layer.norm, 1e-5f);
  add({.name = "Normalization", .in = s.d_model, .out = s.d_model},
      [=](const auto& x, const auto&, const auto& y, Options o) { norm->forward(x, y, o.num_threads); });
  const auto embedding = std::make_shared<Embedding>(dict, "linear1.", EmbeddingOptions{.tied = true});
  add({.name = "Embedding::logits", .in = s.d_model, .out = s.d_ff, .in_place = false},
      [=](const auto& x, const auto&, const auto& y, Options o) { embedding->logits(x, y, o.num_threads); });
  const auto feed_forward =
      std::make_shared<FeedForward>(dict, "", FeedForwardOptions{.activation = s.layer.activation});
  add({.name = "FeedForward", .in = s.d_model, .out = s.d_model},
      [=](const auto& x, const auto&, const auto& y, Options o) { feed_forward->forward(x, y, o.num_threads); });
  const auto self = std::make_shared<MultiHeadAttention>(dict, "self_attn.", s.attention());
  add({.name = "MultiHeadAttention, self", .in = s.d_model, .out = s.d_model, .self = true},
      [=](const auto& x, const auto&, const auto& y, Options o) { self->forward(x, y, o); });
  const auto cross = std::make_shared<MultiHeadAttention>(dict, "multihead_attn.", s.attention());
  add({.name = "MultiHeadAttention, cross", .in = s.d_model, .out = s.d_model, .cross = true},
      [=](const auto& x, const auto& memory, const auto& y, Options o) { cross->forward(x, memory, y, o); });
  const auto encoder = std::make_shared<EncoderLayer>(dict, "", s.options());
  add({.name = "EncoderLayer", .in = s.d_model, .out = s.d_model, .self = true},
      [=](const auto& x, const auto&, const auto& y, Options o) { encoder->forward(x, y, o); });
  const auto decoder = std::make_shared<DecoderLayer>(dict, "", s.options());
  add({.name = "DecoderLayer", .in = s.d_model, .out = s.d_model, .self = true, .cross = true},
      [=](const auto& x, const auto& memory, const auto& y, Options o) {
        decoder->forward(x, memory, y, o, {.num_threads = o.num_threads});
      });
  return all;
}

/// A variety of sizes and options.
inline std::vector<LayerSizes> layer_sizes() {
  return {{},
          {.d_model = 32,
           .heads = 4,
           .kv_heads = 2,
           .head_dim = 32,
           .memory_width = 32,
           .d_ff = 64,
           .layer = {.norm_first = true}},
          {.d_model = 17,
           .heads = 2,
           .kv_heads = 1,
           .head_dim = 5,
           .memory_width = 35,
           .d_ff = 33,
           .gated = true,
           .layer = {.activation = Activation::silu, .norm = NormKind::rms, .norm_first = true}},
          {.d_model = 40,
           .heads = 5,
           .kv_heads = 5,
           .head_dim = 13,
           .memory_width = 9,
           .d_ff = 130,
           .bias = false,
           .layer = {.activation = Activation::gelu, .norm = NormKind::rms}},
          {.d_model = 1,
           .heads = 1,
           .kv_heads = 1,
           .head_dim = 1,
           .memory_width = 1,
           .d_ff = 1,
           .layer = {.activation = Activation::tanh, .norm_first = true}}};
}

}  // namespace headlane::test
