// Checks that all ranks make together: an argument that one rank refuses is an exception on every
// rank, so that none waits for messages of another.
#pragma once

#include "core/agreement.hpp"

#include <headlane/mpi/transport.hpp>

#include <string>

namespace headlane::mpi::internal {

using headlane::internal::StepGuard;

/// Calls check(), which throws if this rank refuses its arguments, and compares the text that
/// describe() returns, which tells what must be the same everywhere. Collective.
template <class Describe, class Check>
void check_together(Transport& transport, const char* caller, const Describe& describe, const Check& check) {
  transport.require_intact(caller);
  std::string text;
  headlane::internal::agree_on(
      text,
      [&](std::string& own) {
        own = describe();
        check();
      },
      [&](const std::string& own) { transport.agree(caller, own); });
}

}  // namespace headlane::mpi::internal
