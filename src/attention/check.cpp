// Checks of attention's operands, and defaults. The options are checked in check_options.cpp.
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

void check_queries_and_keys(const Operand& q, const Operand& k) {
  check_head_dim(q);
  check_same(q, 0, "batch elements", k, 0, "batch elements");
  check_same(q, 3, "elements a head (head_dim)", k, 3, "elements a head (head_dim)");
  q.require(k.shape[1] > 0 ? q.shape[1] % k.shape[1] == 0 : q.shape[1] == 0, " has ", q.shape[1], " heads, ", k.name,
            " has ", k.shape[1], ", which does not divide them");
}

void check_values_and_out(const AttentionArguments& a) {
  check_head_dim(a.v);
  check_same(a.q, 0, "batch elements", a.v, 0, "batch elements");
  check_same(a.k, 1, "heads", a.v, 1, "heads");
  check_same(a.k, 2, "keys", a.v, 2, "values");
  check_same_rows(a.out, a.q);
  check_same(a.out, 3, "elements a head (head_dim)", a.v, 3, "elements a head (head_dim)");
}

/// Each of q, k, v and out as an operand. Data that a plan or a cache does not have is taken as
/// given.
void check_operands(const AttentionArguments& a) {
  alignas(64) static const float some = 0;
  const auto with_data = [&](Operand operand, bool given) {
    if (!given) operand.data = &some;
    return operand;
  };
  const bool full = a.level == CheckLevel::full;
  check_operand(with_data(a.q, full));
  for (const Operand* keys : {&a.k, &a.v})
    if (keys->rank != 0) check_operand(with_data(*keys, full && !a.cached));
  check_output(with_data(a.out, full));
  if (!full) return;
  check_no_overlap(a.out, a.q);
  for (const Operand* keys : {&a.k, &a.v})
    if (keys->rank != 0 && !a.cached) check_no_overlap(a.out, *keys);
}

/// ALiBi multiplies distances as floats.
void check_distances(Caller caller, const AttentionProblem& p) {
  if (!p.options.alibi_slopes || !has_rows(p)) return;
  for (Index i = 0; i < p.batch; ++i) {
    const Element e = element(p, i);
    if (e.queries == 0 || e.keys == 0) continue;
    const Index distance = std::max(e.position + e.queries - 1, std::min(e.keys, unbounded) - 1 - e.position);
    caller.require(distance <= max_alibi_distance, "alibi_slopes is given and a key is ", distance,
                   " positions from a query, which is exact up to ", max_alibi_distance);
  }
}

Index window_side(Index size) { return size < 0 ? unbounded : std::min(size, unbounded); }

int threads_of(const View<const float, 4>& q, const KeysAndValues& keys, const AttentionOptions& options, Index batch) {
  const auto size = [](Index n) { return static_cast<double>(n); };
  const double rows = size(q.shape[0]) * size(q.shape[1]) * size(q.shape[2]);
  const double sequences = !options.query_starts ? 1.0 : size(std::max<Index>(batch, 1));
  const double keys_of_row = size(keys.k.shape[2]) / sequences, dims = size(q.shape[3] + keys.v.shape[3]);
  const double all_keys = size(keys.k.shape[0]) * size(keys.k.shape[1]) * keys_of_row;
  return useful_threads(2.0 * rows * keys_of_row * dims, (rows + all_keys) * dims, options.num_threads);
}

AttentionProblem checked_problem(const AttentionArguments& a, const View<const float, 4>& q, const KeysAndValues& keys,
                                 const View<float, 4>& out) {
  check_operands(a);
  check_queries_and_keys(a.q, a.k);
  if (a.v.rank != 0) check_values_and_out(a);
  check_options(a);

  const AttentionOptions& options = a.options;
  const Index batch = batch_of(a);
  KeysAndValues safe_keys = keys;
  safe_keys.k = with_safe_strides(keys.k);
  if (keys.k.shape[2] == 0) safe_keys.v.strides = {};
  const AttentionProblem problem{.q = q,
                                 .keys = safe_keys,
                                 .out = out,
                                 .options = options,
                                 .batch = batch,
                                 .scale = options.scale.value_or(1.0f / std::sqrt(static_cast<float>(q.shape[3]))),
                                 .left = window_side(options.window_left),
                                 .right = options.causal ? 0 : window_side(options.window_right),
                                 .kernel = active(),
                                 .threads = threads_of(q, keys, options, batch)};
  check_distances(a.caller, problem);
  return problem;
}

}  // namespace

