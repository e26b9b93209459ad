// Whether many operands are apart, in O(n log n).
#pragma once

#include "core/check.hpp"

#include <vector>

namespace headlane::internal {

/// The memory of an operand that is not empty: runs of elements, as runs_of() has them, within a range.
struct Extent {
  Range range;
  Runs runs;
  std::uintptr_t data;  // where some run starts
  Index element_size;
  bool written;
};

Extent extent_of(const Operand& operand, bool written);

/// True if no written operand overlaps another one, written or not; false if one does, or may: which pair that is, check_no_overlap tells. Exact for
/// operands whose runs have one pitch, such as columns of one buffer, wherever they interleave. Reorders `extents`.
bool surely_apart(std::vector<Extent>& extents);

}  // namespace headlane::internal
