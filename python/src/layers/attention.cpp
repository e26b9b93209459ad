// The classes MultiHeadAttention, EncoderLayer and DecoderLayer.
#include "gemm/products.hpp"
#include "layers/layers.hpp"

namespace headlane::python {
namespace {

void remember(const char* function, const MultiHeadAttention& layer, nb::handle memory, nb::handle cache,
              nb::handle sequences, nb::handle key_lengths, nb::handle key_starts, nb::handle num_threads) {
  const Array of_memory(function, "memory", memory);
  const View<const float, 3> rows = rows_of<const float>(function, of_memory);
  const CacheArgument to(function, "cache", cache, sequences);
  require(static_cast<bool>(to), function, ": cache is None");
  const Integers lengths(function, "key_lengths", key_lengths), starts(function, "key_starts", key_starts);
  const ProjectMemoryOptions options{lengths.view(), starts.view(), threads_of(function, num_threads)};
  compute_layer(function, [&] {
    const std::unique_lock lock(to.locked->mutex);
    layer.project_memory(rows, to.locked->cache, to.sequences, options);
  });
}

nb::object attend(const MultiHeadAttention& self, nb::handle x, nb::handle memory, nb::handle options, nb::handle cache,
                  nb::handle sequences, nb::handle given_remembered, nb::handle out, nb::handle num_threads) {
  constexpr const char* function = "MultiHeadAttention.forward";
  const LayerScores scores(function, options, num_threads);
  const bool remembered = flag_of(function, "remembered", given_remembered);
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
      return self.forward_projected(rows.x(), to.locked->cache, to.sequences, rows.y(), options_for(to.longest()));
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

nb::object encode(const Encoder& self, nb::handle x, nb::handle options, nb::handle out, nb::handle num_threads) {
  constexpr const char* function = "EncoderLayer.forward";
  const LayerScores scores(function, options, num_threads);
  const Rows rows(function, x, out, self.layer.d_model());
  const Index batch = rows.x().shape[0], length = rows.x().shape[1];
  compute_layer(function,
                [&] { self.layer.forward(rows.x(), rows.y(), scores.at(batch, self.heads, length, length)); });
  return rows.object();
}

struct DecoderArguments {
  nb::handle x, memory, options, cache, sequences, memory_cache, memory_sequences, cross, out, num_threads;
};

nb::object decode(const DecoderLayer& self, const DecoderArguments& given) {
  constexpr const char* function = "DecoderLayer.forward";
  const LayerScores scores(function, given.options, given.num_threads),
      cross_scores(function, given.cross, given.num_threads);
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
  // Anything is accepted here, None too: what is wrong is refused by name.
  const auto def = [](auto& one, const char* name, auto function, auto... names) {
    one.def(name, function, nb::arg(names).none()...);
  };
  nb::class_<MultiHeadAttention> attention(module, "MultiHeadAttention");
  def(
      attention, "__init__",
      [](MultiHeadAttention* self, nb::handle state, nb::handle given_prefix, nb::handle heads, nb::handle kv_heads,
         nb::handle scale) {
        constexpr const char* name = "MultiHeadAttention";
        const std::string prefix = text_of(name, "prefix", given_prefix);
        const Tensors tensors(
            name, state, prefix,
            {"in_proj_", "q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.", "bias_k", "bias_v"});
        construct(self, name, tensors, prefix, attention_options_of(name, heads, kv_heads, scale));
      },
      "state", "prefix", "num_heads", "num_kv_heads", "scale");
  def(attention, "forward", &attend, "x", "memory", "options", "cache", "sequences", "remembered", "out",
      "num_threads");
  def(
      attention, "remember",
      [](const MultiHeadAttention& self, nb::handle memory, nb::handle cache, nb::handle sequences,
         nb::handle key_lengths, nb::handle key_starts, nb::handle num_threads) {
        remember("MultiHeadAttention.remember", self, memory, cache, sequences, key_lengths, key_starts, num_threads);
      },
      "memory", "cache", "sequences", "key_lengths", "key_starts", "num_threads");
  def(attention, "state_dict", &state_of<MultiHeadAttention>);
  attention.def_prop_ro("d_model", &MultiHeadAttention::d_model)
      .def_prop_ro("num_heads", &MultiHeadAttention::heads)
      .def_prop_ro("num_kv_heads", &MultiHeadAttention::kv_heads)
      .def_prop_ro("head_dim", &MultiHeadAttention::head_dim);

  nb::class_<Encoder> encoder(module, "EncoderLayer");
  def(
      encoder, "__init__",
      [](Encoder* self, nb::handle state, nb::handle given_prefix, nb::handle heads, nb::handle kv_heads,
         nb::handle scale, nb::handle activation, nb::handle norm, nb::handle norm_first, nb::handle eps) {
        constexpr const char* name = "EncoderLayer";
        const std::string prefix = text_of(name, "prefix", given_prefix);
        const auto options = options_of(name, {heads, kv_heads, scale, activation, norm, norm_first, eps});
        const Tensors tensors(name, state, prefix,
                              {"self_attn.", "linear1.", "linear2.", "linear_gate.", "norm1.", "norm2."});
        std::optional<EncoderLayer> layer;
        compute_layer(name, [&] { layer.emplace(tensors.dict(), prefix, options); });
        new (self) Encoder{std::move(*layer), options.attention.heads};
      },
      "state", "prefix", "num_heads", "num_kv_heads", "scale", "activation", "norm", "norm_first", "layer_norm_eps");
  def(encoder, "forward", &encode, "x", "options", "out", "num_threads");
  def(encoder, "state_dict", [](const Encoder& self) { return state_of(self.layer); });
  encoder.def_prop_ro("d_model", [](const Encoder& self) { return self.layer.d_model(); });

  nb::class_<DecoderLayer> decoder(module, "DecoderLayer");
  def(
      decoder, "__init__",
      [](DecoderLayer* self, nb::handle state, nb::handle given_prefix, nb::handle heads, nb::handle kv_heads,
         nb::handle scale, nb::handle activation, nb::handle norm, nb::handle norm_first, nb::handle eps) {
        constexpr const char* name = "DecoderLayer";
        const std::string prefix = text_of(name, "prefix", given_prefix);
        const auto options = options_of(name, {heads, kv_heads, scale, activation, norm, norm_first, eps});
        const Tensors tensors(name, state, prefix,
                              {"self_attn.", "multihead_attn.", "linear1.", "linear2.", "linear_gate.", "norm"});
        construct(self, name, tensors, prefix, options);
      },
      "state", "prefix", "num_heads", "num_kv_heads", "scale", "activation", "norm", "norm_first", "layer_norm_eps");
  def(
      decoder, "forward",
      [](const DecoderLayer& self, nb::handle x, nb::handle memory, nb::handle options, nb::handle cache,
         nb::handle sequences, nb::handle memory_cache, nb::handle memory_sequences, nb::handle cross, nb::handle out,
         nb::handle num_threads) {
        return decode(self,
                      {x, memory, options, cache, sequences, memory_cache, memory_sequences, cross, out, num_threads});
      },
      "x", "memory", "options", "cache", "sequences", "memory_cache", "memory_sequences", "cross", "out",
      "num_threads");
  def(
      decoder, "remember",
      [](const DecoderLayer& self, nb::handle memory, nb::handle cache, nb::handle sequences, nb::handle key_lengths,
         nb::handle key_starts, nb::handle num_threads) {
        remember("DecoderLayer.remember", self.multihead_attn(), memory, cache, sequences, key_lengths, key_starts,
                 num_threads);
      },
      "memory", "cache", "sequences", "key_lengths", "key_starts", "num_threads");
  def(decoder, "state_dict", &state_of<DecoderLayer>);
  decoder.def_prop_ro("d_model", &DecoderLayer::d_model);
}

}  // namespace headlane::python
