// The options of attention inside of a layer, and caches: from Python's objects to the library's views.
#include "attention/kv_pages.hpp"  // the library's own
#include "gemm/products.hpp"
#include "layers/layers.hpp"

#include <algorithm>

namespace headlane::python {
template <class T>
View<T, 4> LayerScores::view_of_scores(const Array& x, T* data, const std::array<Index, 4>& shape) const {
  View<T, 4> view;
  view.data = data;
  view.shape = shape;
  bool good = x.rank() <= 4;
  for (int axis = 1; good && axis <= x.rank(); ++axis) {  // from the right
    const auto at = static_cast<std::size_t>(4 - axis);
    good = x.size(-axis) == shape[at] || x.size(-axis) == 1;
    view.strides[at] = x.size(-axis) == 1 ? 0 : x.stride(-axis);
  }
  require(good, function_, ": ", x.name(), " of shape ", x, " does not broadcast to the scores, ",
          std::vector<Index>(shape.begin(), shape.end()));
  return view;
}

AttentionOptions LayerScores::at(Index batch, Index heads, Index rows, Index keys) const {
  AttentionOptions result = given_.numbers;
  const Index along = given_.keys_of_mask(keys);
  const auto vector = [](const std::optional<Array>& x) {
    return x ? View<const Index, 1>(x->integers(), {x->size(0)}, {x->stride(0)}) : View<const Index, 1>{};
  };
  for (const auto* x :
       {&given_.key_lengths, &given_.query_lengths, &given_.causal_offsets, &given_.query_starts, &given_.key_starts})
    if (*x) require((*x)->rank() == 1, function_, ": ", (*x)->name(), " has shape ", **x, "; wanted: one axis");
  result.key_lengths = vector(given_.key_lengths);
  result.query_lengths = vector(given_.query_lengths);
  result.causal_offsets = vector(given_.causal_offsets);
  result.query_starts = vector(given_.query_starts);
  result.key_starts = vector(given_.key_starts);
  result.alibi_slopes = per_head(function_, given_.alibi_slopes);
  result.sinks = per_head(function_, given_.sinks);
  if (const auto& table = given_.relative_bias) {
    require(table->rank() == 2, function_, ": relative_bias has shape ", *table, "; wanted: [heads, buckets]");
    result.relative_bias.table = {
        table->floats(), {table->size(0), table->size(1)}, {table->stride(0), table->stride(1)}};
  }
  if (const auto& mask = given_.mask; mask && mask->is_bool())
    result.mask = view_of_scores(*mask, mask->bools(), {batch, heads, rows, along});
  else if (mask) result.bias = view_of_scores<const float>(*mask, mask->floats(), {batch, heads, rows, along});
  if (const auto& bits = given_.mask_bits)
    result.mask_bits = view_of_scores(*bits, bits->bytes(), {batch, heads, rows, (along + 7) / 8});
  return result;
}

CacheArgument::CacheArgument(const char* function, const char* name, nb::handle cache, nb::handle numbers) {
  require(cache.is_none() == numbers.is_none(), function, ": of ", name, " and its sequences only one is given");
  if (cache.is_none()) return;
  locked = &cache_of(function, name, cache);
  sequences = integers_of(function, std::string_view(name) == "cache" ? "sequences" : "memory_sequences", numbers);
}

Index CacheArgument::longest() const {
  Index keys = 0;
  for (const Index sequence : sequences)
    if (locked->cache.pages().has(sequence)) keys = std::max(keys, locked->cache.length(sequence));
  return keys;
}

MultiHeadAttentionOptions attention_options_of(const char* layer, nb::handle heads, nb::handle kv_heads,
                                               nb::handle scale) {
  MultiHeadAttentionOptions options{.heads = integer_of(layer, "num_heads", heads)};
  if (!kv_heads.is_none()) options.kv_heads = integer_of(layer, "num_kv_heads", kv_heads);
  if (!scale.is_none()) options.scale = float_of(layer, "scale", scale);
  return options;
}

TransformerLayerOptions options_of(const char* layer, const LayerArguments& given) {
  const std::string norm = text_of(layer, "norm", given.norm);
  require(norm == "layer" || norm == "rms", layer, ": norm is '", norm, "'; there are 'layer' and 'rms'");
  return {.attention = attention_options_of(layer, given.heads, given.kv_heads, given.scale),
          .activation = activation_named(layer, given.activation),
          .norm = norm == "layer" ? NormKind::layer : NormKind::rms,
          .norm_first = flag_of(layer, "norm_first", given.norm_first),
          .eps = float_of(layer, "layer_norm_eps", given.eps)};
}

nb::dict dict_of(const OwnedStateDict& state) {
  nb::dict result;
  for (const auto& [name, tensor] : state) result[name.c_str()] = array_of(tensor.data, tensor.shape);
  return result;
}

}  // namespace headlane::python
