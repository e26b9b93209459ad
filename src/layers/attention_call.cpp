// What a forward() of MultiHeadAttention computes: one product for queries, keys and values, attention on views of it, the output's product.
#include "attention/kv_pages.hpp"
#include "attention/problem.hpp"
#include "core/round.hpp"
#include "core/scratch.hpp"
#include "gemm/check.hpp"
#include "layers/calls.hpp"
#include "layers/state_dict_reader.hpp"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

namespace headlane::internal {
namespace {

using kernels::panel_columns;
using Kind = KeySource::Kind;

void check_made(const char* function, const MultiHeadAttention& layer) {
  require(layer.heads() > 0, function, ": the attention has no weights: it was default-constructed or moved from");
}

void check_cache(const char* function, const MultiHeadAttention& layer, const KvCache& cache,
                 std::span<const Index> sequences, Index wanted) {
  require(cache.kv_heads() == layer.kv_heads() && cache.head_dim() == layer.head_dim() &&
              cache.value_dim() == layer.head_dim(),
          function, ": the cache has ", cache.kv_heads(), " heads of ", cache.head_dim(), " and ", cache.value_dim(),
          ", the layer has ", layer.kv_heads(), " of ", layer.head_dim());
  require(std::cmp_equal(sequences.size(), wanted), function, ": sequences has ", static_cast<Index>(sequences.size()),
          " elements, there are ", wanted, " batch elements");
  for (std::size_t i = 0; i < sequences.size(); ++i)
    require(cache.has(sequences[i]), function, ": sequences[", static_cast<Index>(i), "] is ", sequences[i],
            ", which the cache does not have");
}

View<const float, 4> part_by_head(const View<float, 3>& wide, Index first, Index width, Index dim) {
  return by_head(View<const float, 3>(wide).slice(2, first, first + width), dim);
}

}  // namespace

ProjectionColumns LayerCalls::columns(const MultiHeadAttention& layer) {
  const Index q = layer.heads_ * layer.head_dim_, kv = layer.kv_heads_ * layer.head_dim_;
  const Index k = round_up(q, panel_columns), v = k + round_up(kv, panel_columns);
  return {q, kv, k, v, v + kv};
}

View<float, 3> scratch_rows(Purpose purpose, Index batch, Index length, Index width) {
  Index rows = 0, floats = 0;
  if (__builtin_mul_overflow(batch, length, &rows) || __builtin_mul_overflow(rows, width, &floats) ||
      floats > std::numeric_limits<Index>::max() / 8)
    throw std::bad_alloc();
  return {scratch(purpose, std::max<Index>(floats, 1)), {batch, length, width}};
}

Appended::Appended(KvCache& cache, std::span<const Index> sequences)
    : cache_(cache), sequences_(sequences), lengths_(kept_object<std::vector<Index>>()) {
  lengths_.clear();
  for (const Index s : sequences) lengths_.push_back(cache.length(s));
}

Appended::~Appended() {
  for (std::size_t i = 0; !kept_ && i < sequences_.size(); ++i) cache_.truncate(sequences_[i], lengths_[i]);
}

void LayerCalls::check(const char* function, const MultiHeadAttention& layer, const View<const float, 3>& x,
                       const KeySource& source, const View<float, 3>& y, bool in_place,
                       const AttentionOptions& options) {
  check_forward(function, x, layer.x_width_, y, layer.d_model(), in_place, options.num_threads);
  check_made(function, layer);
  const Operand of_y = operand(function, "y", y);
  check_layer_options(function, options, operand(function, "x", x), of_y);
  if (source.kind == Kind::x || source.kind == Kind::grown)
    require(layer.memory_width_ == layer.x_width_, function, ": the layer takes x of width ", layer.x_width_,
            " and memory of width ", layer.memory_width_, ": it has no self-attention");
  if (source.kind == Kind::memory) {
    const Operand memory = operand(function, "memory", source.memory);
    check_operand(memory);
    check_same(memory, 0, "batch elements", operand(function, "x", x), 0, "batch elements");
    require(source.memory.shape[2] == layer.memory_width_, function, ": memory is ", memory,
            ", the layer takes rows of ", layer.memory_width_);
    check_no_overlap(of_y, memory);
    if (options.lse) check_no_overlap(operand(function, "lse", options.lse), memory);
  }
  if (source.cache != nullptr) check_cache(function, layer, *source.cache, source.sequences, x.shape[0]);
}

void LayerCalls::check_keys(const char* function, const MultiHeadAttention& layer, const View<const float, 3>& x,
                            const KeySource& source, const AttentionOptions& options) {
  const ProjectionColumns c = columns(layer);
  const Index dim = layer.head_dim_;
  const View<const float, 4> q =
      part_by_head(scratch_rows(Purpose::wide, x.shape[0], x.shape[1], c.q_width), 0, c.q_width, dim);
  const View<float, 4> out = by_head(scratch_rows(Purpose::heads, x.shape[0], x.shape[1], c.q_width), dim);
  if (source.kind == Kind::remembered) {
    checked_attention(function, q, keys_of(function, *source.cache, source.sequences), out, options, CheckLevel::full);
    return;
  }
  if (source.kind == Kind::grown) {
    const View<const Index, 1>& own = options.query_lengths;
    check_token_lengths(function, "query_lengths", own, x.shape[0], "x", x.shape[1], "rows a batch element");
    checked_attention(function, q, keys_of(function, *source.cache, source.sequences, x.shape[1], own), out, options,
                      CheckLevel::full);
    return;
  }
  const View<float, 3> kv = scratch_rows(Purpose::memory, source.memory.shape[0], source.memory.shape[1], c.end - c.k);
  checked_attention(function, q, {part_by_head(kv, 0, c.kv_width, dim), part_by_head(kv, c.v - c.k, c.kv_width, dim)},
                    out, options, CheckLevel::full);
}

void LayerCalls::check_remember(const char* function, const MultiHeadAttention& layer,
                                const View<const float, 3>& memory, const KvCache& cache,
                                std::span<const Index> sequences, const RememberOptions& options) {
  const Operand of_memory = operand(function, "memory", memory);
  check_operand(of_memory);
  check_made(function, layer);
  require(memory.shape[2] == layer.memory_width_, function, ": memory is ", of_memory, ", the layer takes rows of ",
          layer.memory_width_);
  check_threads(function, options.num_threads);
  const View<const Index, 1>&lengths = options.key_lengths, &starts = options.key_starts;
  const auto count = static_cast<Index>(sequences.size());
  if (!starts) {
    check_cache(function, layer, cache, sequences, memory.shape[0]);
    return check_token_lengths(function, "key_lengths", lengths, count, "memory", memory.shape[1],
                               "rows a batch element");
  }
  check_operand(operand(function, "key_starts", starts));
  check_cache(function, layer, cache, sequences, starts.shape[0] - 1);
  require(!lengths, function, ": key_lengths and key_starts are both given");
  require(memory.shape[0] == 1, function, ": memory has ", memory.shape[0],
          " batch elements, with key_starts it has 1");
  for (Index i = 0; i <= count; ++i)
    require(starts(i) >= (i == 0 ? 0 : starts(i - 1)) && starts(i) <= memory.shape[1], function, ": key_starts[", i,
            "] is ", starts(i), ", memory has ", memory.shape[1], " rows, and starts do not decrease");
}

void LayerCalls::project_memory(const MultiHeadAttention& layer, const View<const float, 3>& memory,
                                const View<float, 3>& kv, int num_threads) {
  const ProjectionColumns c = columns(layer);
  const bool apart = layer.memory_width_ != layer.x_width_;
  const PackedMatrix& weight = apart ? layer.memory_proj_ : layer.in_proj_;
  GemmOptions options{.num_threads = num_threads};
  if (!layer.in_bias_.empty()) options.bias = view_of(layer.in_bias_).slice(0, c.k, c.end);
  for_each_matrix(memory, kv, {}, [&](const auto& from, const auto& to, const auto&) {
    multiply(from, weight, apart ? 0 : c.k, to, options);
  });
}

void LayerCalls::attention(const char* function, const MultiHeadAttention& layer, const View<const float, 3>& x,
                           const KeySource& source, const View<float, 3>& y, const View<const float, 3>& residual,
                           const AttentionOptions& options) {
  const ProjectionColumns c = columns(layer);
  const Index batch = x.shape[0], length = x.shape[1], dim = layer.head_dim_;
  AttentionOptions all = options;
  if (!all.scale) all.scale = layer.scale_;

  const Index width = source.kind == Kind::x || source.kind == Kind::grown ? c.end : c.q_width;
  const View<float, 3> wide = scratch_rows(Purpose::wide, batch, length, width);
  GemmOptions in{.num_threads = options.num_threads};
  if (!layer.in_bias_.empty()) in.bias = view_of(layer.in_bias_).slice(0, 0, width);
  for_each_matrix(x, wide, {},
                  [&](const auto& from, const auto& to, const auto&) { multiply(from, layer.in_proj_, 0, to, in); });
  const View<float, 3> heads = scratch_rows(Purpose::heads, batch, length, c.q_width);
  const View<const float, 4> q = part_by_head(wide, 0, c.q_width, dim);
  const View<float, 4> out = by_head(heads, dim);
  const auto keys_and_values = [&](const View<float, 3>& from, Index k, Index v) {
    return KeysAndValues{part_by_head(from, k, c.kv_width, dim), part_by_head(from, v, c.kv_width, dim)};
  };
  switch (source.kind) {
    case Kind::x:
      attention_named(function, q, keys_and_values(wide, c.k, c.v), out, all);
      break;
    case Kind::memory: {
      const View<float, 3> kv =
          scratch_rows(Purpose::memory, source.memory.shape[0], source.memory.shape[1], c.end - c.k);
      project_memory(layer, source.memory, kv, options.num_threads);
      attention_named(function, q, keys_and_values(kv, 0, c.v - c.k), out, all);
      break;
    }
    case Kind::grown: {
      const KeysAndValues of_x = keys_and_values(wide, c.k, c.v);
      source.grown->append(source.sequences, of_x.k, of_x.v, options.query_lengths);
      all.causal = true;
      [[fallthrough]];
    }
    case Kind::remembered:
      attention_named(function, q, keys_of(function, *source.cache, source.sequences), out, all);
  }
  // Attention leaves rows of no sequence alone; here they are padding, which gives 0, and not what an earlier call left.
  if (const View<const Index, 1>& starts = options.query_starts; starts) {
    std::fill_n(heads.data, starts(0) * c.q_width, 0.0f);
    const Index end = starts(starts.shape[0] - 1);
    std::fill_n(heads.data + end * c.q_width, (length - end) * c.q_width, 0.0f);
  }
  for_each_matrix(heads, y, residual, [&](const auto& from, const auto& to, const auto& add) {
    multiply(from, layer.out_proj_.weight_, 0, to,
             {.bias = view_of(layer.out_proj_.bias_), .residual = add, .num_threads = options.num_threads});
  });
}

void LayerCalls::remember(const MultiHeadAttention& layer, const View<const float, 3>& memory, KvCache& cache,
                          std::span<const Index> sequences, const RememberOptions& options) {
  const ProjectionColumns c = columns(layer);
  const View<float, 3> kv = scratch_rows(Purpose::memory, memory.shape[0], memory.shape[1], c.end - c.k);
  project_memory(layer, memory, kv, options.num_threads);
  const View<const float, 4> k = part_by_head(kv, 0, c.kv_width, layer.head_dim_),
                             v = part_by_head(kv, c.v - c.k, c.kv_width, layer.head_dim_);
  const bool ragged = options.key_starts.data != nullptr, padded = options.key_lengths.data != nullptr;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const auto i = static_cast<Index>(s);
    const Index element = ragged ? 0 : i, first = ragged ? options.key_starts(i) : 0;
    const Index end = ragged ? options.key_starts(i + 1) : padded ? options.key_lengths(i) : memory.shape[1];
    cache.append(sequences[s], k.select(0, element).slice(1, first, end), v.select(0, element).slice(1, first, end));
  }
}

}  // namespace headlane::internal
