// Attention: the way of a task through the blocks of keys, and how tasks share the work. How a call is divided is in plan.cpp,
// the arithmetic in kernels/attention/block.hpp.
#include "attention/prefetch.hpp"
#include "core/parallel.hpp"
#include "core/round.hpp"

#include <algorithm>
#include <limits>

namespace headlane::internal {
namespace {

using kernels::AttentionState;
using kernels::block_size;

/// The state of rows in `part()` floats.
AttentionState state_at(const AttentionCut& cut, float* memory) {
  return {memory + 2 * cut.rows_of_task, cut.value_width, memory, memory + cut.rows_of_task};
}

void clear(const AttentionState& state, Index rows) {
  std::fill_n(state.out, rows * state.out_step, 0.0f);
  std::fill_n(state.max, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(state.sum, rows, 0.0f);
}

/// Where the result of the rows goes. `sinks`: whether they take part.
kernels::AttentionOutput output_of(const Call& call, const Rows& rows, const AttentionBuffers& b, bool sinks) {
  const AttentionOptions& o = call.p.given;
  return {.rows = rows.count,
          .value_dim = call.p.keys.v.shape[3],
          .out = at(call.p.out, rows),
          .row_step = step(call.p.out, rows),
          .column_step = call.p.out.strides[3],
          .lse = !o.lse ? nullptr : at(o.lse, rows),
          .lse_step = step(o.lse, rows),
          .sum = !o.sum ? nullptr : at(o.sum, rows),
          .sum_step = step(o.sum, rows),
          .sinks = sinks ? per_row(o.sinks, rows, b.per_row + most_rows) : nullptr};
}

/// One block of keys, if some row sees one of them: merged into the state, or, if that is fresh, made the state.
template <class Find>
bool attend_block(const Call& call, const Rows& rows, const AttentionBuffers& b, Index number, const Find& find,
                  kernels::AttentionBlock& block) {
  SeenKeys seen;
  if (!look(call.p, call.runs, rows, number * block_size, b.distances, seen, block)) return false;
  BlockOfKeys keys;
  find(number, keys);
  block.keys = keys.block;
  call.p.kernel.attention_block(block);
  return true;
}

/// `find(block, keys)` says where a block is; it is called at most once for each, in order.
template <class Find>
void attend(const Call& call, const Rows& rows, const AttentionBuffers& b, const ToFetch& to_fetch, const Find& find) {
  kernels::AttentionBlock block = begin_rows(call, rows, b);
  block.state = state_at(call.cut, b.state);
  block.fresh = true;
  std::copy(to_fetch.begin(), to_fetch.end(), block.fetch);
  const kernels::AttentionOutput output = output_of(call, rows, b, true);
  const Keys keys = keys_of(call.p, rows);
  const Index first = keys.begin / block_size, end = ceil_div(keys.end, block_size);
  const bool at_once = end - first == 1 && output.column_step == 1;  // nothing to merge
  if (at_once) block.output = &output;
  for (Index i = first; i < end; ++i) {
    if (!attend_block(call, rows, b, i, find, block)) continue;
    block.fresh = false;
    std::fill_n(block.fetch, to_fetch.size(), kernels::Fetch{});  // done
  }
  if (block.fresh) clear(block.state, rows.count);
  else if (at_once) return;
  call.p.kernel.attention_finish(block.state, output);
}

/// Those that are no padding.
Rows there(Rows rows) {
  if (rows.axis == 2) rows.count = std::clamp<Index>(rows.of.queries - rows.first, 0, rows.count);
  else if (rows.of.queries == 0) rows.count = 0;
  return rows;
}

/// Zeros for the others.
void clear_padding(const Call& call, Rows rows, const AttentionBuffers& b) {
  const Index skip = there(rows).count;
  if (skip == rows.count) return;
  rows.first += skip;  // 0 where rows are heads
  rows.count -= skip;
  const AttentionState state = state_at(call.cut, b.state);
  clear(state, rows.count);
  call.p.kernel.attention_finish(state, output_of(call, rows, b, false));
}

/// Part `part` of the rows of a kv head: `count` is 0 if the element has none there.
Rows rows_of(const Call& call, Index pair, Index part) {
  const AttentionCut& cut = call.cut;
  const Index kv_heads = call.p.keys.k.shape[1], group = group_of(call.p);
  Rows rows{
      .of = element(call.p, pair / kv_heads), .kv_head = pair % kv_heads, .head = 0, .first = 0, .count = 0, .axis = 2};
  const Index first = part % cut.parts * cut.rows_of_task;
  rows.head = rows.kv_head * group;
  if (cut.heads_together) {
    rows.axis = 1;
    rows.head += first;
    rows.count = rows.of.rows == 0 ? 0 : std::min(cut.rows_of_task, group - first);
  } else {
    rows.head += part / cut.parts;
    rows.first = first;
    rows.count = std::clamp<Index>(rows.of.rows - first, 0, cut.rows_of_task);
  }
  return rows;
}

Index parts_of_pair(const Call& call) { return call.cut.parts * (call.cut.heads_together ? 1 : group_of(call.p)); }

template <class Find>
void run_task(const Call& call, const AttentionBuffers& b, Index pair, Index part, const ToFetch& to_fetch,
              const Find& find) {
  const Rows all = rows_of(call, pair, part), rows = there(all);
  clear_padding(call, all, b);
  if (rows.count > 0)
    attend(call, rows, b, to_fetch, [&](Index block, BlockOfKeys& found) { find(rows, block, found); });
}

/// Each block is packed when its turn comes, and is then in the L2 for the first rows that read it; if one pass serves all rows of a kv
/// head, all blocks go into the same memory.
void by_head(const Call& call, const AttentionMemory& memory) {
  const AttentionProblem& p = call.p;
  const AttentionCut& cut = call.cut;
  const Index parts = parts_of_pair(call);
  parallel_for(pairs_of(p), p.threads, [&](Index pair, int thread) {
    const AttentionBuffers b = memory.of_thread(thread);
    if (parts == 1)
      return run_task(call, b, pair, 0, next_of(call, pair, 0, 1),
                      [&](const Rows& rows, Index block, BlockOfKeys& found) {
                        const PackedBlock here{b.packed, b.packed + cut.key_block};
                        pack_block(p, cut, rows.of, rows.kv_head, block, here);
                        find_packed(p, cut, rows, block, here, found);
                      });
    Index packed = 0;  // blocks
    for (Index part = 0; part < parts; ++part)
      run_task(call, b, pair, part, next_of(call, pair, part, parts),
               [&](const Rows& rows, Index block, BlockOfKeys& found) {
                 for (; packed <= block; ++packed)
                   pack_block(p, cut, rows.of, rows.kv_head, packed, packed_block(cut, b.packed, packed));
                 find_packed(p, cut, rows, block, packed_block(cut, b.packed, block), found);
               });
  });
}

void by_rows(const Call& call, const AttentionMemory& memory) {
  const AttentionProblem& p = call.p;
  const AttentionCut& cut = call.cut;
  const Index pairs = pairs_of(p), parts = parts_of_pair(call), kv_heads = p.keys.k.shape[1];
  for (Index from = 0; from < pairs; from += cut.at_once) {
    const Index here = std::min(cut.at_once, pairs - from);
    const auto packed = [&](Index pair, Index block) {
      return packed_block(cut, memory.shared() + (pair - from) * cut.packed(), block);
    };
    parallel_for(here * cut.blocks, p.threads, [&](Index task) {
      const Index pair = from + task / cut.blocks, block = task % cut.blocks;
      pack_block(p, cut, element(p, pair / kv_heads), pair % kv_heads, block, packed(pair, block));
    });
    parallel_for(here * parts, p.threads, [&](Index task, int thread) {
      const Index pair = from + task / parts;
      // Causal: the longest rows first.
      run_task(call, memory.of_thread(thread), pair, parts - 1 - task % parts, {},
               [&](const Rows& rows, Index block, BlockOfKeys& found) {
                 find_packed(p, cut, rows, block, packed(pair, block), found);
               });
    });
  }
}

/// Tasks that share the keys of their rows leave a part for each block, and then these are merged in order.
void in_place_by_keys(const Call& call, const AttentionMemory& memory) {
  const AttentionProblem& p = call.p;
  const AttentionCut& cut = call.cut;
  const Index parts = parts_of_pair(call), shares = cut.key_parts;
  const auto part_at = [&](Index rows_task, Index block) {
    return state_at(cut, memory.shared() + (rows_task * cut.blocks + block) * cut.part());
  };
  parallel_for(cut.tasks, p.threads, [&](Index task, int thread) {
    const Index share = task % shares, rows_task = task / shares;
    const AttentionBuffers b = memory.of_thread(thread);
    const Rows all = rows_of(call, rows_task / parts, rows_task % parts), rows = there(all);
    if (share == 0) clear_padding(call, all, b);
    if (rows.count == 0) return;
    kernels::AttentionBlock block = begin_rows(call, rows, b);
    block.fresh = true;
    const auto find = [&](Index i, BlockOfKeys& found) { find_in_place(p, rows, i, b.turned, found); };
    for (Index i = share * cut.blocks / shares; i < (share + 1) * cut.blocks / shares; ++i) {
      block.state = part_at(rows_task, i);
      if (!attend_block(call, rows, b, i, find, block)) clear(block.state, rows.count);
    }
  });
  parallel_for(cut.tasks / shares, p.threads, [&](Index rows_task, int thread) {
    const Rows rows = there(rows_of(call, rows_task / parts, rows_task % parts));
    if (rows.count == 0) return;
    const AttentionState state = part_at(rows_task, 0);
    for (Index i = 1; i < cut.blocks; ++i) {
      const AttentionState part = part_at(rows_task, i);
      p.kernel.attention_merge(state, {rows.count, p.keys.v.shape[3], part.out, part.out_step, part.max, part.sum});
    }
    p.kernel.attention_finish(state, output_of(call, rows, memory.of_thread(thread), true));
  });
}

void in_place(const Call& call, const AttentionMemory& memory) {
  const AttentionProblem& p = call.p;
  if (call.cut.key_parts > 1) return in_place_by_keys(call, memory);
  const Index parts = parts_of_pair(call);
  parallel_for(call.cut.tasks, p.threads, [&](Index task, int thread) {
    const AttentionBuffers b = memory.of_thread(thread);
    run_task(
        call, b, task / parts, parts - 1 - task % parts, {},
        [&](const Rows& rows, Index block, BlockOfKeys& found) { find_in_place(p, rows, block, b.turned, found); });
  });
}

}  // namespace

void run_attention(const char* function, const AttentionProblem& p) {
  const AttentionCut cut(p);
  AttentionMemory memory(p, cut);
  memory.open(function);
  const RelativeRuns runs(p.given.relative_bias);
  const Call call{p, cut, runs};
  switch (cut.way) {
    case AttentionCut::Way::by_head:
      return by_head(call, memory);
    case AttentionCut::Way::by_rows:
      return by_rows(call, memory);
    case AttentionCut::Way::in_place:
      return in_place(call, memory);
  }
}

}  // namespace headlane::internal
