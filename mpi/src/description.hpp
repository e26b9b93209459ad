// What must be the same on all ranks of a call, as a text.
#pragma once

#include "sequence_call.hpp"

#include <string>

namespace headlane::mpi::internal {

std::string description_of(const AttentionOptions& options);
std::string description_of(const SequenceCall& call);

}  // namespace headlane::mpi::internal
