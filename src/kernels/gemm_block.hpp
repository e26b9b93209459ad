// One block along k of a matrix product: packed rows times panels, added to c.
#pragma once

#include "kernels/tile.hpp"

namespace headlane::kernels {
namespace {

template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE void gemm_tile(const GemmBlock& block, index row, index column) {
  using V = Lanes<Arch>;
  constexpr index width = panel_columns<Arch>;
  V acc[Rows][Vectors];
  clear<Arch, Rows, Vectors>(acc);
  const float* b = block.b + column / width * block.b_panel_step + column % width;
  multiply<Arch, Rows, Vectors>(block.k, block.a + row * row_stride, {b, block.b_row_step, block.b_panel_step}, acc);

  const V alpha = V::broadcast(block.alpha), beta = V::broadcast(block.beta);
  const bool read = block.beta != 0.0f;
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) {
      float* c = block.c + (row + i) * block.c_row_step + column + j * lanes;
      const index count = block.n - column - j * lanes;
      if (count >= lanes) {
        fma(alpha, acc[i][j], read ? beta * V::load(c) : V::zero()).store(c);
      } else {
        fma(alpha, acc[i][j], read ? beta * V::load(c, count, 0.0f) : V::zero()).store(c, count);
      }
    }
}

/// Strips of rows outermost: a strip (12 × 512 floats, 24 KiB) stays in the L1 while the panels stream past it from the L2,
/// 128 bytes for every 12 × 32 fmas.
template <class Arch>
void gemm_block(const GemmBlock& block) noexcept {
  for_each_row_tile<Arch>(block.m, [&](index row, auto rows) {
    for_each_column_tile<Arch, rows.value>(block.n, [&](index column, auto vectors) {
      gemm_tile<Arch, rows.value, vectors.value>(block, row, column);
    });
  });
}

}  // namespace
}  // namespace headlane::kernels
