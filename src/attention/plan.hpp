// How a call of attention is divided into tasks, and what they pack.
#pragma once

#include "attention/problem.hpp"
#include "core/parallel.hpp"
#include "kernels/table.hpp"

#include <algorithm>

namespace headlane::internal {

/// The blocks into which keys and values of a kv head are divided, and their sizes when packed.
struct KeyBlocks {
  Index keys;                      // of which the blocks consist; keys beyond are visible to no query
  Index count;                     // of blocks of block_size keys
  Index key_floats, value_floats;  // of a packed block; 0: read in place

  [[nodiscard]] Index block_floats() const { return key_floats + value_floats; }
  /// More keys than memory has, in a view with a stride of 0, are too many for any allocation.
  [[nodiscard]] Index floats() const {
    constexpr Index too_many = Index{1} << 58;
    return block_floats() == 0 ? 0 : std::min(count, too_many / block_floats()) * block_floats();
  }
};

/// Blocks that are packed; with a value_width of 0, values are read in place.
KeyBlocks packed_blocks(Index keys, Index head_dim, Index value_width);

enum class Strategy {
  by_head,   // a task is a kv head with all its queries, and packs keys and values for itself
  by_rows,   // all threads pack some kv heads, then share their query rows
  in_place,  // nothing is packed: a cache, or few rows; tasks may share the keys of a row
};

/// Depends on shapes and options, and on query_starts and key_starts, but on no other data: a plan
/// holds for every call with the same ones.
struct TaskPlan {
  Strategy strategy;
  KeyBlocks blocks;
  Index value_width;    // value_dim, rounded up to whole panels
  bool rows_are_heads;  // one query each: the query heads of a kv head are the rows of a tile
  Index rows_per_task;
  Index row_parts;        // parts of rows_per_task rows of a head, or of a kv head if rows are heads
  Index parts;            // the same of a kv head
  Index key_parts;        // tasks that share the keys of a row
  Index heads_per_round;  // by_rows: kv heads that are packed at a time
  Index tasks;
  Order order;      // in which threads take tasks that pack nothing
  Index head_step;  // in_place: kv heads from that of a task to that of the thread's next task
  bool few_keys;    // by_head: heads may be computed without packing their keys
  bool prefetches;  // tasks prefetch the next kv head into the L2

  /// Floats of the running result of rows_per_task rows: maxima, sums, weighted values.
  [[nodiscard]] Index state_floats() const { return rows_per_task * (value_width + 2); }
};

/// Whether the rows that read the keys of a kv head do not repay packing these.
bool has_few_rows(const AttentionProblem& p);

TaskPlan plan_tasks(const AttentionProblem& p);

}  // namespace headlane::internal
