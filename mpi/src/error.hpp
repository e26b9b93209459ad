// Error messages, as in the library.
#pragma once

#include "core/message.hpp"

namespace headlane::mpi::internal {

using headlane::internal::fail;
using headlane::internal::require;

/// Throws std::invalid_argument, "function: …", unless `condition`.
template <class... Parts>
void require_of(const char* function, bool condition, const Parts&... parts) {
  if (!condition) fail(function, ": ", parts...);
}

}  // namespace headlane::mpi::internal
