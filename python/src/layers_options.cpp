// The options of attention inside of a layer, and caches: from Python's objects to the library's views.
#include "kv_pages.hpp"  // the library's own
#include "layers.hpp"
#include "products.hpp"

#include <algorithm>

namespace headlane::python {
namespace {

nb::object tuple_of(const char* function, nb::handle mask, const nb::dict& options) {
  return nb::module_::import_("headlane._attention").attr("_packed")(function, nb::borrow(mask), options);
}

}  // namespace

LayerScores::LayerScores(const char* function, nb::handle mask, const nb::dict& options, std::optional<int> num_threads)
    : function_(function), given_(function, tuple_of(function, mask, options), num_threads) {}

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
  if (!nb::isinstance<LockedKvCache>(cache))
    throw nb::type_error(
        (std::string(function) + ": " + name + " has type " + nb::type_name(cache.type()).c_str() + "; wanted: KvCache")
            .c_str());
  locked = nb::inst_ptr<LockedKvCache>(cache);
  if (!nb::hasattr(numbers, "__iter__")) {
    sequences.push_back(integer_of(numbers));
    return;
  }
  for (const nb::handle number : nb::borrow<nb::object>(numbers)) sequences.push_back(integer_of(number));
}

Index CacheArgument::longest() const {
  Index keys = 0;
  for (const Index sequence : sequences)
    if (locked->cache.pages().has(sequence)) keys = std::max(keys, locked->cache.length(sequence));
  return keys;
}

TransformerLayerOptions options_of(const char* layer, Index heads, std::optional<Index> kv_heads,
                                   std::optional<float> scale, std::optional<std::string_view> activation,
                                   std::string_view norm, bool norm_first, float eps) {
  require(norm == "layer" || norm == "rms", layer, ": norm is '", norm, "'; there are 'layer' and 'rms'");
  return {.attention = {.heads = heads, .kv_heads = kv_heads.value_or(0), .scale = scale},
          .activation = activation_named(layer, activation),
          .norm = norm == "layer" ? NormKind::layer : NormKind::rms,
          .norm_first = norm_first,
          .eps = eps};
}

}  // namespace headlane::python
