// One block along k of a matrix product: packed rows times panels, added to c.
#pragma once

#include "kernels/activation.hpp"
#include "kernels/tile.hpp"

namespace headlane::kernels {
namespace {

/// c = f(c + bias) + residual, for rows and columns of c that were just computed and are in the L1. F void: no activation.
template <class Arch, class F>
HEADLANE_INLINE void finish_tile(const GemmBlock& block, Index row, Index rows, Index column, Index columns) {
  using V = Lanes<Arch>;
  constexpr Index at_once = group_size<Arch>;  // Lanes, along a row and on to the next
  const GemmFinish& finish = *block.finish;
  const Index per_row = (columns + lanes - 1) / lanes, total = rows * per_row;
  for (Index first = 0; first < total; first += at_once) {
    V x[at_once];
    float* c[at_once];
    Index count[at_once];
    for (Index i = 0; i < at_once; ++i) {
      const Index at = first + i < total ? first + i : total - 1;
      const Index r = row + at / per_row, j = column + at % per_row * lanes;
      c[i] = block.c + r * block.c_row_step + j;
      count[i] = column + columns - j < lanes ? column + columns - j : lanes;
      x[i] = V::gather(c[i], 1, count[i]);
      if (finish.bias != nullptr)
        x[i] = x[i] + V::gather(finish.bias + j * finish.bias_step, finish.bias_step, count[i]);
    }
    if constexpr (!__is_same(F, void)) apply<F>(x);
    for (Index i = 0; i < at_once && first + i < total; ++i) {
      const Index at = first + i, r = row + at / per_row, j = column + at % per_row * lanes;
      if (finish.residual != nullptr)
        x[i] = x[i] +
               V::gather(finish.residual + r * finish.row_step + j * finish.column_step, finish.column_step, count[i]);
      count[i] == lanes ? x[i].store(c[i]) : x[i].store(c[i], count[i]);
    }
  }
}

/// Not inline: one copy for all sizes of tiles.
template <class Arch>
__attribute__((noinline)) void finish_tile(const GemmBlock& block, Index row, Index rows, Index column, Index columns) {
  if (columns > block.n - column) columns = block.n - column;
  if (block.finish->activation == Activation::none) return finish_tile<Arch, void>(block, row, rows, column, columns);
  with_activation(block.finish->activation,
                  [&](auto f) { finish_tile<Arch, decltype(f)>(block, row, rows, column, columns); });
}

template <class Arch>
void gemm_finish(const GemmBlock& block) noexcept {
  finish_tile<Arch>(block, 0, block.m, 0, block.n);
}

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
  if (block.finish != nullptr) finish_tile<Arch>(block, row, Rows, column, Vectors * lanes);
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
