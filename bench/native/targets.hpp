// The promised speeds, as a checklist.
#pragma once

#include "cases.hpp"
#include "table.hpp"

#include <string>
#include <vector>

namespace bench {

/// Prints each promise with the measured figure and whether it holds. `isas`: those with vector
/// registers, fastest first. Returns whether all hold.
bool print_targets(const Results& results, const std::vector<Case>& cases, const std::vector<std::string>& isas,
                   int all_threads);

}  // namespace bench
