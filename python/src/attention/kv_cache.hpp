// The class KvCache as Python has it.
#pragma once

#include <headlane/kv_cache.hpp>

#include <nanobind/nanobind.h>
#include <shared_mutex>

namespace headlane::python {

/// A cache, and who may use it: what changes it holds the mutex alone, what reads it shares it. It is taken without the GIL only, so
/// that whoever waits for it stops nobody.
struct LockedKvCache {
  KvCache cache;
  mutable std::shared_mutex mutex{};
};

/// Throws TypeError if the object is none, or one whose __init__() was not called.
LockedKvCache& cache_of(const char* function, const char* name, nanobind::handle object);

}  // namespace headlane::python
