// Checks that all ranks make together: an argument that one rank refuses is an exception on every
// rank, so that none waits for messages of another.
#pragma once

#include <headlane/mpi/transport.hpp>

#include <exception>
#include <string>

namespace headlane::mpi::internal {

/// Calls check(), which throws if this rank refuses its arguments, and compares `description`,
/// which tells what must be the same everywhere. Collective.
template <class Check>
void check_together(Transport& transport, const char* caller, std::string description, const Check& check) {
  std::exception_ptr refused;
  try {
    check();
  } catch (const std::exception& error) {
    refused = std::current_exception();
    description = std::string("an error, ") + error.what();
  }
  transport.agree(caller, description);
  if (refused) std::rethrow_exception(refused);
}

}  // namespace headlane::mpi::internal
