// The class KvCache of the module.
#pragma once

#include "core/call.hpp"
#include "core/fair_mutex.hpp"

#include <headlane/kv_cache.hpp>

#include <span>

namespace headlane::python {

/// A cache and its lock: exclusive for changes, shared for reads. Only taken without the GIL, so
/// that a thread that waits for it blocks no other one.
struct LockedKvCache {
  KvCache cache;
  mutable FairMutex mutex{};
};

/// Throws TypeError if the object is no cache, or its __init__() was not called.
LockedKvCache& cache_of(const Call& call, const char* name, nb::handle object);

/// The number of keys of the longest of these sequences. Numbers of no sequence are skipped: the
/// library refuses them.
Index longest_of(const KvCache& cache, std::span<const Index> sequences);

}  // namespace headlane::python
