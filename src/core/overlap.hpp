// Overlap checks of many operands, in O(n log n).
#pragma once

#include "core/check.hpp"

#include <vector>

namespace headlane::internal {

/// The memory of an operand that is not empty: runs of elements, as runs_of() has them, within a
/// range.
struct Extent {
  Range range;
  Runs runs;
  std::uintptr_t data;  // the start of any run
  Index element_size;
  bool written;
};

Extent extent_of(const Operand& operand, bool written);

/// True if no written operand overlaps another one, written or not. False if one does or may;
/// check_no_overlap then finds the pair. Exact for operands whose runs have the same pitch, such as
/// columns of one buffer, however they interleave. Reorders `extents`.
bool surely_apart(std::vector<Extent>& extents);

}  // namespace headlane::internal
