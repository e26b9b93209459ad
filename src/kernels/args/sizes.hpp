// Constants of all kernels: the same on every instruction set, since they determine the order of
// operations.
#pragma once

#include <headlane/index.hpp>

namespace headlane::internal::kernels {

/// Virtual vector: 16 floats on every instruction set.
inline constexpr Index lanes = 16;

/// KC of GEMM and the key block of attention, whose P·V is one fma chain. A constant of the
/// library, since it determines the bits: with 512, a strip of 12 rows (24 KiB) stays in a 32 KiB
/// L1.
inline constexpr Index block_size = 512;

/// The longest fma chain of a matrix product, whose chains are added in order. The error of a sum
/// of random terms grows with the root of this length.
inline constexpr Index chain_length = 128;
static_assert(block_size % chain_length == 0, "a block along k does not divide a chain");

/// Row stride of a packed left operand: a compile-time constant, so that a tile addresses all its
/// rows from one pointer; 33 cache lines, so that rows fall into different sets of the L1.
inline constexpr Index packed_row_stride = block_size + lanes;

/// Rows of a strip, which a block of GEMM multiplies by all panels before the next strip. With 512
/// columns it is 24 KiB and stays in the L1 while the panels stream past it from the L2, 128 bytes
/// for every 12 × 32 fmas. That depends on the caches, not on the instruction set: a tile of fewer
/// rows goes over a panel several times while it is in the L1.
inline constexpr Index strip_rows = 12;

/// Columns of a panel of a packed right operand: two Lanes, as wide as the widest tile, on every
/// instruction set, so that all of them read the same packed matrix.
inline constexpr Index panel_columns = 2 * lanes;

/// Upper bound of KernelTable::tile_rows.
inline constexpr Index max_tile_rows = 16;

}  // namespace headlane::internal::kernels
