// The classes MultiHeadAttention, EncoderLayer and DecoderLayer.
#include "layers.hpp"
#include "products.hpp"

namespace headlane::python {
namespace {

using Threads = std::optional<int>;

constexpr const char* of_attention =
    R"(torch.nn.MultiheadAttention, batch first, of a state dict (see Linear): "in_proj_weight", or "q_proj_weight", "k_proj_weight" and
"v_proj_weight"; "in_proj_bias", "out_proj.weight", "out_proj.bias". Biases may be absent.

num_heads; num_kv_heads: heads of keys and values, a divisor, num_heads if None. scale: of the scores, 1 / sqrt(head_dim) if None.)";

constexpr const char* of_encoder =
    R"(torch.nn.TransformerEncoderLayer, batch first, without dropout, of its state dict (see Linear): "self_attn.…", "linear1.…", "linear2.…",
"norm1.…", "norm2.…"; with "linear_gate.…" the feed-forward part is gated.

num_heads, num_kv_heads, scale: as in MultiHeadAttention. activation: as in FeedForward. norm: "layer" or "rms".
norm_first: x + f(norm(x)) instead of norm(x + f(x)). layer_norm_eps: of the norms.)";

constexpr const char* of_decoder =
    R"(torch.nn.TransformerDecoderLayer, batch first, without dropout, of its state dict; "multihead_attn.…" is the attention to memory,
"norm3.…" the norm of the feed-forward part. The other parameters are those of EncoderLayer.)";

constexpr const char* forward_attention =
    R"(Self-attention of x [batch, length, d] or [length, d]; attention to memory [batch, memory's length, width] if that is given.

With cache and sequences: appends the keys and values of x, batch element b to sequences[b], and attends causally to all that the
cache holds. With cache, sequences and remembered=True: attends to what remember() has put there.
attn_mask and **options: those of scaled_dot_product_attention (is_causal, key_lengths, query_starts, …), for scores
[batch, heads, length, keys]. out may be x itself.)";

constexpr const char* forward_encoder =
    R"(The layer of x [batch, length, d] or [length, d]. attn_mask and **options: those of scaled_dot_product_attention
(is_causal, key_lengths, query_starts, …). out may be x itself.)";

constexpr const char* forward_decoder =
    R"(The layer of x with memory, both [batch, length, d] or [length, d]; each position sees those before it unless is_causal=False.

With cache, sequences, memory_cache and memory_sequences instead of memory: the next tokens of sequences whose earlier ones the
cache holds, and whose memory remember() has put into memory_cache.
attn_mask and **options are those of self-attention (see EncoderLayer.forward), cross a dict of those of the attention to memory.)";

constexpr const char* remember_text =
    R"(Appends the keys and values of memory [batch, length, width] to a KvCache, batch element b to sequences[b].

key_lengths: of each batch element the first so many rows. key_starts: memory is a ragged batch of one batch element.)";

void remember(const char* function, const MultiHeadAttention& layer, nb::handle memory, nb::handle cache,
              nb::handle sequences, nb::handle key_lengths, nb::handle key_starts, Threads num_threads) {
  const Array of_memory(function, "memory", memory);
  const View<const float, 3> rows = rows_of<const float>(function, of_memory);
  const CacheArgument to(function, "cache", cache, sequences);
  require(static_cast<bool>(to), function, ": cache is None");
  const Integers lengths(function, "key_lengths", key_lengths), starts(function, "key_starts", key_starts);
  const RememberOptions options{lengths.view(), starts.view(), threads_of(function, num_threads)};
  compute_layer(function, [&] {
    const std::unique_lock lock(to.locked->mutex);
    layer.remember(rows, to.locked->cache, to.sequences, options);
  });
}

nb::object attend(const MultiHeadAttention& self, nb::handle x, nb::handle memory, nb::handle attn_mask,
                  nb::handle cache, nb::handle sequences, bool remembered, nb::handle out, Threads num_threads,
                  const nb::kwargs& options) {
  constexpr const char* function = "MultiHeadAttention.forward";
  const LayerScores scores(function, attn_mask, options, num_threads);
  const Rows rows(function, x, out, self.d_model());
  const CacheArgument to(function, "cache", cache, sequences);
  require(!to || memory.is_none(), function, ": memory and cache are both given");
  require(to || !remembered, function, ": remembered is True, and cache None");
  std::optional<Array> of_memory;
  View<const float, 3> keys;
  if (!memory.is_none()) keys = rows_of<const float>(function, of_memory.emplace(function, "memory", memory));
  const Index batch = rows.x().shape[0], length = rows.x().shape[1];
  const auto options_for = [&](Index count) { return scores.at(batch, self.heads(), length, count); };
  compute_layer(function, [&] {
    if (of_memory) return self.forward(rows.x(), keys, rows.y(), options_for(keys.shape[1]));
    if (!to) return self.forward(rows.x(), rows.y(), options_for(length));
    if (remembered) {
      const std::shared_lock lock(to.locked->mutex);
      return self.forward_remembered(rows.x(), to.locked->cache, to.sequences, rows.y(), options_for(to.longest()));
    }
    const std::unique_lock lock(to.locked->mutex);
    self.forward(rows.x(), to.locked->cache, to.sequences, rows.y(), options_for(to.longest() + length));
  });
  return rows.object();
}

