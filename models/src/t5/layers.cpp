#include "t5/layers.hpp"

#include "io/quantized_weight.hpp"

#include <cstddef>
#include <span>

namespace headlane::models::internal {

void T5Layers::add_norm(Parts& parts, const std::string& to, const std::string& name) const {
  parts.loaded.push_back(checkpoint_.load(name, {config_.d_model}));
  const AnyView<const float>& view = parts.loaded.back().view();
  whole_.add_all(std::span(view.data, static_cast<std::size_t>(config_.d_model)));
  parts.state.emplace(to, view);
}

void T5Layers::add_weight(Parts& parts, const std::string& to, const std::string& layer, Index out, Index in) const {
  if (!checkpoint_.is_quantized(layer + ".")) {
    const Shares shares(options_.team, out, columns_of_share);
    parts.loaded.push_back(checkpoint_.load_rows(layer + ".weight", {out, in}, shares.begin(), shares.end()));
    parts.state.emplace(to, parts.loaded.back().view());
    parts.state.shares.emplace(to, out);
    return;
  }
  parts.packed.push_back(quantized_weight(checkpoint_, layer + ".", out, in));
  parts.state.packed.emplace(to, &parts.packed.back());
}

// The joined weight is a temporary of one layer, which packs it.
void T5Layers::add_attention(Parts& parts, const std::string& to, const std::string& from) const {
  const Index d = config_.d_model, inner = config_.num_heads * config_.d_kv;
  if (checkpoint_.is_quantized(from + ".q.")) {
    for (const char* which : {"q", "k", "v"})
      add_weight(parts, to + "." + which + "_proj_weight", from + "." + which, inner, d);
  } else {
    const Shares heads(options_.team, config_.num_heads, 1);
    const Index first = heads.begin() * config_.d_kv, end = heads.end() * config_.d_kv, n = (end - first) * d;
    std::vector<float>& joined = parts.joined.emplace_back();
    joined.reserve(static_cast<std::size_t>(3 * n) + 1);  // so that it has memory
    for (const char* which : {".q.weight", ".k.weight", ".v.weight"}) {
      const Tensor tensor = checkpoint_.load_rows(from + which, {inner, d}, first, end);
      joined.insert(joined.end(), tensor.view().data, tensor.view().data + n);
    }
    parts.state.emplace(to + ".in_proj_weight", View<const float, 2>(joined.data(), {3 * (end - first), d}));
    parts.state.shares.emplace(to + ".in_proj_weight", 3 * inner);
  }
  add_weight(parts, to + ".out_proj.weight", from + ".o", d, inner);
}

void T5Layers::add_feed_forward(Parts& parts, const std::string& from) const {
  const std::string dense = from + ".DenseReluDense";
  if (config_.gated) add_weight(parts, "linear_gate.weight", dense + ".wi_0", config_.d_ff, config_.d_model);
  add_weight(parts, "linear1.weight", dense + (config_.gated ? ".wi_1" : ".wi"), config_.d_ff, config_.d_model);
  add_weight(parts, "linear2.weight", dense + ".wo", config_.d_model, config_.d_ff);
}

TransformerLayerOptions T5Layers::options() const {
  return {.attention = {.heads = config_.num_heads, .scale = 1.0f},
          .activation = config_.activation,
          .norm = NormKind::rms,
          .norm_first = true,
          .eps = config_.layer_norm_epsilon,
          .weights = options_.weights,
          .activations = options_.activations,
          .team = options_.team};
}

EncoderLayer T5Layers::encoder(Index i) const {
  const std::string block = "encoder.block." + std::to_string(i) + ".layer.";
  Parts parts;
  add_norm(parts, "norm1.weight", block + "0.layer_norm.weight");
  add_attention(parts, "self_attn", block + "0.SelfAttention");
  add_norm(parts, "norm2.weight", block + "1.layer_norm.weight");
  add_feed_forward(parts, block + "1");
  return {parts.state, "", options()};
}

DecoderLayer T5Layers::decoder(Index i) const {
  const std::string block = "decoder.block." + std::to_string(i) + ".layer.";
  Parts parts;
  add_norm(parts, "norm1.weight", block + "0.layer_norm.weight");
  add_attention(parts, "self_attn", block + "0.SelfAttention");
  add_norm(parts, "norm2.weight", block + "1.layer_norm.weight");
  add_attention(parts, "multihead_attn", block + "1.EncDecAttention");
  add_norm(parts, "norm3.weight", block + "2.layer_norm.weight");
  add_feed_forward(parts, block + "2");
  return {parts.state, "", options()};
}

Normalization T5Layers::norm(const std::string& name) const {
  Parts parts;
  add_norm(parts, "weight", name);
  return {parts.state, "", NormKind::rms, config_.layer_norm_epsilon};
}

}  // namespace headlane::models::internal
