// The buckets of T5's relative position bias, shared by t5_bucket() and attention.
#pragma once

#include "core/check.hpp"

namespace headlane::internal {

/// The smallest distance of each bucket of one direction. The array belongs to the calling thread;
/// the next call overwrites it.
const Index* t5_bucket_starts(Index buckets, Index max_distance);

/// Throws std::invalid_argument unless t5_bucket's requirements hold, on behalf of `caller`.
void check_t5_buckets(Caller caller, Index buckets, Index max_distance, bool bidirectional);

}  // namespace headlane::internal
