// Heads of few keys without masks and biases, causal or not, which kernels/attention/few_keys.hpp
// computes without packing their keys.
#pragma once

#include "attention/prefetch.hpp"
#include "attention/task.hpp"

namespace headlane::internal {

/// Whether that may be so for tasks of up to so many rows and keys. Depends on shapes and options.
bool may_have_few_keys(const AttentionProblem& p, Index rows, Index keys);

/// Whether that kernel computes these rows: there are enough of them, and of keys.
bool has_few_keys(const TaskContext& context, const QueryRows& rows);

/// Computes the result of such rows.
void attend_to_few_keys(const TaskContext& context, const QueryRows& rows, const ThreadBuffers& buffers,
                        const Prefetches& prefetches);

}  // namespace headlane::internal
