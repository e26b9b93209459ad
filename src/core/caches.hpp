// The caches of a core, which decide how a product is divided into blocks, but none of its bits.
#pragma once

#include <headlane/index.hpp>

namespace headlane::internal {

struct CacheSizes {
  Index l1_ways;   ///< the associativity of the L1 for data
  Index l2_bytes;  ///< of one core
};

/// Those of this machine, determined once; 8 ways and 1 MiB where it does not tell. Tests change
/// them.
CacheSizes& cache_sizes() noexcept;

}  // namespace headlane::internal
