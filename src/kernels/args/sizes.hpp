// Constants of all kernels: the same on every instruction set, since they decide the order of operations.
#pragma once

#include <headlane/index.hpp>

namespace headlane::internal::kernels {

/// Virtual vector: 16 floats on every instruction set.
inline constexpr Index lanes = 16;

/// KC of GEMM and the grid of keys in attention: the longest fma chain of a product. A constant of the library, since it
/// decides the bits: 512 makes d_model = 512 one chain, and a strip of 12 rows (24 KiB) stays in a 32 KiB L1.
inline constexpr Index block_size = 512;

/// Rows of a packed left operand are this far apart: a compile-time constant, so that a tile addresses all its rows from one
/// pointer; 33 cache lines, so that they fall into different sets of the L1.
inline constexpr Index row_stride = block_size + lanes;

/// Columns of a panel of a packed right operand: two Lanes, as wide as the widest tile, on every instruction set, so that what is
/// packed serves them all.
inline constexpr Index panel_columns = 2 * lanes;

/// No tile has more rows.
inline constexpr Index max_tile_rows = 16;

}  // namespace headlane::internal::kernels
