// One block along k of a matrix product: packed rows times panels, added to c.
#pragma once

#include "kernels/tile.hpp"

namespace headlane::kernels {
namespace {

template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE void gemm_tile(const GemmBlock& block, Index row, Index column) {
  using V = Lanes<Arch>;
  V acc[Rows][Vectors];
  clear<Arch, Rows, Vectors>(acc);
  const float* b = block.b + column / panel_columns * block.b_panel_step + column % panel_columns;
  multiply<Arch, Rows, Vectors>(block.k, block.a + row * row_stride, {b, block.b_row_step, block.b_panel_step}, acc);

  const V alpha = V::broadcast(block.alpha), beta = V::broadcast(block.beta);
  const bool read = block.beta != 0.0f;
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) {
      float* c = block.c + (row + i) * block.c_row_step + column + j * lanes;
      const Index count = block.n - column - j * lanes;
      if (count >= lanes) {
        fma(alpha, acc[i][j], read ? beta * V::load(c) : V::zero()).store(c);
      } else {
        fma(alpha, acc[i][j], read ? beta * V::load(c, count, 0.0f) : V::zero()).store(c, count);
      }
    }
}

/// Rows of a strip: with 512 columns 24 KiB, so that it stays in the L1 while the panels stream past it from the L2, 128 bytes
/// for every 12 × 32 fmas. A smaller tile goes over a panel several times while it is in the L1.
inline constexpr Index strip_rows = 12;

template <class Arch>
void gemm_block(const GemmBlock& block) noexcept {
  constexpr int vectors = Tile<Arch>::vectors;
  for_each_part(block.m, strip_rows, [&](Index strip, Index rows) {
    if (rows <= Tile<Arch>::rows) {
      with_rows<Tile<Arch>::rows>(rows, [&](auto height) {
        for_each_column_tile<Arch, height.value>(block.n, [&](Index column, auto width) {
          gemm_tile<Arch, height.value, width.value>(block, strip, column);
        });
      });
    } else {
      for (Index column = 0; column < block.n; column += vectors * lanes)
        for_each_row_tile<Arch>(
            rows, [&](Index row, auto height) { gemm_tile<Arch, height.value, vectors>(block, strip + row, column); });
    }
  });
}

}  // namespace
}  // namespace headlane::kernels
