// Checks of attention over tensors and over caches.
#pragma once

#include "error.hpp"

#include <headlane/attention_options.hpp>

namespace headlane::mpi::internal {

inline constexpr const char* attention_name = "mpi::attention";

template <class... Parts>
void refuse_unless(bool condition, const Parts&... parts) {
  require_of(attention_name, condition, parts...);
}

/// Refuses options that belong to calls of one process.
inline void check_options_of_ranks(const AttentionOptions& o) {
  refuse_unless(!o.sum && !o.resume, "sum or resume is given, which only headlane::attention has");
  refuse_unless(o.workspace.data() == nullptr, "workspace is given, which only headlane::attention has");
}

}  // namespace headlane::mpi::internal
