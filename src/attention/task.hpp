// How all tasks of attention begin and end: their rows, scaled; the running result; the output.
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

/// The running result of a task's rows in memory of plan.state_floats().
kernels::AttentionState state_at(const TaskPlan& plan, float* memory);

/// Sets the running result of rows without visible keys.
void clear(const kernels::AttentionState& state, Index rows);

/// Sets the running result to the partial result in out, lse and sum, which the call resumes.
void load_state(const TaskContext& context, const QueryRows& rows, const kernels::AttentionState& state);

/// Where the result of the rows goes; `sinks` tells whether they take part.
kernels::AttentionOutput output_of(const AttentionProblem& p, const QueryRows& rows, const ThreadBuffers& buffers,
                                   bool sinks);

}  // namespace headlane::internal
