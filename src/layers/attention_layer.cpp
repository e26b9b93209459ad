// The computation of MultiHeadAttention: one product for queries, keys and values, attention over
// views of its result, the output projection.
#include "layers/attention_layer.hpp"

#include "attention/problem.hpp"
#include "core/round.hpp"
#include "core/scratch.hpp"
#include "gemm/check.hpp"
#include "layers/rows.hpp"

#include <algorithm>
#include <cstddef>

namespace headlane::internal {
namespace {

using Kind = KeySource::Kind;

/// Heads in the columns first … first + width-1, as [batch, head, length, dim].
View<const float, 4> heads_in(const View<float, 3>& columns, Index first, Index width, Index dim) {
  return by_head(View<const float, 3>(columns).slice(2, first, first + width), dim);
}

/// kv = the columns of k and v of the projection of memory.
void project(const MultiHeadAttention& layer, const View<const float, 3>& memory, const View<float, 3>& kv,
             int num_threads) {
  const ProjectionColumns c = projection_columns(layer);
  const bool apart = layer.kv_dim() != x_width(layer);
  const PackedMatrix& weight = apart ? layer.memory_proj() : layer.in_proj();
  GemmOptions options{.activations = layer.out_proj().activations(), .num_threads = num_threads};
  if (const auto bias = layer.in_proj_bias(); bias) options.bias = bias.slice(0, c.k, c.end);
  for_each_matrix(memory, kv, {}, [&](const auto& from, const auto& to, const auto&) {
    multiply(from, weight, apart ? 0 : c.k, to, options);
  });
}

/// Zeroes the rows that belong to no sequence, which attention leaves alone: the output projection
/// must not read what an earlier call left there.
void clear_padding(const View<float, 3>& heads, const View<const Index, 1>& starts) {
  const Index width = heads.shape[2], end = starts(starts.shape[0] - 1);
  std::fill_n(heads.data, starts(0) * width, 0.0f);
  std::fill_n(heads.data + end * width, (heads.shape[1] - end) * width, 0.0f);
}

}  // namespace

ProjectionColumns projection_columns(Index heads, Index kv_heads, Index head_dim) {
  const Index q = heads * head_dim, kv = kv_heads * head_dim;
  const Index k = round_up(q, kernels::panel_columns), v = k + round_up(kv, kernels::panel_columns);
  return {q, kv, k, v, v + kv};
}

ProjectionColumns projection_columns(const MultiHeadAttention& layer) {
  return projection_columns(layer.heads(), layer.kv_heads(), layer.head_dim());
}

AppendGuard::AppendGuard(KvCache& cache, std::span<const Index> sequences)
    : cache_(cache), sequences_(sequences), lengths_(kept_object<std::vector<Index>>()) {
  lengths_.clear();
  for (const Index s : sequences) lengths_.push_back(cache.length(s));
}

AppendGuard::~AppendGuard() {
  for (std::size_t i = 0; !committed_ && i < sequences_.size(); ++i) cache_.truncate(sequences_[i], lengths_[i]);
}

void attend(Caller caller, const MultiHeadAttention& layer, const View<const float, 3>& x, const KeySource& source,
            const View<float, 3>& y, const View<const float, 3>& residual, const AttentionOptions& options) {
  const ProjectionColumns c = projection_columns(layer);
  const Index batch = x.shape[0], length = x.shape[1], dim = layer.head_dim();
  AttentionOptions all = options;
  if (!all.scale) all.scale = layer.scale();

  const Index width = source.from_x() ? c.end : c.q_width;
  const View<float, 3> wide = scratch_rows(Purpose::wide, batch, length, width);
  GemmOptions in{.activations = layer.out_proj().activations(), .num_threads = options.num_threads};
  if (const auto bias = layer.in_proj_bias(); bias) in.bias = bias.slice(0, 0, width);
  for_each_matrix(x, wide, {},
                  [&](const auto& from, const auto& to, const auto&) { multiply(from, layer.in_proj(), 0, to, in); });
  const View<float, 3> heads = scratch_rows(Purpose::heads, batch, length, c.q_width);
  const View<const float, 4> q = heads_in(wide, 0, c.q_width, dim);
  const View<float, 4> out = by_head(heads, dim);
  const auto keys_in = [&](const View<float, 3>& columns, Index k, Index v) {
    return KeysAndValues{heads_in(columns, k, c.kv_width, dim), heads_in(columns, v, c.kv_width, dim)};
  };
  switch (source.kind) {
    case Kind::self:
      attention_named(caller, q, keys_in(wide, c.k, c.v), out, all);
      break;
    case Kind::memory: {
      const View<float, 3> kv =
          scratch_rows(Purpose::memory, source.memory.shape[0], source.memory.shape[1], c.end - c.k);
      project(layer, source.memory, kv, options.num_threads);
      attention_named(caller, q, keys_in(kv, 0, c.v - c.k), out, all);
      break;
    }
    case Kind::growing_cache: {
      const KeysAndValues of_x = keys_in(wide, c.k, c.v);
      source.growing->append(source.sequences, of_x.k, of_x.v, options.query_lengths);
      all.causal = true;
      [[fallthrough]];
    }
    case Kind::projected_cache:
      attention_named(caller, q, keys_of(caller, *source.cache, source.sequences), out, all);
  }
  if (options.query_starts) clear_padding(heads, options.query_starts);
  for_each_matrix(heads, y, residual, [&](const auto& from, const auto& to, const auto& add) {
    multiply(from, layer.out_proj().weight(), 0, to,
             {.bias = layer.out_proj().bias(),
              .residual = add,
              .activations = layer.out_proj().activations(),
              .num_threads = options.num_threads});
  });
}

void project_memory(const MultiHeadAttention& layer, const View<const float, 3>& memory, KvCache& cache,
                    std::span<const Index> sequences, const ProjectMemoryOptions& options) {
  const ProjectionColumns c = projection_columns(layer);
  const View<float, 3> kv = scratch_rows(Purpose::memory, memory.shape[0], memory.shape[1], c.end - c.k);
  project(layer, memory, kv, options.num_threads);
  const View<const float, 4> k = heads_in(kv, 0, c.kv_width, layer.head_dim()),
                             v = heads_in(kv, c.v - c.k, c.kv_width, layer.head_dim());
  const View<const Index, 1>&lengths = options.key_lengths, &starts = options.key_starts;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const auto i = static_cast<Index>(s);
    const Index element = starts ? 0 : i, first = starts ? starts(i) : 0;
    const Index end = starts ? starts(i + 1) : lengths ? lengths(i) : memory.shape[1];
    cache.append(sequences[s], k.select(0, element).slice(1, first, end), v.select(0, element).slice(1, first, end));
  }
}

}  // namespace headlane::internal