/// An encoder layer, and its number of heads, which it does not tell.
struct Encoder {
  EncoderLayer layer;
  Index heads;
};

nb::object encode(const Encoder& self, nb::handle x, nb::handle attn_mask, nb::handle out, Threads num_threads,
                  const nb::kwargs& options) {
  constexpr const char* function = "EncoderLayer.forward";
  const LayerScores scores(function, attn_mask, options, num_threads);
  const Rows rows(function, x, out, self.layer.d_model());
  const Index batch = rows.x().shape[0], length = rows.x().shape[1];
  compute_layer(function,
                [&] { self.layer.forward(rows.x(), rows.y(), scores.at(batch, self.heads, length, length)); });
  return rows.object();
}

struct DecoderArguments {
  nb::handle x, memory, attn_mask, cache, sequences, memory_cache, memory_sequences, cross, out;
};

nb::object decode(const DecoderLayer& self, const DecoderArguments& given, Threads num_threads,
                  const nb::kwargs& options) {
  constexpr const char* function = "DecoderLayer.forward";
  if (!options.contains("is_causal")) options["is_causal"] = true;
  nb::dict of_cross;
  if (!given.cross.is_none()) of_cross = nb::cast<nb::dict>(given.cross);
  nb::object cross_mask = nb::none();
  if (of_cross.contains("attn_mask")) {
    cross_mask = of_cross["attn_mask"];
    nb::dict others;
    for (const auto& [key, value] : of_cross)
      if (std::string_view(nb::str(key).c_str()) != "attn_mask") others[key] = value;
    of_cross = others;
  }
  const LayerScores scores(function, given.attn_mask, options, num_threads),
      cross_scores(function, cross_mask, of_cross, num_threads);
  const Rows rows(function, given.x, given.out, self.d_model());
  const CacheArgument to(function, "cache", given.cache, given.sequences),
      from(function, "memory_cache", given.memory_cache, given.memory_sequences);
  require(static_cast<bool>(to) == static_cast<bool>(from) && static_cast<bool>(to) == given.memory.is_none(), function,
          ": wanted: memory, or cache, sequences, memory_cache and memory_sequences");
  require(!to || to.locked != from.locked, function, ": cache and memory_cache are the same");
  const Index heads = self.self_attn().heads(), of_memory_heads = self.multihead_attn().heads();
  std::optional<Array> of_memory;
  View<const float, 3> memory;
  if (!to) memory = rows_of<const float>(function, of_memory.emplace(function, "memory", given.memory));
  const Index batch = rows.x().shape[0], length = rows.x().shape[1];
  compute_layer(function, [&] {
    if (!to)
      return self.forward(rows.x(), memory, rows.y(), scores.at(batch, heads, length, length),
                          cross_scores.at(batch, of_memory_heads, length, memory.shape[1]));
    std::unique_lock changing(to.locked->mutex, std::defer_lock);
    std::shared_lock reading(from.locked->mutex, std::defer_lock);
    std::lock(changing, reading);
    self.forward(rows.x(), to.locked->cache, to.sequences, from.locked->cache, from.sequences, rows.y(),
                 scores.at(batch, heads, length, to.longest() + length),
                 cross_scores.at(batch, of_memory_heads, length, from.longest()));
  });
  return rows.object();
}

}  // namespace

