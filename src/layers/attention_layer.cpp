// The computation of MultiHeadAttention: one product for queries, keys and values, attention over
// views of its result, the output projection.
#include "layers/attention_layer.hpp"

#include "attention/problem.hpp"
#include "core/round.hpp"
#include "core/scratch.hpp"
#include "gemm/check.hpp"
#include "layers/rows.hpp"
#include "layers/team_output.hpp"

#include <algorithm>
#include <cstddef>

namespace headlane::internal {
namespace {

using Kind = KeySource::Kind;

/// Heads in the columns first … first + width-1, as [batch, head, length, dim]. A rank of a team
/// may have none.
View<const float, 4> heads_in(const View<float, 3>& columns, Index first, Index width, Index dim) {
  if (width == 0) return {columns.data, {columns.shape[0], 0, columns.shape[1], dim}};
  return by_head(View<const float, 3>(columns).slice(2, first, first + width), dim);
}

/// The options of the heads of this rank.
AttentionOptions own_options(const MultiHeadAttention& layer, const AttentionOptions& options) {
  AttentionOptions own = options;
  if (!own.scale) own.scale = layer.scale();
  const Shares& shares = layer.shares();
  if (!shares.divided()) return own;
  const Index first = shares.begin() * group_of(layer), end = shares.end() * group_of(layer);
  const auto slice = [&](auto& option, int axis) {
    if (option) option = option.slice(axis, first, end);
  };
  slice(own.mask, 1);
  slice(own.mask_bits, 1);
  slice(own.bias, 1);
  slice(own.alibi_slopes, 0);
  slice(own.relative_bias.table, 0);
  slice(own.sinks, 0);
  slice(own.lse, 1);
  return own;
}

/// Completes the log-sum-exps of all heads. Rows of no sequence are left alone.
void gather_lse(const MultiHeadAttention& layer, const AttentionOptions& options) {
  if (!options.lse || !layer.shares().divided()) return;
  View<float, 3> lse = options.lse;
  if (const auto& starts = options.query_starts) lse = lse.slice(2, starts(0), starts(starts.shape[0] - 1));
  const View<float, 3> by_rows = lse.permuted({0, 2, 1});
  const TeamOutput all(layer.shares(), group_of(layer), by_rows);
  const View<const float, 3> from = all.own_of(by_rows);
  const auto [batch, length, heads] = from.shape;
  for (Index b = 0; b < batch; ++b)
    for (Index i = 0; i < length; ++i)
      for (Index h = 0; h < heads; ++h) all.own()(b, i, h) = from(b, i, h);
  all.gather(options.num_threads);
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
  if (width == 0) return;
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
  return projection_columns(layer.kv_heads() * group_of(layer), layer.kv_heads(), layer.head_dim());
}

AppendGuard::AppendGuard(KvCache& cache, std::span<const Index> sequences)
    : cache_(cache), sequences_(sequences), lengths_(kept_object<std::vector<Index>>()) {
  lengths_.clear();
  for (const Index s : sequences) lengths_.push_back(cache.length(s));
}

AppendGuard::~AppendGuard() {
  for (std::size_t i = 0; !committed_ && i < sequences_.size(); ++i) cache_.truncate(sequences_[i], lengths_[i]);
}

namespace {

/// out = attention of the heads of this rank to keys of x, whose projection `wide` is, of memory or
/// of a cache, to which the former are appended.
void attend_own_heads(Caller caller, const MultiHeadAttention& layer, const View<float, 3>& wide,
                      const KeySource& source, const View<float, 3>& out, AttentionOptions options) {
  const ProjectionColumns c = projection_columns(layer);
  const Index dim = layer.head_dim();
  const auto keys_in = [&](const View<float, 3>& columns, Index k, Index v) {
    return KeysAndValues{heads_in(columns, k, c.kv_width, dim), heads_in(columns, v, c.kv_width, dim)};
  };
  const auto attend_to = [&](const KeysAndValues& keys) {
    if (c.q_width > 0) attention_named(caller, heads_in(wide, 0, c.q_width, dim), keys, by_head(out, dim), options);
  };
  switch (source.kind) {
    case Kind::self:
      return attend_to(keys_in(wide, c.k, c.v));
    case Kind::memory: {
      const View<float, 3> kv =
          scratch_rows(Purpose::memory, source.memory.shape[0], source.memory.shape[1], c.end - c.k);
      project(layer, source.memory, kv, options.num_threads);
      return attend_to(keys_in(kv, 0, c.v - c.k));
    }
    case Kind::growing_cache: {
      const KeysAndValues of_x = keys_in(wide, c.k, c.v);
      source.growing->append(source.sequences, of_x.k, of_x.v, options.query_lengths);
      options.causal = true;
      [[fallthrough]];
    }
    case Kind::projected_cache:
      return attend_to(keys_of(caller, *source.cache, source.sequences));
  }
}

}  // namespace

void attend(Caller caller, const MultiHeadAttention& layer, const View<const float, 3>& x, const KeySource& source,
            const View<float, 3>& y, const View<const float, 3>& residual, const AttentionOptions& options) {
  const Shares& shares = layer.shares();
  const ProjectionColumns c = projection_columns(layer);
  const Index batch = x.shape[0], length = x.shape[1], dim = layer.head_dim();
  const Index width = source.from_x() ? c.end : c.q_width;
  const View<float, 3> wide = scratch_rows(Purpose::wide, batch, length, width);
  GemmOptions in{.activations = layer.out_proj().activations(), .num_threads = options.num_threads};
  if (const auto bias = layer.in_proj_bias(); bias) in.bias = bias.slice(0, 0, width);
  for_each_matrix(x, wide, {},
                  [&](const auto& from, const auto& to, const auto&) { multiply(from, layer.in_proj(), 0, to, in); });

  const View<float, 3> heads = scratch_rows(Purpose::heads, batch, length, layer.heads() * dim);
  const TeamOutput all_heads(shares, group_of(layer) * dim, heads);
  attend_own_heads(caller, layer, wide, source, all_heads.own(), own_options(layer, options));
  if (options.query_starts) clear_padding(all_heads.own(), options.query_starts);
  all_heads.gather(options.num_threads);
  gather_lse(layer, options);

  const TeamOutput out(layer.out_proj().columns(), 1, y);
  for_each_matrix(heads, out.own(), out.own_of(residual), [&](const auto& from, const auto& to, const auto& add) {
    multiply(from, layer.out_proj().weight(), 0, to,
             {.bias = layer.out_proj().bias(),
              .residual = add,
              .activations = layer.out_proj().activations(),
              .num_threads = options.num_threads});
  });
  out.gather(options.num_threads);
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
