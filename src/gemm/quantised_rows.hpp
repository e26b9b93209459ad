// Rows of a product of integers.
#pragma once

#include "gemm/problem.hpp"

namespace headlane::internal {

/// The bytes of a row of k elements and what follows it: an odd number of cache lines where k is
/// long, so that rows fall into different sets of the L1.
inline Index quantised_row_bytes(Index k, const kernels::KernelTable& kernel) {
  constexpr Index line = 64;
  return round_up(k, kernels::quantised_columns) * (kernel.pairs ? 2 : 1) + line;
}

/// Quantises some rows of a into scratch memory.
kernels::QuantisedRows quantise(const View<const float, 2>& a, Index row, Index rows,
                                const kernels::KernelTable& kernel);

}  // namespace headlane::internal
