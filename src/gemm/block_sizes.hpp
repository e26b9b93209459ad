// The rows and columns of a block of a product, by the caches of the machine.
#pragma once

#include "core/caches.hpp"
#include "kernels/args/sizes.hpp"

#include <algorithm>

namespace headlane::internal {

/// Whether rows so many floats apart fall into one set of the L1, as every 4 KiB do.
inline bool are_in_one_set(Index row_step) { return row_step % 1024 == 0; }

/// Bytes of b, packed, that all rows use before the next ones: half of the L2, at most 512 KiB,
/// which are 256 columns with 512 rows. With 256 columns in an L2 of 512 KiB, 512 × 512 × 512
/// reached 82 instead of 87 % of the FMA peak (Zen 3, AVX2).
inline Index bytes_in_l2() {
  constexpr Index max_bytes = 512 << 10, min_bytes = 128 << 10;
  return std::clamp(cache_sizes().l2_bytes / 2, min_bytes, max_bytes);
}
inline Index columns_in_l2(Index k) {
  const Index floats = bytes_in_l2() / Index{sizeof(float)};
  const Index depth = k > kernels::block_size / 2 ? kernels::block_size : std::max<Index>(k, kernels::lanes);
  return floats / depth / kernels::panel_columns * kernels::panel_columns;
}
/// Rows that all columns of a region use before the next ones, read in place: 2048 × 2048 × 2048
/// went from 86 to 88 % of the FMA peak, perhaps because each row of a and of c is on pages of its
/// own and a TLB holds so many of them (Zen 4). Where the L2 holds fewer columns, b is read more
/// often: 512 rows as one block, not two, take 0.97 of the time of 512 × 2048 × 512 (Zen 3).
inline Index max_rows_in_place() { return bytes_in_l2() < 512 << 10 ? 528 : 480; }
/// The same for packed rows: 96 × 528 floats, 198 KiB, stay in the L2 beside the columns.
inline constexpr Index max_rows_packed = 96;
/// So few columns of so many rows are transposed, in block_loop.cpp.
inline constexpr Index max_transposed_columns = 3, min_transposed_rows = 32;

}  // namespace headlane::internal
