// Checks of the arguments of MultiHeadAttention.
#include "attention/kv_check.hpp"
#include "attention/problem.hpp"
#include "core/check.hpp"
#include "layers/attention_layer.hpp"
#include "layers/forward_check.hpp"
#include "layers/rows.hpp"
#include "layers/together.hpp"

#include <cstddef>
#include <utility>

namespace headlane::internal {
namespace {

using Kind = KeySource::Kind;

void check_constructed(Caller caller, const MultiHeadAttention& layer) {
  caller.require(layer.heads() > 0, "the attention has no weights: it was default-constructed or moved from");
}

void check_memory(const Operand& memory, const MultiHeadAttention& layer) {
  memory.require(memory.shape[2] == layer.kv_dim(), " is ", memory, ", the layer takes rows of ", layer.kv_dim());
}

void check_cache(Caller caller, const MultiHeadAttention& layer, const KvCache& cache, std::span<const Index> sequences,
                 Index wanted) {
  caller.require(cache.kv_heads() == layer.kv_heads() && cache.head_dim() == layer.head_dim() &&
                     cache.value_dim() == layer.head_dim(),
                 "the cache has ", cache.kv_heads(), " heads of ", cache.head_dim(), " and ", cache.value_dim(),
                 ", the layer has ", layer.kv_heads(), " of ", layer.head_dim());
  caller.require(std::cmp_equal(sequences.size(), wanted), "sequences has ", static_cast<Index>(sequences.size()),
                 " elements, there are ", wanted, " batch elements");
  for (std::size_t i = 0; i < sequences.size(); ++i)
    caller.require(cache.has(sequences[i]), "sequences[", static_cast<Index>(i), "] is ", sequences[i],
                   ", which the cache does not have");
}

}  // namespace

void check_attention(const MultiHeadAttention& layer, const ForwardOperands& operands, const KeySource& source,
                     const AttentionOptions& options) {
  const auto& [x, y, memory] = operands;
  const Caller caller = x.caller;
  check_forward(x, x_width(layer), y, layer.d_model(), true, options.num_threads);
  check_constructed(caller, layer);
  check_layer_options(caller, options, x, y);
  if (source.from_x())
    caller.require(layer.kv_dim() == x_width(layer), "the layer takes x of width ", x_width(layer),
                   " and memory of width ", layer.kv_dim(), ": it has no self-attention");
  if (source.kind == Kind::memory) {
    check_operand(memory);
    check_same(memory, 0, "batch elements", x, 0, "batch elements");
    check_memory(memory, layer);
    check_no_overlap(y, memory);
    if (options.lse) check_no_overlap(caller.operand("lse", options.lse), memory);
  }
  if (source.cache != nullptr) check_cache(caller, layer, *source.cache, source.sequences, x.shape[0]);
  if (source.growing != nullptr) check_named_once(KvPages::of(*source.growing, caller), caller, source.sequences);
}

void check_keys(const MultiHeadAttention& layer, const ForwardOperands& operands, const KeySource& source,
                const AttentionOptions& options) {
  const Operand& x = operands.x;
  const Caller caller = x.caller;
  const Index batch = x.shape[0], length = x.shape[1], dim = layer.head_dim();
  const Index width = layer.heads() * dim, kv_heads = layer.shares().count();
  const View<const float, 3> queries = scratch_rows(Purpose::wide, batch, length, width);
  const View<const float, 4> q = by_head(queries, dim);
  const View<float, 4> out = by_head(scratch_rows(Purpose::heads, batch, length, width), dim);
  const auto check = [&](KeysAndValues keys) {
    keys.k.shape[1] = keys.v.shape[1] = kv_heads;  // of all ranks
    (void)checked_attention(caller, q, keys, out, options, CheckLevel::full);
  };
  switch (source.kind) {
    case Kind::projected_cache:
      return check(keys_of(caller, *source.cache, source.sequences));
    case Kind::growing_cache: {
      const View<const Index, 1>& own = options.query_lengths;
      check_token_lengths(caller, "query_lengths", own, batch, "x", length, "rows a batch element");
      return check(keys_of(caller, *source.cache, source.sequences, length, own));
    }
    default: {
      const Operand& from = source.from_x() ? x : operands.memory;
      const View<const float, 4> kv = by_head(
          View<const float, 3>(scratch_rows(Purpose::memory, from.shape[0], from.shape[1], kv_heads * dim)), dim);
      return check({kv, kv});
    }
  }
}

// The heads of one rank would pass where those of another do not; a cache grows before its keys are
// checked.
bool needs_check_of_keys(const MultiHeadAttention& layer, const KeySource& source) {
  return layer.shares().divided() || source.kind == Kind::growing_cache;
}

void check_attention_together(const MultiHeadAttention& layer, const ForwardOperands& operands, const KeySource& source,
                              DType type, const AttentionOptions& options) {
  check_together(
      layer.shares().team(), operands.x.caller,
      [&] {
        check_attention(layer, operands, source, options);
        if (needs_check_of_keys(layer, source)) check_keys(layer, operands, source, options);
      },
      [&](Description& text) {
        text.add_rows("x", operands.x, type).add_rows("y", operands.y, type);
        describe(text, source, operands, type);
        text.add_options(options);
      });
}

void describe(Description& text, const MultiHeadAttentionOptions& options) {
  text.add("heads", options.heads).add("kv_heads", options.kv_heads == 0 ? options.heads : options.kv_heads);
  if (options.scale) text.add("scale", *options.scale);
  text.add("weights", options.weights).add("activations", options.activations);
}

void describe(Description& text, const KeySource& source, const ForwardOperands& operands, DType type) {
  if (source.kind == Kind::memory) text.add_rows("memory", operands.memory, type);
  if (source.cache == nullptr) return;
  text.add(source.growing != nullptr ? "appended to a cache of" : "keys of a cache of", source.cache->type());
  for (const Index sequence : source.sequences) text.add("keys", source.cache->length(sequence));
}

void check_project_memory(const MultiHeadAttention& layer, const Operand& memory, const KvCache& cache,
                          std::span<const Index> sequences, const ProjectMemoryOptions& options) {
  const Caller caller = memory.caller;
  check_operand(memory);
  check_constructed(caller, layer);
  check_memory(memory, layer);
  check_threads(caller, options.num_threads);
  const View<const Index, 1>&lengths = options.key_lengths, &starts = options.key_starts;
  const auto count = static_cast<Index>(sequences.size());
  if (!starts) {
    check_cache(caller, layer, cache, sequences, memory.shape[0]);
    return check_token_lengths(caller, "key_lengths", lengths, count, "memory", memory.shape[1],
                               "rows a batch element");
  }
  check_operand(caller.operand("key_starts", starts));
  check_cache(caller, layer, cache, sequences, starts.shape[0] - 1);
  caller.require(!lengths, "key_lengths and key_starts are both given");
  caller.require(memory.shape[0] == 1, "memory has ", memory.shape[0], " batch elements, with key_starts it has 1");
  for (Index i = 0; i <= count; ++i)
    caller.require(starts(i) >= (i == 0 ? 0 : starts(i - 1)) && starts(i) <= memory.shape[1], "key_starts[", i, "] is ",
                   starts(i), ", memory has ", memory.shape[1], " rows, and starts do not decrease");
}

}  // namespace headlane::internal
