#include "core/caches.hpp"

#include <unistd.h>

namespace headlane::internal {
namespace {

Index known_or(long value, Index otherwise) { return value > 0 ? value : otherwise; }

CacheSizes sizes_of_this_machine() noexcept {
  CacheSizes sizes{8, Index{1} << 20};
#ifdef _SC_LEVEL1_DCACHE_ASSOC
  sizes.l1_ways = known_or(sysconf(_SC_LEVEL1_DCACHE_ASSOC), sizes.l1_ways);
#endif
#ifdef _SC_LEVEL2_CACHE_SIZE
  sizes.l2_bytes = known_or(sysconf(_SC_LEVEL2_CACHE_SIZE), sizes.l2_bytes);
#endif
  return sizes;
}

}  // namespace

CacheSizes& cache_sizes() noexcept {
  static CacheSizes sizes = sizes_of_this_machine();
  return sizes;
}

}  // namespace headlane::internal
