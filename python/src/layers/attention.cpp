// The classes MultiHeadAttention, EncoderLayer and DecoderLayer.
#include "core/define.hpp"
#include "layers/layers.hpp"
#include "mpi/transport.hpp"

#include <mutex>
#include <shared_mutex>

namespace headlane::python {
namespace {

void remember(const Call& call, const MultiHeadAttention& layer, nb::handle memory, nb::handle cache,
              nb::handle sequences, nb::handle key_lengths, nb::handle key_starts, nb::handle num_threads) {
  const Array of_memory(call, "memory", memory, Element::float32);
  const View<const float, 3> rows = rows_of<const float>(of_memory);
  const CacheArgument to(call, "cache", cache, "sequences", sequences);
  call.require(static_cast<bool>(to), "cache is None");
  const std::optional<Array> lengths = optional_integers(call, "key_lengths", key_lengths),
                             starts = optional_integers(call, "key_starts", key_starts);
  const ProjectMemoryOptions options{integers_view(lengths), integers_view(starts), call.threads(num_threads)};
  call.compute([&] {
    const std::unique_lock lock(to.locked->mutex);
    layer.project_memory(rows, to.locked->cache, to.sequences, options);
  });
}

/// The options of a call for scores [batch, heads, rows, keys].
AttentionOptions options_for(const ScoreOptions& given, const View<const float, 3>& x, Index heads, Index keys) {
  return given.for_scores(x.shape[0], heads, x.shape[1], given.mask_keys(keys));
}

nb::object attend(const MultiHeadAttention& self, nb::handle x, nb::handle memory, nb::handle attn_mask,
                  nb::handle options, nb::handle cache, nb::handle sequences, nb::handle given_remembered,
                  nb::handle out, nb::handle num_threads) {
  const Call call("MultiHeadAttention.forward");
  const ScoreOptions given(call, attn_mask, options, num_threads);
  const bool remembered = call.flag("remembered", given_remembered);
  const Rows rows(call, x, out, self.d_model());
  const CacheArgument to(call, "cache", cache, "sequences", sequences);
  call.require(!to || memory.is_none(), "memory and cache are both given");
  call.require(to || !remembered, "remembered is True, and cache None");
  const std::optional<Array> of_memory = optional_array(call, "memory", memory, Element::float32);
  const auto keys = of_memory ? rows_of<const float>(*of_memory) : View<const float, 3>{};
  const Index length = rows.x().shape[1];
  const auto scores = [&](Index count) { return options_for(given, rows.x(), self.heads(), count); };
  call.compute([&] {
    if (of_memory) return self.forward(rows.x(), keys, rows.y(), scores(keys.shape[1]));
    if (!to) return self.forward(rows.x(), rows.y(), scores(length));
    if (remembered) {
      const std::shared_lock lock(to.locked->mutex);
      return self.forward_projected(rows.x(), to.locked->cache, to.sequences, rows.y(), scores(to.longest()));
    }
    const std::unique_lock lock(to.locked->mutex);
    self.forward(rows.x(), to.locked->cache, to.sequences, rows.y(), scores(to.longest() + length));
  });
  return rows.object();
}

nb::object encode(const EncoderLayer& self, nb::handle x, nb::handle attn_mask, nb::handle options, nb::handle out,
                  nb::handle num_threads) {
  const Call call("EncoderLayer.forward");
  return on_ranks(call, self.self_attn().shares().team(), "EncoderLayer::forward", [&] {
    const ScoreOptions given(call, attn_mask, options, num_threads);
    const Rows rows(call, x, out, self.d_model());
    call.compute([&] {
      self.forward(rows.x(), rows.y(), options_for(given, rows.x(), self.self_attn().heads(), rows.x().shape[1]));
    });
    return rows.object();
  });
}

struct DecoderArguments {
  nb::handle x, memory, attn_mask, options, cache, sequences, memory_cache, memory_sequences, cross, out, num_threads;
};

nb::object decode(const Call& call, const DecoderLayer& self, const DecoderArguments& given) {
  const ScoreOptions own(call, given.attn_mask, given.options, given.num_threads),
      cross(call, nb::none(), given.cross, given.num_threads);
  const Rows rows(call, given.x, given.out, self.d_model());
  const CacheArgument to(call, "cache", given.cache, "sequences", given.sequences),
      from(call, "memory_cache", given.memory_cache, "memory_sequences", given.memory_sequences);
  call.require(static_cast<bool>(to) == static_cast<bool>(from) && static_cast<bool>(to) == given.memory.is_none(),
               "wanted: memory, or cache, sequences, memory_cache and memory_sequences");
  call.require(!to || to.locked != from.locked, "cache and memory_cache are the same");
  const std::optional<Array> of_memory = optional_array(call, "memory", given.memory, Element::float32);
  const auto memory = of_memory ? rows_of<const float>(*of_memory) : View<const float, 3>{};
  const View<const float, 3> x = rows.x();
  const auto scores = [&](Index keys) { return options_for(own, x, self.self_attn().heads(), keys); };
  const auto cross_scores = [&](Index keys) { return options_for(cross, x, self.multihead_attn().heads(), keys); };
  call.compute([&] {
    if (!to) return self.forward(x, memory, rows.y(), scores(x.shape[1]), cross_scores(memory.shape[1]));
    std::unique_lock changing(to.locked->mutex, std::defer_lock);
    std::shared_lock reading(from.locked->mutex, std::defer_lock);
    std::lock(changing, reading);
    self.forward(x, to.locked->cache, to.sequences, from.locked->cache, from.sequences, rows.y(),
                 scores(to.longest() + x.shape[1]), cross_scores(from.longest()));
  });
  return rows.object();
}

/// Defines __init__ of EncoderLayer or DecoderLayer, which take the same arguments.
template <class Layer>
void define_init(nb::class_<Layer>& layer, const char* name, const std::vector<std::string_view>& parts) {
  define(
      layer, "__init__",
      [name, parts](Layer* self, nb::handle state, nb::handle prefix, nb::handle heads, nb::handle kv_heads,
                    nb::handle scale, nb::handle activation, nb::handle norm, nb::handle norm_first, nb::handle eps,
                    nb::handle weights, nb::handle activations, nb::handle team) {
        const Call call(name);
        mpi::Transport* const ranks = team_of(call, team);
        on_ranks(call, ranks, name, [&] {
          TransformerLayerOptions options =
              options_of(call, {heads, kv_heads, scale, activation, norm, norm_first, eps, weights, activations});
          options.team = ranks;
          construct(self, Tensors(call, state, prefix, parts), options);
        });
      },
      "state", "prefix", "num_heads", "num_kv_heads", "scale", "activation", "norm", "norm_first", "layer_norm_eps",
      "weights", "activations", "team");
}

/// Defines remember(), whose attention layer `attention` returns.
template <class Self, class Attention>
void define_remember(nb::class_<Self>& layer, const char* name, Attention attention) {
  define(
      layer, "remember",
      [name, attention](const Self& self, nb::handle memory, nb::handle cache, nb::handle sequences,
                        nb::handle key_lengths, nb::handle key_starts, nb::handle num_threads) {
        remember(Call(name), attention(self), memory, cache, sequences, key_lengths, key_starts, num_threads);
      },
      "memory", "cache", "sequences", "key_lengths", "key_starts", "num_threads");
}

void add_multi_head_attention(nb::module_& module) {
  nb::class_<MultiHeadAttention> attention(module, "MultiHeadAttention");
  define(
      attention, "__init__",
      [](MultiHeadAttention* self, nb::handle state, nb::handle prefix, nb::handle heads, nb::handle kv_heads,
         nb::handle scale, nb::handle weights, nb::handle activations) {
        const Call call("MultiHeadAttention");
        const Tensors tensors(
            call, state, prefix,
            {"in_proj_", "q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.", "bias_k", "bias_v"});
        construct(self, tensors, attention_options_of(call, heads, kv_heads, scale, weights, activations));
      },
      "state", "prefix", "num_heads", "num_kv_heads", "scale", "weights", "activations");
  define(attention, "forward", &attend, "x", "memory", "attn_mask", "options", "cache", "sequences", "remembered",
         "out", "num_threads");
  define_remember(attention, "MultiHeadAttention.remember",
                  // NOLINTNEXTLINE(bugprone-return-const-ref-from-parameter): Python holds it
                  [](const MultiHeadAttention& self) -> const MultiHeadAttention& { return self; });
  define(attention, "state_dict", &state_of<MultiHeadAttention>);
  attention.def_prop_ro("d_model", &MultiHeadAttention::d_model)
      .def_prop_ro("num_heads", &MultiHeadAttention::heads)
      .def_prop_ro("num_kv_heads", &MultiHeadAttention::kv_heads)
      .def_prop_ro("head_dim", &MultiHeadAttention::head_dim);
}

void add_encoder_layer(nb::module_& module) {
  nb::class_<EncoderLayer> encoder(module, "EncoderLayer");
  define_init(encoder, "EncoderLayer", {"self_attn.", "linear1.", "linear2.", "linear_gate.", "norm1.", "norm2."});
  define(encoder, "forward", &encode, "x", "attn_mask", "options", "out", "num_threads");
  define(encoder, "state_dict", &state_of<EncoderLayer>);
  encoder.def_prop_ro("d_model", &EncoderLayer::d_model);
}

void add_decoder_layer(nb::module_& module) {
  nb::class_<DecoderLayer> decoder(module, "DecoderLayer");
  define_init(decoder, "DecoderLayer",
              {"self_attn.", "multihead_attn.", "linear1.", "linear2.", "linear_gate.", "norm"});
  define(
      decoder, "forward",
      [](const DecoderLayer& self, nb::handle x, nb::handle memory, nb::handle attn_mask, nb::handle options,
         nb::handle cache, nb::handle sequences, nb::handle memory_cache, nb::handle memory_sequences, nb::handle cross,
         nb::handle out, nb::handle num_threads) {
        const Call call("DecoderLayer.forward");
        return on_ranks(call, self.self_attn().shares().team(), "DecoderLayer::forward", [&] {
          return decode(call, self,
                        {x, memory, attn_mask, options, cache, sequences, memory_cache, memory_sequences, cross, out,
                         num_threads});
        });
      },
      "x", "memory", "attn_mask", "options", "cache", "sequences", "memory_cache", "memory_sequences", "cross", "out",
      "num_threads");
  define_remember(decoder, "DecoderLayer.remember",
                  [](const DecoderLayer& self) -> const MultiHeadAttention& { return self.multihead_attn(); });
  define(decoder, "state_dict", &state_of<DecoderLayer>);
  decoder.def_prop_ro("d_model", &DecoderLayer::d_model);
}

}  // namespace

void add_attention_layers(nb::module_& module) {
  add_multi_head_attention(module);
  add_encoder_layer(module);
  add_decoder_layer(module);
}

}  // namespace headlane::python
