// What follows the products of a tile: they are stored in c, and the epilogue is applied.
#pragma once

#include "kernels/args/gemm.hpp"
#include "kernels/gemm/tile.hpp"
#include "kernels/simd/activation.hpp"

namespace headlane::internal::kernels {
namespace {

/// c = f(c + bias) · factor + residual, for a tile of c that was just stored and is in the L1. F
/// void: no activation.
template <class Arch, class F>
HEADLANE_INLINE void apply_epilogue(const GemmBlock& block, Index row, Index rows, Index column, Index columns) {
  using V = Lanes<Arch>;
  constexpr Index at_once = group_size<Arch>;  // Lanes, along a row and on to the next
  const GemmEpilogue& epilogue = *block.epilogue;
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
      if (epilogue.bias != nullptr)
        x[i] = x[i] + V::gather(epilogue.bias + j * epilogue.bias_step, epilogue.bias_step, count[i]);
    }
    if constexpr (!__is_same(F, void)) apply<F>(x);
    for (Index i = 0; i < at_once && first + i < total; ++i) {
      const Index at = first + i, r = row + at / per_row, j = column + at % per_row * lanes;
      if (epilogue.factor != nullptr)
        x[i] = x[i] * V::gather(epilogue.factor + r * epilogue.factor_row_step + j, 1, count[i]);
      if (epilogue.residual != nullptr)
        x[i] = x[i] + V::gather(epilogue.residual + r * epilogue.row_step + j * epilogue.column_step,
                                epilogue.column_step, count[i]);
      count[i] == lanes ? x[i].store(c[i]) : x[i].store(c[i], count[i]);
    }
  }
}

/// Not inline: one copy for all tile sizes.
template <class Arch>
__attribute__((noinline)) void apply_epilogue(const GemmBlock& block, Index row, Index rows, Index column,
                                              Index columns) {
  if (columns > block.n - column) columns = block.n - column;
  if (block.epilogue->activation == Activation::none)
    return apply_epilogue<Arch, void>(block, row, rows, column, columns);
  with_activation(block.epilogue->activation,
                  [&](auto f) { apply_epilogue<Arch, decltype(f)>(block, row, rows, column, columns); });
}

template <class Arch>
void gemm_epilogue(const GemmBlock& block) noexcept {
  apply_epilogue<Arch>(block, 0, block.m, 0, block.n);
}

/// c = alpha · acc + beta · c. Read: beta is not 0.
template <class Arch, int Rows, int Vectors, bool Read>
HEADLANE_INLINE void store_tile(const Accumulators<Arch, Rows, Vectors>& acc, const GemmBlock& block, float* c) {
  using V = Lanes<Arch>;
  const V alpha = V::broadcast(block.alpha), beta = V::broadcast(block.beta);
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) {
      float* at = c + i * block.c_row_step + j * lanes;
      fma(alpha, acc[i][j], Read ? beta * V::load(at) : V::zero()).store(at);
    }
}

/// The same for the last columns of c, fewer than the tile is wide.
template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE void store_part(const Accumulators<Arch, Rows, Vectors>& acc, const GemmBlock& block, float* c,
                                Index columns) {
  using V = Lanes<Arch>;
  const V alpha = V::broadcast(block.alpha), beta = V::broadcast(block.beta);
  const bool read = block.beta != 0.0f;
#pragma GCC unroll 8
  for (int j = 0; j < Vectors; ++j) {
    const Index count = columns - j * lanes < lanes ? columns - j * lanes : lanes;
    if (count <= 0) return;
    float* at = c + j * lanes;
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      fma(alpha, acc[i][j], read ? beta * V::load(at, count, 0.0f) : V::zero()).store(at, count);
      if (i + 1 < Rows) make_opaque(at += block.c_row_step);
    }
  }
}

/// The columns of a tile that c has: all of them, not all of them, or what block.n says when it
/// runs, at the price of a branch and of less code.
enum class Has { all, some, either };

/// Stores a tile and applies the epilogue.
template <class Arch, int Rows, int Vectors, Has has>
HEADLANE_INLINE void finish_tile(const Accumulators<Arch, Rows, Vectors>& acc, const GemmBlock& block, Index row,
                                 Index column) {
  float* c = block.c + row * block.c_row_step + column;
  const Index columns = block.n - column;
  if (has == Has::some || (has == Has::either && columns < Vectors * lanes))
    store_part<Arch, Rows, Vectors>(acc, block, c, columns);
  else if (block.beta == 0.0f) store_tile<Arch, Rows, Vectors, false>(acc, block, c);
  else store_tile<Arch, Rows, Vectors, true>(acc, block, c);
  if (block.epilogue != nullptr) apply_epilogue<Arch>(block, row, Rows, column, Vectors * lanes);
}

}  // namespace
}  // namespace headlane::internal::kernels
