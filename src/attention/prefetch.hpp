// Prefetching into the L2, by a task for the next one.
#pragma once

#include "attention/task.hpp"

#include <array>

namespace headlane::internal {

using Prefetches = std::array<kernels::Prefetch, 3>;

/// For part `part` of the rows of a kv head: a share of the keys and values of the kv head that the
/// thread will probably take next, and with the last part its first rows. Otherwise each head waits
/// for them. plan.cpp tells when this is done, and what it gains.
Prefetches next_head(const TaskContext& context, Index kv_head, Index part);

}  // namespace headlane::internal
