// The speeds that the library promises, as a checklist.
#pragma once

#include "cases.hpp"
#include "table.hpp"

#include <string>
#include <vector>

namespace bench {

/// Prints each promise with what was measured and whether it holds. `isas` are the ones with vector registers, fastest
/// first. True if all of them hold.
bool print_targets(const Results& results, const std::vector<Case>& cases, const std::vector<std::string>& isas,
                   int all_threads);

}  // namespace bench
