// The choice of the table of kernels.
#pragma once

#include <string_view>
#include <vector>

namespace headlane::internal {

namespace kernels {
struct KernelTable;
}

/// The table in use. The first call chooses: HEADLANE_ISA, else the first available one. Throws
/// std::invalid_argument if HEADLANE_ISA names none that is available.
const kernels::KernelTable& active();

/// The tables that are built in and that this CPU supports, fastest first.
std::vector<const kernels::KernelTable*> available_tables();

/// Makes the table of that name the active one. Throws std::invalid_argument, listing the names, if
/// there is none.
void activate(std::string_view name);

}  // namespace headlane::internal
