// Division and rounding of sizes, which are not negative.
#pragma once

#include <headlane/index.hpp>

namespace headlane::internal {

constexpr Index ceil_div(Index a, Index b) { return a / b + (a % b != 0 ? 1 : 0); }
constexpr Index round_up(Index a, Index b) { return ceil_div(a, b) * b; }

}  // namespace headlane::internal
