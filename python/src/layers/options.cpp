// Arguments of layers: caches and options.
#include "gemm/products.hpp"
#include "layers/layers.hpp"

namespace headlane::python {

View<const Index, 1> integers_view(const char* function, const std::optional<Array>& array) {
  if (!array) return {};
  require(array->rank() == 1, function, ": ", array->name(), " has shape ", *array, "; wanted: one axis");
  return view_of<const Index, 1>(*array);
}

CacheArgument::CacheArgument(const char* function, const char* name, nb::handle cache, const char* sequences_name,
                             nb::handle given) {
  require(cache.is_none() == given.is_none(), function, ": of ", name, " and ", sequences_name, " only one is given");
  if (cache.is_none()) return;
  locked = &cache_of(function, name, cache);
  sequences = integers_of(function, sequences_name, given);
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
