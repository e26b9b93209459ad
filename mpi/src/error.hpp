// Error messages, as in the library.
#pragma once

#include "core/message.hpp"

namespace headlane::mpi::internal {

using headlane::internal::fail;
using headlane::internal::require;

}  // namespace headlane::mpi::internal