void add_attention_layers(nb::module_& module) {
  using nb::arg;
  const auto forward = [](auto& one, auto function, const auto&... extra) {
    one.def("forward", function, extra...).def("__call__", function, extra...);
  };
  const auto none = [](const char* name) { return arg(name).none() = nb::none(); };
  nb::class_<MultiHeadAttention> attention(module, "MultiHeadAttention", nb::is_final(), of_attention);
  attention.def(
      "__init__",
      [](MultiHeadAttention* self, nb::handle state, const std::string& prefix, Index heads,
         std::optional<Index> kv_heads, std::optional<float> scale) {
        const MultiHeadAttentionOptions options{heads, kv_heads.value_or(0), scale};
        construct(
            self, "MultiHeadAttention",
            Tensors("MultiHeadAttention", state, prefix,
                    {"in_proj_", "q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.", "bias_k", "bias_v"}),
            prefix, options);
      },
      arg("state").none(), arg("prefix") = "", nb::kw_only(), arg("num_heads"), none("num_kv_heads"), none("scale"));
  forward(attention, &attend, arg("x").none(), none("memory"), none("attn_mask"), nb::kw_only(), none("cache"),
          none("sequences"), arg("remembered") = false, none("out"), none("num_threads"), arg("options"),
          forward_attention);
  attention.def(
      "remember",
      [](const MultiHeadAttention& self, nb::handle memory, nb::handle cache, nb::handle sequences,
         nb::handle key_lengths, nb::handle key_starts, Threads num_threads) {
        remember("MultiHeadAttention.remember", self, memory, cache, sequences, key_lengths, key_starts, num_threads);
      },
      arg("memory").none(), arg("cache").none(), arg("sequences").none(), nb::kw_only(), none("key_lengths"),
      none("key_starts"), none("num_threads"), remember_text);
  attention.def_prop_ro("d_model", &MultiHeadAttention::d_model)
      .def_prop_ro("num_heads", &MultiHeadAttention::heads)
      .def_prop_ro("num_kv_heads", &MultiHeadAttention::kv_heads)
      .def_prop_ro("head_dim", &MultiHeadAttention::head_dim);

  nb::class_<Encoder> encoder(module, "EncoderLayer", nb::is_final(), of_encoder);
  encoder.def(
      "__init__",
      [](Encoder* self, nb::handle state, const std::string& prefix, Index heads, std::optional<Index> kv_heads,
         std::optional<float> scale, std::optional<std::string_view> activation, std::string_view norm, bool norm_first,
         float eps) {
        const char* name = "EncoderLayer";
        const auto options = options_of(name, heads, kv_heads, scale, activation, norm, norm_first, eps);
        const Tensors tensors(name, state, prefix,
                              {"self_attn.", "linear1.", "linear2.", "linear_gate.", "norm1.", "norm2."});
        std::optional<EncoderLayer> layer;
        compute_layer(name, [&] { layer.emplace(tensors.dict(), prefix, options); });
        new (self) Encoder{std::move(*layer), heads};
      },
      arg("state").none(), arg("prefix") = "", nb::kw_only(), arg("num_heads"), none("num_kv_heads"), none("scale"),
      arg("activation").none() = "relu", arg("norm") = "layer", arg("norm_first") = false,
      arg("layer_norm_eps") = 1e-5);
  forward(encoder, &encode, arg("x").none(), none("attn_mask"), nb::kw_only(), none("out"), none("num_threads"),
          arg("options"), forward_encoder);
  encoder.def_prop_ro("d_model", [](const Encoder& self) { return self.layer.d_model(); });

  nb::class_<DecoderLayer> decoder(module, "DecoderLayer", nb::is_final(), of_decoder);
  decoder.def(
      "__init__",
      [](DecoderLayer* self, nb::handle state, const std::string& prefix, Index heads, std::optional<Index> kv_heads,
         std::optional<float> scale, std::optional<std::string_view> activation, std::string_view norm, bool norm_first,
         float eps) {
        const char* name = "DecoderLayer";
        const auto options = options_of(name, heads, kv_heads, scale, activation, norm, norm_first, eps);
        const Tensors tensors(name, state, prefix,
                              {"self_attn.", "multihead_attn.", "linear1.", "linear2.", "linear_gate.", "norm"});
        construct(self, name, tensors, prefix, options);
      },
      arg("state").none(), arg("prefix") = "", nb::kw_only(), arg("num_heads"), none("num_kv_heads"), none("scale"),
      arg("activation").none() = "relu", arg("norm") = "layer", arg("norm_first") = false,
      arg("layer_norm_eps") = 1e-5);
  forward(
      decoder,
      [](const DecoderLayer& self, nb::handle x, nb::handle memory, nb::handle attn_mask, nb::handle cache,
         nb::handle sequences, nb::handle memory_cache, nb::handle memory_sequences, nb::handle cross, nb::handle out,
         Threads num_threads, const nb::kwargs& options) {
        const DecoderArguments given{x,     memory, attn_mask, cache, sequences, memory_cache, memory_sequences,
                                     cross, out};
        return decode(self, given, num_threads, options);
      },
      arg("x").none(), none("memory"), none("attn_mask"), nb::kw_only(), none("cache"), none("sequences"),
      none("memory_cache"), none("memory_sequences"), none("cross"), none("out"), none("num_threads"), arg("options"),
      forward_decoder);
  decoder.def(
      "remember",
      [](const DecoderLayer& self, nb::handle memory, nb::handle cache, nb::handle sequences, nb::handle key_lengths,
         nb::handle key_starts, Threads num_threads) {
        remember("DecoderLayer.remember", self.multihead_attn(), memory, cache, sequences, key_lengths, key_starts,
                 num_threads);
      },
      arg("memory").none(), arg("cache").none(), arg("sequences").none(), nb::kw_only(), none("key_lengths"),
      none("key_starts"), none("num_threads"), remember_text);
  decoder.def_prop_ro("d_model", &DecoderLayer::d_model);
}

}  // namespace headlane::python
