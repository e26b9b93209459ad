// The sizes of caches that products are divided by, for the duration of a block.
#pragma once

#include "core/caches.hpp"

namespace headlane::test {

/// Blocks for other caches than this machine's until the end of the block.
class CacheScope {
 public:
  explicit CacheScope(const internal::CacheSizes& sizes) : previous_(internal::cache_sizes()) {
    internal::cache_sizes() = sizes;
  }
  CacheScope(const CacheScope&) = delete;
  CacheScope& operator=(const CacheScope&) = delete;
  ~CacheScope() { internal::cache_sizes() = previous_; }

 private:
  internal::CacheSizes previous_;
};

}  // namespace headlane::test
