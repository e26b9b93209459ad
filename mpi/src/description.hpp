// What must be the same on all ranks of a call, as a text.
#pragma once

#include "sequence_call.hpp"

#include <algorithm>
#include <iterator>
#include <ostream>
#include <string>

namespace headlane::mpi::internal {

/// Whether a view is an option that is given. A rank without queries has masks and results of no
/// element, whose data may be null, as those of an empty std::vector: their other extents tell.
template <class V>
bool is_given(const V& view) {
  if (view.data != nullptr) return true;
  const auto none = std::count(view.shape.begin(), view.shape.end(), 0);
  return none > 0 && none < std::ssize(view.shape);
}

/// Adds each option but num_threads: a view by its elements if these are lengths or offsets.
void describe(std::ostream& text, const AttentionOptions& options);
std::string description_of(const SequenceCall& call);

}  // namespace headlane::mpi::internal
