// The buckets of T5's relative position bias, shared by t5_bucket() and attention.
#pragma once

#include <headlane/index.hpp>

namespace headlane::internal {

/// The smallest distance of each bucket of one direction. The array belongs to the calling thread; the next call overwrites it.
const Index* t5_bucket_starts(Index buckets, Index max_distance);

/// Throws std::invalid_argument: t5_bucket's requirements in the name of `function`.
void check_t5_buckets(const char* function, Index buckets, Index max_distance, bool bidirectional);

}  // namespace headlane::internal
