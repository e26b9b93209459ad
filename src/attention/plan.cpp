#include "attention/plan.hpp"

#include "attention/few_keys.hpp"
#include "attention/visible_keys.hpp"
#include "core/round.hpp"

#include <algorithm>

namespace headlane::internal {
namespace {

using kernels::block_size;
using kernels::panel_columns;

/// Packed keys and values at a time, unless one kv head alone takes more.
constexpr Index max_packed = Index{32} << 20 >> 2;  // 32 MiB in floats
/// A kv head of at most this size is packed by the task that uses it, into its own L2; a larger one
/// by all threads.
constexpr Index max_packed_by_task = Index{1} << 20 >> 2;  // 1 MiB in floats
/// Values that at most this many rows use are read in place: packing would not repay itself. Where
/// the rows of v are adjacent in memory, that holds for more rows (gain for 8 heads of 64 × 64: 4
/// %, of 2048 × 64: -1 %).
constexpr Index max_rows_in_place = 24, max_rows_in_place_adjacent = 256;
/// The next kv head is prefetched if it does not displace the present one, and if all heads
/// together do not fit into the L2 anyway (Zen 5: 64 × 8 heads of 32 × 64 from 60 to 100 GFLOP/s; 8
/// heads of 64 × 64, which fit, from 176 to 168).
constexpr Index max_prefetched = Index{256} << 10 >> 2, min_prefetched_from = Index{1} << 20 >> 2;  // 256 KiB, 1 MiB
/// Tasks for each thread, so that the last ones end at about the same time.
constexpr Index tasks_per_thread = 4;

/// The sizes that the choices below depend on.
struct Sizes {
  Index group;          // query heads that share a kv head
  Index kv_heads;       // of all batch elements
  Index queries;        // of the longest element, at least 1
  Index keys;           // number of keys that any query can attend to
  Index value_width;    // value_dim, rounded up to whole panels
  bool rows_are_heads;  // one query each: the query heads of a kv head are the rows of a tile
};

/// Number of keys that any query can attend to.
Index visible_keys(const AttentionProblem& p, Index queries) {
  const Index keys = longest_of(p.options.key_starts, p.keys.k.shape[2]);
  if (p.keys.cache != nullptr || p.options.causal_offsets) return keys;
  return visible_range(p, bounded_offset(p.options.causal_offset) + queries - 1, keys).end;
}

Sizes sizes_of(const AttentionProblem& p) {
  const Index queries = std::max<Index>(longest_of(p.options.query_starts, p.q.shape[2]), 1), group = group_size(p);
  return {.group = group,
          .kv_heads = total_kv_heads(p),
          .queries = queries,
          .keys = visible_keys(p, queries),
          .value_width = round_up(p.keys.v.shape[3], panel_columns),
          .rows_are_heads = queries == 1 && group > 1};
}

/// Whether the kernel can read values where they are.
bool can_read_values(const AttentionProblem& p) {
  const View<const float, 4>& v = p.keys.v;
  return v.strides[3] == 1 && v.shape[3] % kernels::lanes == 0;
}

/// One tile of rows does not repay packing, nor do two tiles of query heads whose keys come from
/// far: 8 × 1024 keys with 64 heads on 8 take 0.65 of the time in place (Zen 4, AVX2; from the L2
/// 1.14).
bool has_few_rows(const AttentionProblem& p, const Sizes& sizes) {
  const Index most_heads = keys_are_far(p) ? kernels::max_tile_rows : p.kernel.tile_rows;
  return sizes.rows_are_heads ? sizes.group <= most_heads : sizes.group == 1 && sizes.queries <= p.kernel.tile_rows;
}

/// Whether tasks that have all rows of a head have as much work each.
bool has_balanced_heads(const AttentionProblem& p, const Sizes& sizes) {
  return p.threads == 1 || sizes.kv_heads % p.threads == 0 || sizes.kv_heads >= tasks_per_thread * p.threads;
}

/// Whether a tile of rows or less and about as many keys are left to few_keys.hpp: 12 × 12 in 0.76
/// of the time, 8 × 8 in 0.75, 9 × 12 in 0.84; with AVX2 4 × 4 and 6 × 6 in 0.82 (Zen 4). More keys
/// lose: 8 × 32 would take 1.12 of the time, with AVX2 4 × 16 1.5.
bool suits_few_keys(const AttentionProblem& p, const Sizes& sizes) {
  return !sizes.rows_are_heads && has_balanced_heads(p, sizes) && 2 * sizes.keys <= 3 * sizes.queries &&
         may_have_few_keys(p, sizes.queries, sizes.keys);
}

/// Whether nothing is packed: keys of a cache are packed already.
bool is_in_place(const AttentionProblem& p, const Sizes& sizes) {
  if (p.keys.cache != nullptr || p.keys.halves != nullptr) return true;
  const View<const float, 4>& k = p.keys.k;
  return has_few_rows(p, sizes) && !suits_few_keys(p, sizes) && can_read_values(p) && k.strides[3] == 1 &&
         k.strides[2] != 0;
}

bool packs_values(const AttentionProblem& p, const Sizes& sizes) {
  const bool adjacent = p.keys.v.strides[2] == p.keys.v.shape[3];
  const Index uses = std::min(sizes.queries, p.left + p.right + 1) * sizes.group;  // rows that use a value
  return !can_read_values(p) || uses > (adjacent ? max_rows_in_place_adjacent : max_rows_in_place);
}

KeyBlocks choose_blocks(const AttentionProblem& p, const Sizes& sizes) {
  if (is_in_place(p, sizes))
    return {.keys = sizes.keys, .count = ceil_div(sizes.keys, block_size), .key_floats = 0, .value_floats = 0};
  return packed_blocks(sizes.keys, p.keys.k.shape[3], packs_values(p, sizes) ? sizes.value_width : 0);
}

Strategy choose_strategy(const AttentionProblem& p, const Sizes& sizes, const KeyBlocks& blocks) {
  if (is_in_place(p, sizes)) return Strategy::in_place;
  if (p.threads == 1) return Strategy::by_head;
  return has_balanced_heads(p, sizes) && blocks.floats() <= max_packed_by_task ? Strategy::by_head : Strategy::by_rows;
}

Index choose_heads_per_round(const Sizes& sizes, Strategy strategy, const KeyBlocks& blocks) {
  if (strategy != Strategy::by_rows) return 1;
  return std::clamp<Index>(max_packed / std::max<Index>(blocks.floats(), 1), 1, sizes.kv_heads);
}

Index choose_rows_per_task(const AttentionProblem& p, const Sizes& sizes, Strategy strategy, Index heads_per_round) {
  const Index max_per_task = std::min(sizes.rows_are_heads ? sizes.group : sizes.queries, max_rows);
  if (strategy == Strategy::by_head || sizes.rows_are_heads) return max_per_task;
  const Index rows = (strategy == Strategy::by_rows ? heads_per_round : sizes.kv_heads) * sizes.group * sizes.queries;
  return std::min(max_per_task, round_up(ceil_div(rows, tasks_per_thread * p.threads), p.kernel.tile_rows));
}

/// Tasks share the keys of their rows if there are too few tasks for the threads otherwise.
Index choose_key_parts(const AttentionProblem& p, Strategy strategy, Index row_tasks, Index blocks) {
  const Index wanted = tasks_per_thread * p.threads;
  if (strategy != Strategy::in_place || row_tasks >= wanted || row_tasks % p.threads == 0) return 1;
  return std::clamp<Index>(ceil_div(wanted, row_tasks), 1, std::max<Index>(blocks, 1));
}

/// Causal attention makes the later rows of a head longer tasks, which come first. Keys from far:
/// neighbours at one time, whose next keys they prefetch (key_block.cpp): by ranges 8 × 1024 keys
/// of a cache took 1.04 of the time, from the L2 512 keys 0.9 (Emerald Rapids).
Order choose_order(const AttentionProblem& p, Strategy strategy, Index heads_at_a_time, Index key_parts) {
  if (key_parts > 1) return Order::by_thread;
  const bool one_by_one =
      (strategy == Strategy::in_place && keys_are_far(p)) || (p.options.causal && heads_at_a_time < p.threads);
  return one_by_one ? Order::one_by_one : Order::by_thread;
}

bool choose_prefetch(const AttentionProblem& p, const Sizes& sizes, Strategy strategy, const KeyBlocks& blocks) {
  const Index head_dim = p.keys.k.shape[3], value_dim = p.keys.v.shape[3];
  const auto heads = static_cast<double>(sizes.kv_heads);
  const double inputs = heads * static_cast<double>(sizes.group * sizes.queries * head_dim) +
                        heads * static_cast<double>(sizes.keys * (head_dim + value_dim));
  return strategy == Strategy::by_head && blocks.floats() <= max_prefetched &&
         inputs > static_cast<double>(min_prefetched_from);
}

}  // namespace

KeyBlocks packed_blocks(Index keys, Index head_dim, Index value_width) {
  const Index longest = std::min(block_size, round_up(keys, panel_columns));
  return {.keys = keys,
          .count = ceil_div(keys, block_size),
          .key_floats = longest * head_dim,
          .value_floats = longest * value_width};
}

bool has_few_rows(const AttentionProblem& p) { return has_few_rows(p, sizes_of(p)); }

TaskPlan plan_tasks(const AttentionProblem& p) {
  const Sizes sizes = sizes_of(p);
  const KeyBlocks blocks = choose_blocks(p, sizes);
  const Strategy strategy = choose_strategy(p, sizes, blocks);
  const Index heads_per_round = choose_heads_per_round(sizes, strategy, blocks);
  const Index rows_per_task = choose_rows_per_task(p, sizes, strategy, heads_per_round);
  const Index row_parts = ceil_div(sizes.rows_are_heads ? sizes.group : sizes.queries, rows_per_task);
  const Index parts = row_parts * (sizes.rows_are_heads ? 1 : sizes.group);
  const Index row_tasks = sizes.kv_heads * (strategy == Strategy::by_head ? 1 : parts);
  const Index key_parts = choose_key_parts(p, strategy, row_tasks, blocks.count);
  const Order order =
      choose_order(p, strategy, strategy == Strategy::by_rows ? heads_per_round : sizes.kv_heads, key_parts);
  return {.strategy = strategy,
          .blocks = blocks,
          .value_width = sizes.value_width,
          .rows_are_heads = sizes.rows_are_heads,
          .rows_per_task = rows_per_task,
          .row_parts = row_parts,
          .parts = parts,
          .key_parts = key_parts,
          .heads_per_round = heads_per_round,
          .tasks = row_tasks * key_parts,
          .order = order,
          .head_step = order == Order::one_by_one ? std::max<Index>(p.threads / parts, 1) : 1,
          .few_keys = strategy == Strategy::by_head && may_have_few_keys(p, rows_per_task, sizes.keys),
          .prefetches = choose_prefetch(p, sizes, strategy, blocks)};
}

}  // namespace headlane::internal
