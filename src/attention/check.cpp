// Attention: checks of the operands, and defaults. Those of the options are in check_options.cpp.
#include "attention/check.hpp"

#include "attention/kv_pages.hpp"
#include "core/dispatch.hpp"
#include "core/parallel.hpp"
#include "kernels/table.hpp"

#include <headlane/limits.hpp>

#include <algorithm>
#include <cmath>

namespace headlane::internal {
namespace {

static_assert(max_head_dim == kernels::block_size);

void check_dim(const Operand& operand) {
  operand.require(operand.shape[3] >= 1 && operand.shape[3] <= max_head_dim, " has head_dim ", operand.shape[3],
                  ", it must be 1 to ", max_head_dim);
}

void check_queries_and_keys(const Operand& q, const Operand& k) {
  check_dim(q);
  check_same(q, 0, "batch elements", k, 0, "batch elements");
  check_same(q, 3, "elements a head (head_dim)", k, 3, "elements a head (head_dim)");
  q.require(k.shape[1] > 0 ? q.shape[1] % k.shape[1] == 0 : q.shape[1] == 0, " has ", q.shape[1], " heads, ", k.name,
            " has ", k.shape[1], ", which does not divide them");
}

void check_values_and_out(const Operand& q, const Operand& k, const Operand& v, const Operand& out) {
  check_dim(v);
  check_same(q, 0, "batch elements", v, 0, "batch elements");
  check_same(k, 1, "heads", v, 1, "heads");
  check_same(k, 2, "keys", v, 2, "values");
  check_same_rows(out, q);
  check_same(out, 3, "elements a head (head_dim)", v, 3, "elements a head (head_dim)");
}

/// Sizes, strides, and unless it is for a plan whether there are data.
void check_each(const AttentionOperands& o, bool cached) {
  alignas(64) static const float some = 0;
  const auto with_data = [&](Operand operand, bool instead) {
    if (instead) operand.data = &some;
    return operand;
  };
  const bool plan = o.look == Look::shapes;
  check_operand(with_data(o.q, plan));
  for (const Operand* keys : {&o.k, &o.v})
    if (keys->rank != 0) check_operand(with_data(*keys, plan || cached));
  check_output(with_data(o.result, plan));
  if (plan) return;
  check_no_overlap(o.result, o.q);
  for (const Operand* keys : {&o.k, &o.v})
    if (!cached) check_no_overlap(o.result, *keys);
}

/// lse and sum against what is multiplied; options are compared with all that is written in check_options.
void check_apart(const AttentionOperands& o, bool cached, const AttentionOptions& options) {
  if (o.look == Look::shapes) return;
  for (const Operand& written : {o.operand("lse", options.lse), o.operand("sum", options.sum)}) {
    check_no_overlap(written, o.q);
    for (const Operand* keys : {&o.k, &o.v})
      if (!cached) check_no_overlap(written, *keys);
  }
}

/// ALiBi multiplies distances, as floats.
void check_distances(const char* function, const AttentionProblem& p) {
  if (!p.given.alibi_slopes) return;
  for (Index i = 0; i < p.batch; ++i) {
    const Element e = element(p, i);
    if (e.queries == 0 || e.keys == 0) continue;
    const Index distance = std::max(e.offset + e.queries - 1, e.keys - 1 - e.offset);
    require(distance <= max_alibi_distance, function, ": alibi_slopes is given and a key is ", distance,
            " positions from a query, which is exact up to ", max_alibi_distance);
  }
}

AttentionProblem problem_of(const AttentionOperands& o, const View<const float, 4>& q, const KeysAndValues& keys,
                            const View<float, 4>& out, const AttentionOptions& options) {
  check_each(o, keys.cache != nullptr);
  check_queries_and_keys(o.q, o.k);
  if (o.v.rank != 0) check_values_and_out(o.q, o.k, o.v, o.result);
  const Index batch = batch_of(o, options);
  check_options(o, options, batch);
  check_apart(o, keys.cache != nullptr, options);

  // A side of the window that is not bounded: beyond every key from every position.
  const auto bounded = [](Index window) {
    constexpr Index beyond = Index{1} << 42;
    return window < 0 ? beyond : std::min(window, beyond);
  };
  const View<const float, 4>&k = keys.k, &v = keys.v;
  const double rows =
      static_cast<double>(q.shape[0]) * static_cast<double>(q.shape[1]) * static_cast<double>(q.shape[2]);
  const double keys_of_row = static_cast<double>(k.shape[2]) /
                             (!options.query_starts ? 1.0 : static_cast<double>(std::max<Index>(batch, 1))),
               dims = static_cast<double>(q.shape[3] + v.shape[3]);
  const double all_keys = static_cast<double>(k.shape[0]) * static_cast<double>(k.shape[1]) * keys_of_row;
  KeysAndValues safe_keys = keys;
  safe_keys.k = with_safe_strides(k);
  if (k.shape[2] == 0) safe_keys.v.strides = {};
  const AttentionProblem problem{
      .q = q,
      .keys = safe_keys,
      .out = out,
      .given = options,
      .batch = batch,
      .scale = options.scale.value_or(1.0f / std::sqrt(static_cast<float>(q.shape[3]))),
      .left = bounded(options.window_left),
      .right = options.causal ? 0 : bounded(options.window_right),
      .kernel = active(),
      .threads = useful_threads(2.0 * rows * keys_of_row * dims, (rows + all_keys) * dims, options.num_threads)};
  check_distances(o.function, problem);
  return problem;
}

}  // namespace

Index KeysAndValues::cached(Index element) const {
  return cache->length(sequences[static_cast<std::size_t>(element)]) + (!growths ? growth : growths(element));
}

KeysAndValues keys_of(const char* function, const KvCache& cache, std::span<const Index> sequences, Index growth,
                      const View<const Index, 1>& growths) {
  const KvPages& pages = pages_of(cache, function);
  KeysAndValues keys{.k = {}, .v = {}, .cache = &pages, .sequences = sequences, .growth = growth, .growths = growths};
  const auto batch = static_cast<Index>(sequences.size());
  Index longest = 0;
  for (Index i = 0; i < batch; ++i) {
    const Index sequence = sequences[static_cast<std::size_t>(i)];
    require(pages.has(sequence), function, ": sequences[", i, "] is ", sequence, ", which the cache does not have");
    longest = std::max(longest, keys.cached(i));
  }
  keys.k = {nullptr, {batch, pages.kv_heads, longest, pages.head_dim}};
  keys.v = {nullptr, {batch, pages.kv_heads, longest, pages.value_dim}};
  return keys;
}

AttentionProblem checked_attention(const char* function, const View<const float, 4>& q, const KeysAndValues& keys,
                                   const View<float, 4>& out, const AttentionOptions& options, Look look) {
  const bool cached = keys.cache != nullptr;
  require(!cached || !options.query_starts, function,
          ": query_starts is given with a cache, whose sequences are batch elements");
  const AttentionProblem problem = problem_of({.function = function,
                                               .look = look,
                                               .q = operand(function, "q", q),
                                               .k = operand(function, cached ? "cache" : "k", keys.k),
                                               .result = operand(function, "out", out),
                                               .v = operand(function, cached ? "cache" : "v", keys.v)},
                                              q, keys, out, options);
  // The axis is as long as the longest sequence; a length belongs to one.
  for (Index i = 0; cached && options.key_lengths && i < problem.batch; ++i) {
    const Index length = options.key_lengths(i), most = keys.cached(i);
    require(length <= most, function, ": key_lengths[", i, "] is ", length, ", its sequence in the cache has ", most,
            " keys");
  }
  return problem;
}

AttentionProblem checked_scores(const char* function, const View<const float, 4>& q, const View<const float, 4>& k,
                                const Operand& result, const AttentionOptions& options) {
  require(!options.query_starts && !options.key_starts, function,
          ": query_starts or key_starts is given, ragged batches are not supported");
  require(!options.sum && options.workspace.data() == nullptr, function,
          ": sum or workspace is given, which only attention has");
  const AttentionOperands operands{.function = function,
                                   .look = Look::all,
                                   .q = operand(function, "q", q),
                                   .k = operand(function, "k", k),
                                   .result = result,
                                   .v = {}};
  return problem_of(operands, q, {.k = k, .v = {}}, {}, options);
}

}  // namespace headlane::internal