void check_head_dim(const Operand& operand) {
  operand.require(operand.shape[3] >= 1 && operand.shape[3] <= max_head_dim, " has head_dim ", operand.shape[3],
                  ", it must be 1 to ", max_head_dim);
}

Index KeysAndValues::cached(Index element) const {
  return cache->length(sequences[static_cast<std::size_t>(element)]) + (!growths ? growth : growths(element));
}

KeysAndValues keys_of(Caller caller, const KvCache& cache, std::span<const Index> sequences, Index growth,
                      const View<const Index, 1>& growths) {
  const KvPages& pages = KvPages::of(cache, caller);
  KeysAndValues keys{.k = {}, .v = {}, .cache = &pages, .sequences = sequences, .growth = growth, .growths = growths};
  const auto batch = static_cast<Index>(sequences.size());
  Index longest = 0;
  for (Index i = 0; i < batch; ++i) {
    const Index sequence = sequences[static_cast<std::size_t>(i)];
    caller.require(pages.has(sequence), "sequences[", i, "] is ", sequence, ", which the cache does not have");
    longest = std::max(longest, keys.cached(i));
  }
  keys.k = {nullptr, {batch, pages.kv_heads, longest, pages.head_dim}};
  keys.v = {nullptr, {batch, pages.kv_heads, longest, pages.value_dim}};
  return keys;
}

AttentionProblem checked_attention(Caller caller, const View<const float, 4>& q, const KeysAndValues& keys,
                                   const View<float, 4>& out, const AttentionOptions& options, CheckLevel level) {
  const AttentionOperands operands{caller.operand("q", q), caller.operand("k", keys.k), caller.operand("v", keys.v),
                                   caller.operand("out", out)};
  return checked_attention(operands, q, keys, out, options, level);
}

AttentionProblem checked_attention(const AttentionOperands& operands, const View<const float, 4>& q,
                                   const KeysAndValues& keys, const View<float, 4>& out,
                                   const AttentionOptions& options, CheckLevel level) {
  const Caller caller = operands.q.caller;
  const bool cached = keys.cache != nullptr;
  caller.require(!cached || !options.query_starts,
                 "query_starts is given with a cache, whose sequences are batch elements");
  AttentionArguments arguments{operands, caller, level, cached, options};
  if (cached) {
    arguments.k = caller.operand("cache", keys.k);
    arguments.v = caller.operand("cache", keys.v);
  }
  const AttentionProblem problem = checked_problem(arguments, q, keys, out);
  // The axis is as long as the longest sequence; a length belongs to one.
  for (Index i = 0; cached && options.key_lengths && i < problem.batch; ++i) {
    const Index length = options.key_lengths(i), max = keys.cached(i);
    caller.require(length <= max, "key_lengths[", i, "] is ", length, ", its sequence in the cache has ", max, " keys");
  }
  return problem;
}

AttentionProblem checked_scores(const AttentionOperands& operands, const View<const float, 4>& q,
                                const View<const float, 4>& k, const AttentionOptions& options) {
  const Caller caller = operands.q.caller;
  caller.require(!options.query_starts && !options.key_starts,
                 "query_starts or key_starts is given, sequences of variable length are not supported");
  caller.require(!options.sum && options.workspace.data() == nullptr,
                 "sum or workspace is given, which only attention has");
  return checked_problem({operands, caller, CheckLevel::full, false, options}, q, {.k = k, .v = {}}, {});
}

}  // namespace headlane::internal
