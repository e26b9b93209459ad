// Checks that all ranks make together: an argument that one rank refuses is an exception on every
// rank, so that none waits for messages of another.
#pragma once

#include "core/agreement.hpp"
#include "messages.hpp"

#include <headlane/mpi/transport.hpp>

#include <stdexcept>
#include <string>

namespace headlane::mpi::internal {

/// Calls check(), which throws if this rank refuses its arguments, and compares the text that
/// describe() returns, which tells what must be the same everywhere. Collective.
template <class Describe, class Check>
void check_together(Transport& transport, const char* caller, const Describe& describe, const Check& check) {
  transport.require_intact(caller);
  StepGuard guard(transport);
  std::string text;
  headlane::internal::agree_on(
      text,
      [&](std::string& own) {
        own = describe();
        check();
      },
      [&](const std::string& own) {
        try {
          transport.agree(caller, own);
        } catch (const std::invalid_argument&) {  // on every rank
          guard.stay();
          throw;
        }
        guard.stay();
      });
}

}  // namespace headlane::mpi::internal
