// What a task fetches into the L2 for the next one.
#pragma once

#include "attention/task.hpp"

#include <array>

namespace headlane::internal {

using ToFetch = std::array<kernels::Fetch, 3>;

/// While a part of the rows of one kv head is computed, a share of the keys and values of the one that the thread will probably take next,
/// and its first rows: otherwise each head waits for them. plan.cpp says when, and what it gains.
ToFetch next_of(const Call& call, Index pair, Index part, Index parts);

}  // namespace headlane::internal
