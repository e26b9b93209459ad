// The type of sizes, strides and positions.
#pragma once

#include <cstddef>

namespace headlane {

/// Sizes, strides and positions, counted in elements. Signed, since strides may be negative.
using Index = std::ptrdiff_t;

}  // namespace headlane
