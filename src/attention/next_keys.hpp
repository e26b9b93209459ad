// The keys that a thread reads after those of a block in place: kernels prefetch them.
#pragma once

#include "attention/plan.hpp"
#include "attention/visible_keys.hpp"

namespace headlane::internal {

/// Whether the rows of a task prefetch keys and values, however few there are: the weights of a
/// model went through the caches since these were read. After such weights one row with 12 heads of
/// 128 to 256 keys takes 0.6 to 0.9 of the time, from a cache 0.75 to 1.0; keys in the L2 take 1.03
/// to 1.11, from a cache 1.1 to 1.3 (Zen 4).
bool prefetches_keys(const AttentionProblem& p, const QueryRows& rows);

struct CachedKeys {
  const void* keys;     // nullptr: there are none
  const float* scales;  // nullptr, if the type has none
};

/// In a cache, those that follow the page of a block that begins at `key`: 512 keys later, or the
/// first ones of the next kv head.
CachedKeys next_cached_keys(const AttentionProblem& p, const TaskPlan& plan, const QueryRows& rows, Index key);

/// In a tensor, as many as the block that begins at `key` has: the last ones of the next block, if
/// it has half as many, otherwise the first ones of the next kv head; nullptr: there are none. One
/// row with 12 heads of 512 keys takes 0.7 to 0.9 of the time (Zen 4).
const float* next_keys(const AttentionProblem& p, const TaskPlan& plan, const QueryRows& rows, Index key);

}  // namespace headlane::internal
