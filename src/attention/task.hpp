// What all tasks of attention begin with: their rows, scaled, and what is given for each of them.
#pragma once

#include "attention/key_block.hpp"

namespace headlane::internal {

/// What a call has for all its tasks.
struct Call {
  const AttentionProblem& p;
  const AttentionCut& cut;
  const RelativeRuns& runs;
};

/// What is given per head, for each of the rows; null if it is not given.
const float* per_row(const View<const float, 1>& values, const Rows& rows, float* to);

/// The rows, scaled, and what else is the same for all blocks.
kernels::AttentionBlock begin_rows(const Call& call, const Rows& rows, const AttentionBuffers& b);

}  // namespace headlane::internal
