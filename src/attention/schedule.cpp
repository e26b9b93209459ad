// How the tasks of attention share the work. How a call is divided is in plan.cpp, how a task goes
// through the blocks of keys in attend.hpp.
#include "attention/attend.hpp"
#include "attention/few_keys.hpp"
#include "core/parallel.hpp"

#include <algorithm>

namespace headlane::internal {
namespace {

using kernels::AttentionState;

/// Drops padding rows.
QueryRows without_padding(QueryRows rows) {
  if (rows.axis == 2) rows.count = std::clamp<Index>(rows.element.queries - rows.first, 0, rows.count);
  else if (rows.element.queries == 0) rows.count = 0;
  return rows;
}

/// Writes the result of padding rows: zeros, in place where rows are contiguous. By way of a state
/// they took 12 % of 64 sequences of 5 to 60 tokens, padded to 60 (Zen 4).
void clear_padding(const TaskContext& context, QueryRows rows, const ThreadBuffers& buffers) {
  const Index skip = without_padding(rows).count;
  if (skip == rows.count) return;
  rows.first += skip;  // 0 where rows are heads
  rows.count -= skip;
  kernels::AttentionOutput output = output_of(context.p, rows, buffers, false);
  if (output.column_step == 1) {
    for (Index i = 0; i < rows.count; ++i) std::fill_n(output.out + i * output.row_step, output.value_dim, 0.0f);
    if (output.lse == nullptr) return;
    output.value_dim = 0;
  }
  const AttentionState state = state_at(context.plan, buffers.state);
  clear(state, rows.count);
  context.p.kernel.attention_finish(state, output);
}

/// Part `part` of the rows of a kv head; their count is 0 if a shorter element has none there.
QueryRows rows_of_part(const TaskContext& context, Index kv_head, Index part) {
  const TaskPlan& plan = context.plan;
  const Index kv_heads = context.p.keys.k.shape[1], group = group_size(context.p);
  QueryRows rows{.element = element(context.p, kv_head / kv_heads),
                 .kv_head = kv_head % kv_heads,
                 .head = 0,
                 .first = 0,
                 .count = 0,
                 .axis = 2};
  const Index first = part % plan.row_parts * plan.rows_per_task;
  rows.head = rows.kv_head * group;
  if (plan.rows_are_heads) {
    rows.axis = 1;
    rows.head += first;
    rows.count = rows.element.rows == 0 ? 0 : std::min(plan.rows_per_task, group - first);
  } else {
    rows.head += part / plan.row_parts;
    rows.first = first;
    rows.count = std::clamp<Index>(rows.element.rows - first, 0, plan.rows_per_task);
  }
  return rows;
}

/// Computes a part of the rows of a kv head, padding included. find(rows, block, keys) as in
/// attend().
template <class Find>
void run_part(const TaskContext& context, const ThreadBuffers& buffers, Index kv_head, Index part,
              const Prefetches& prefetches, const Find& find) {
  const QueryRows all = rows_of_part(context, kv_head, part), rows = without_padding(all);
  clear_padding(context, all, buffers);
  if (has_few_keys(context, rows)) attend_to_few_keys(context, rows, buffers, prefetches);
  else if (rows.count > 0)
    attend(context, rows, buffers, prefetches, [&](Index block, BlockOfKeys& found) { find(rows, block, found); });
}

/// Each block is packed when it is first read, and is then in the L2 for the first rows that read
/// it. If one pass over the keys serves all rows of a kv head, all blocks share the same memory.
void run_by_head(const TaskContext& context, const AttentionMemory& memory) {
  const AttentionProblem& p = context.p;
  const KeyBlocks& blocks = context.plan.blocks;
  const Index parts = context.plan.parts;
  parallel_for(total_kv_heads(p), p.threads, [&](Index kv_head, int thread) {
    const ThreadBuffers buffers = memory.of_thread(thread);
    if (parts == 1)
      return run_part(context, buffers, kv_head, 0, next_head(context, kv_head, 0),
                      [&](const QueryRows& rows, Index block, BlockOfKeys& found) {
                        const PackedBlock packed{buffers.packed, buffers.packed + blocks.key_floats};
                        pack_block(p, blocks, rows.element, rows.kv_head, block, packed);
                        find_packed(p, blocks, rows, block, packed, found);
                      });
    Index packed = 0;  // blocks
    for (Index part = 0; part < parts; ++part)
      run_part(context, buffers, kv_head, part, next_head(context, kv_head, part),
               [&](const QueryRows& rows, Index block, BlockOfKeys& found) {
                 for (; packed <= block; ++packed)
                   pack_block(p, blocks, rows.element, rows.kv_head, packed,
                              packed_block(blocks, buffers.packed, packed));
                 find_packed(p, blocks, rows, block, packed_block(blocks, buffers.packed, block), found);
               });
  });
}

void run_by_rows(const TaskContext& context, const AttentionMemory& memory) {
  const AttentionProblem& p = context.p;
  const TaskPlan& plan = context.plan;
  const KeyBlocks& blocks = plan.blocks;
  const Index all = total_kv_heads(p), parts = plan.parts, kv_heads = p.keys.k.shape[1];
  for (Index first = 0; first < all; first += plan.heads_per_round) {
    const Index count = std::min(plan.heads_per_round, all - first);
    const auto packed = [&](Index kv_head, Index block) {
      return packed_block(blocks, memory.shared() + (kv_head - first) * blocks.floats(), block);
    };
    parallel_for(count * blocks.count, p.threads, [&](Index task) {
      const Index kv_head = first + task / blocks.count, block = task % blocks.count;
      pack_block(p, blocks, element(p, kv_head / kv_heads), kv_head % kv_heads, block, packed(kv_head, block));
    });
    parallel_for(count * parts, p.threads, plan.order, [&](Index task, int thread) {
      const Index kv_head = first + task / parts;
      run_part(context, memory.of_thread(thread), kv_head, parts - 1 - task % parts, {},
               [&](const QueryRows& rows, Index block, BlockOfKeys& found) {
                 find_packed(p, blocks, rows, block, packed(kv_head, block), found);
               });
    });
  }
}

/// Tasks that share the keys of their rows leave a partial result for each block; these are merged
/// in order.
void run_in_place_by_keys(const TaskContext& context, const AttentionMemory& memory) {
  const AttentionProblem& p = context.p;
  const TaskPlan& plan = context.plan;
  const Index parts = plan.parts, key_parts = plan.key_parts, blocks = plan.blocks.count;
  const auto partial_result = [&](Index row_task, Index block) {
    return state_at(plan, memory.shared() + (row_task * blocks + block) * plan.state_floats());
  };
  parallel_for(plan.tasks, p.threads, [&](Index task, int thread) {
    const Index key_part = task % key_parts, row_task = task / key_parts;
    const ThreadBuffers buffers = memory.of_thread(thread);
    const QueryRows all = rows_of_part(context, row_task / parts, row_task % parts), rows = without_padding(all);
    if (key_part == 0) clear_padding(context, all, buffers);
    if (rows.count == 0) return;
    kernels::AttentionBlock block = begin_rows(p, rows, buffers);
    block.is_first = true;
    const auto find = [&](Index i, BlockOfKeys& found) { find_in_place(p, plan, rows, i, buffers.unpacked, found); };
    for (Index i = key_part * blocks / key_parts; i < (key_part + 1) * blocks / key_parts; ++i) {
      block.state = partial_result(row_task, i);
      if (!attend_block(context, rows, buffers, i, find, block)) clear(block.state, rows.count);
    }
  });
  parallel_for(plan.tasks / key_parts, p.threads, [&](Index row_task, int thread) {
    const QueryRows rows = without_padding(rows_of_part(context, row_task / parts, row_task % parts));
    if (rows.count == 0) return;
    const ThreadBuffers buffers = memory.of_thread(thread);
    const bool resumes = p.options.resume;
    const AttentionState state = resumes ? state_at(plan, buffers.state) : partial_result(row_task, 0);
    if (resumes) load_state(context, rows, state);
    for (Index i = resumes ? 0 : 1; i < blocks; ++i)
      p.kernel.attention_merge(state, partial_result(row_task, i), rows.count, p.keys.v.shape[3]);
    p.kernel.attention_finish(state, output_of(p, rows, buffers, true));
  });
}

void run_in_place(const TaskContext& context, const AttentionMemory& memory) {
  const AttentionProblem& p = context.p;
  const TaskPlan& plan = context.plan;
  if (plan.key_parts > 1) return run_in_place_by_keys(context, memory);
  const Index parts = plan.parts;
  parallel_for(plan.tasks, p.threads, plan.order, [&](Index task, int thread) {
    const ThreadBuffers buffers = memory.of_thread(thread);
    run_part(context, buffers, task / parts, parts - 1 - task % parts, {},
             [&](const QueryRows& rows, Index block, BlockOfKeys& found) {
               find_in_place(p, plan, rows, block, buffers.unpacked, found);
             });
  });
}

}  // namespace

void run_attention(Caller caller, const AttentionProblem& p) {
  const TaskPlan plan = plan_tasks(p);
  AttentionMemory memory(p, plan);
  memory.open(caller);
  const RelativeRuns bias(p.options.relative_bias);
  const TaskContext context{p, plan, bias};
  switch (plan.strategy) {
    case Strategy::by_head:
      return run_by_head(context, memory);
    case Strategy::by_rows:
      return run_by_rows(context, memory);
    case Strategy::in_place:
      return run_in_place(context, memory);
  }
}

}  // namespace headlane::internal
