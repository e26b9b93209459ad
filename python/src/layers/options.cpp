// Arguments of layers: caches and options.
#include "core/dtype.hpp"
#include "gemm/products.hpp"
#include "layers/layers.hpp"

namespace headlane::python {

View<const Index, 1> integers_view(const std::optional<Array>& array) {
  if (!array) return {};
  array->require(array->rank() == 1, " has shape ", *array, "; wanted: one axis");
  return view_of<const Index, 1>(*array);
}

CacheArgument::CacheArgument(const Call& call, const char* name, nb::handle cache, const char* sequences_name,
                             nb::handle given) {
  call.require(cache.is_none() == given.is_none(), "of ", name, " and ", sequences_name, " only one is given");
  if (cache.is_none()) return;
  locked = &cache_of(call, name, cache);
  sequences = call.integers(sequences_name, given);
}

MultiHeadAttentionOptions attention_options_of(const Call& call, nb::handle heads, nb::handle kv_heads,
                                               nb::handle scale, nb::handle weights, nb::handle activations) {
  MultiHeadAttentionOptions options{.heads = call.integer("num_heads", heads)};
  if (!kv_heads.is_none()) options.kv_heads = call.integer("num_kv_heads", kv_heads);
  if (!scale.is_none()) options.scale = call.float32("scale", scale);
  options.weights = dtype_named(call, "weights", weights);
  options.activations = activations_named(call, activations);
  return options;
}

TransformerLayerOptions options_of(const Call& call, const LayerArguments& given) {
  const std::string norm = call.text("norm", given.norm);
  call.require(norm == "layer" || norm == "rms", "norm is '", norm, "'; there are 'layer' and 'rms'");
  return {.attention =
              attention_options_of(call, given.heads, given.kv_heads, given.scale, given.weights, given.activations),
          .activation = activation_named(call, given.activation),
          .norm = norm == "layer" ? NormKind::layer : NormKind::rms,
          .norm_first = call.flag("norm_first", given.norm_first),
          .eps = call.float32("layer_norm_eps", given.eps),
          .weights = dtype_named(call, "weights", given.weights),
          .activations = activations_named(call, given.activations)};
}

nb::dict dict_of(const OwnedStateDict& state) {
  nb::dict result;
  for (const auto& [name, tensor] : state) result[name.c_str()] = array_of(tensor.data, tensor.shape);
  return result;
}

}  // namespace headlane::python
