// Positions: what attention and embeddings know of them.
#pragma once

#include <headlane/index.hpp>

namespace headlane {

/// The bucket of T5's relative position bias (Raffel et al. 2020) for distance = position of the key - position of the query.
///
/// Half of the buckets of a direction are single distances, the other half grows logarithmically up to max_distance, beyond which all share
/// the last one. bidirectional: the upper half of all buckets is for keys behind the query; otherwise those are in bucket 0.
/// Throws std::invalid_argument unless buckets is 2 … 1024 (bidirectional: 4 … 1024 and even), and max_distance is more than the single distances.
Index t5_bucket(Index distance, Index buckets = 32, Index max_distance = 128, bool bidirectional = true);

}  // namespace headlane
