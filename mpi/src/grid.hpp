// The grid of positions on which sequences are cut.
#pragma once

#include "core/round.hpp"

#include <headlane/index.hpp>

namespace headlane::mpi::internal {

using headlane::internal::ceil_div;
using headlane::internal::round_up;

/// The blocks of keys of attention(): each has its own maximum, sum and P·V.
inline constexpr Index grid = 512;

/// Floats of partial results at a time, 32 MiB: queries are divided into groups that need no more.
inline constexpr Index partial_floats = Index{32} << 20 >> 2;

}  // namespace headlane::mpi::internal
