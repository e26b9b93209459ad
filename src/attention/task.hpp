// How all tasks of attention begin: with their rows, scaled, and what is given for each of them.
#pragma once

#include "attention/key_block.hpp"
#include "attention/memory.hpp"

namespace headlane::internal {

/// Shared by the tasks of a call.
struct TaskContext {
  const AttentionProblem& p;
  const TaskPlan& plan;
  const RelativeRuns& bias;
};

/// Values [q_heads] as one for each row; null without values.
const float* expand_to_rows(const View<const float, 1>& values, const QueryRows& rows, float* to);

/// Packs and scales the rows; returns a block with the members set that are the same for all blocks
/// of keys.
kernels::AttentionBlock begin_rows(const AttentionProblem& p, const QueryRows& rows, const ThreadBuffers& buffers);

}  // namespace headlane::internal
