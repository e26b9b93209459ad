// How a task of attention goes through the blocks of keys that are visible to its rows. The
// arithmetic is in kernels/attention/block.hpp.
#pragma once

#include "attention/prefetch.hpp"
#include "attention/task.hpp"
#include "core/round.hpp"

#include <algorithm>

namespace headlane::internal {

/// Attends to block `number` if it has a visible key: merges it into block.state, or initialises
/// the state if it is the first one. find(number, keys) tells where the block is.
template <class Find>
bool attend_block(const TaskContext& context, const QueryRows& rows, const ThreadBuffers& buffers, Index number,
                  const Find& find, kernels::AttentionBlock& block) {
  VisibleKeys visible;
  if (!find_visible_keys(context.p, context.bias, rows, number * kernels::block_size, buffers.distances, visible,
                         block))
    return false;
  BlockOfKeys keys;
  find(number, keys);
  block.keys = keys.block;
  context.p.kernel.attention_block(block);
  return true;
}

/// Computes the result of the rows. find(block, keys) is called at most once for each block, in
/// order.
template <class Find>
void attend(const TaskContext& context, const QueryRows& rows, const ThreadBuffers& buffers,
            const Prefetches& prefetches, const Find& find) {
  const AttentionProblem& p = context.p;
  kernels::AttentionBlock block = begin_rows(p, rows, buffers);
  block.state = state_at(context.plan, buffers.state);
  block.is_first = !p.options.resume;
  if (p.options.resume) load_state(context, rows, block.state);
  std::copy(prefetches.begin(), prefetches.end(), block.prefetch);
  const kernels::AttentionOutput output = output_of(p, rows, buffers, true);
  const KeyRange keys = visible_range(p, rows);
  const Index first = keys.begin / kernels::block_size, end = ceil_div(keys.end, kernels::block_size);
  // Nothing to merge.
  const bool single_block = end - first == 1 && output.column_step == 1 && !p.options.resume;
  if (single_block) block.output = &output;
  for (Index i = first; i < end; ++i) {
    if (!attend_block(context, rows, buffers, i, find, block)) continue;
    block.is_first = false;
    std::fill_n(block.prefetch, prefetches.size(), kernels::Prefetch{});  // done
  }
  if (block.is_first) clear(block.state, rows.count);
  else if (single_block) return;
  p.kernel.attention_finish(block.state, output);
}

}  // namespace headlane::internal
