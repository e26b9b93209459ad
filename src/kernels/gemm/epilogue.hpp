// Finishes a tile of c: scales its sums, applies the epilogue, and stores it.
#pragma once

#include "kernels/args/gemm.hpp"
#include "kernels/gemm/tile.hpp"
#include "kernels/simd/activation.hpp"

#include <type_traits>

namespace headlane::internal::kernels {
namespace {

/// The epilogue of Down rows of Across Lanes, the first of which begins at [row, column]: `c` from
/// `x`. F void: no activation. Not whole: of the first `columns` elements, with any strides.
template <class Arch, class F, int Down, int Across, bool whole>
HEADLANE_INLINE void apply_epilogue(const GemmEpilogue& epilogue, const float* x, Index x_step, float* c, Index c_step,
                                    Index row, Index column, Index columns) {
  using V = Lanes<Arch>;
  const auto load = [&](const float* at, Index step)
                        HEADLANE_INLINE_LAMBDA { return whole ? V::load(at) : V::gather(at, step, columns); };
  V y[Down * Across];
  const auto each = [&](const auto& f) HEADLANE_INLINE_LAMBDA {
#pragma GCC unroll 4
    for (int k = 0; k < Down * Across; ++k) f(y[k], k / Across, k % Across * lanes);
  };
  each([&](V& one, int i, int j) HEADLANE_INLINE_LAMBDA { one = load(x + i * x_step + j, 1); });
  if (epilogue.bias != nullptr)
    each([&](V& one, int, int j) HEADLANE_INLINE_LAMBDA {
      one = one + load(epilogue.bias + (column + j) * epilogue.bias_step, epilogue.bias_step);
    });
  if constexpr (!std::is_void_v<F>) apply<F>(y);
  if (epilogue.factor != nullptr)
    each([&](V& one, int i, int j) HEADLANE_INLINE_LAMBDA {
      one = one * load(epilogue.factor + (row + i) * epilogue.factor_row_step + column + j, 1);
    });
  if (epilogue.residual != nullptr)
    each([&](V& one, int i, int j) HEADLANE_INLINE_LAMBDA {
      one = one + load(epilogue.residual + (row + i) * epilogue.row_step + (column + j) * epilogue.column_step,
                       epilogue.column_step);
    });
  each([&](const V& one, int i, int j) HEADLANE_INLINE_LAMBDA {
    whole ? one.store(c + i * c_step + j) : store_some<Arch>(c + i * c_step + j, columns, one);
  });
}

/// The epilogue of the elements of c from [row, column] on, which x holds so far: as many Lanes at
/// a time as exp works on side by side, below each other or, of fewer rows, along a row.
template <class Arch, class F>
HEADLANE_INLINE void apply_epilogue(const GemmBlock& block, const float* x, Index x_step, Index row, Index rows,
                                    Index column, Index columns) {
  constexpr int group = group_size<Arch>;
  const GemmEpilogue epilogue = *block.epilogue;  // a copy, which stores to c do not change
  const auto lanes_at = [&](auto down, auto across, auto whole, Index i, Index j) HEADLANE_INLINE_LAMBDA {
    const Index c_step = block.c_row_step;
    apply_epilogue<Arch, F, down.value, across.value, whole.value>(epilogue, x + i * x_step + j, x_step,
                                                                   block.c + (row + i) * c_step + column + j, c_step,
                                                                   row + i, column + j, columns - j);
  };
  const auto rest_of_row = [&](Index i, Index j) HEADLANE_INLINE_LAMBDA {
    for (; j < columns; j += lanes) lanes_at(Constant<1>{}, Constant<1>{}, std::false_type{}, i, j);
  };
  const bool has_steps = (epilogue.bias != nullptr && epilogue.bias_step != 1) ||
                         (epilogue.residual != nullptr && epilogue.column_step != 1);
  const Index whole = has_steps ? 0 : columns / lanes * lanes;
  const Index together = rows / group * group;
  for (Index j = 0; j < whole; j += lanes)
    for (Index i = 0; i < together; i += group) lanes_at(Constant<group>{}, Constant<1>{}, std::true_type{}, i, j);
  for (Index i = 0; i < together; ++i) rest_of_row(i, whole);
  for (Index i = together; i < rows; ++i) {
    Index j = 0;
    for (; j + group * lanes <= whole; j += group * lanes)
      lanes_at(Constant<1>{}, Constant<group>{}, std::true_type{}, i, j);
    rest_of_row(i, j);
  }
}

/// Not inline: one copy for all sizes of tiles.
template <class Arch>
__attribute__((noinline)) void apply_epilogue(const GemmBlock& block, const float* x, Index x_step, Index row,
                                              Index rows, Index column, Index columns) {
  if (columns > block.n - column) columns = block.n - column;
  if (block.epilogue->activation == Activation::none)
    return apply_epilogue<Arch, void>(block, x, x_step, row, rows, column, columns);
  with_activation(block.epilogue->activation,
                  [&](auto f) { apply_epilogue<Arch, decltype(f)>(block, x, x_step, row, rows, column, columns); });
}

template <class Arch>
void gemm_epilogue(const GemmBlock& block) noexcept {
  apply_epilogue<Arch>(block, block.c, block.c_row_step, 0, block.m, 0, block.n);
}

/// Prefetches the tile's lines of a matrix into the L1 while the products are computed.
template <int Rows, int Vectors, bool written>
HEADLANE_INLINE void prefetch_tile(const float* at, Index row_step) {
  constexpr int line = 16;  // floats
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < Vectors * lanes; j += line) __builtin_prefetch(at + j, written);
    if (i + 1 < Rows) make_opaque(at += row_step);
  }
}

/// True if tiles prefetch their lines of c. 2048 × 2048 × 512 added to c waited for each of them:
/// 90 to 94 % of the FMA peak (Zen 4). Where c is only written, stores wait instead, behind those
/// of the sums: prefetched, 512 × 512 × 512 takes 0.96 of the time with AVX-512 on Zen 4, and
/// 2048 × 512 × 512 0.96 to 0.98; a loop of the shape of 528 × 2016 × 512 went from 82 to 85 % of
/// the peak with AVX2 on Zen 3. Tiles of shorter chains store more often: 2048 × 2048 × 64 takes
/// 0.95 to 1.0 of the time, but what the L1 has suffers, 64 × 64 × 64 1.01, 17 × 33 × 65 1.02.
HEADLANE_INLINE bool prefetches_c(const GemmBlock& block) {
  constexpr Index large = Index{1} << 16;  // elements
  return block.beta != 0.0f || block.k >= chain_length || block.m * block.n >= large;
}

/// 2048 × 1536 × 384 waited for its residual: 1.05 of this time, by int8 1.1.
template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE void prefetch_operands(const GemmBlock& block, Index row, Index column) {
  if (prefetches_c(block))
    prefetch_tile<Rows, Vectors, true>(block.c + row * block.c_row_step + column, block.c_row_step);
  if (block.epilogue == nullptr) return;
  const GemmEpilogue& epilogue = *block.epilogue;
  if (epilogue.factor != nullptr)
    prefetch_tile<Rows, Vectors, false>(epilogue.factor + row * epilogue.factor_row_step + column,
                                        epilogue.factor_row_step);
  if (epilogue.residual != nullptr && epilogue.column_step == 1)
    prefetch_tile<Rows, Vectors, false>(epilogue.residual + row * epilogue.row_step + column, epilogue.row_step);
}

/// to = alpha · acc + beta · c. Read: beta is not 0. Addresses follow row by row: GCC computed
/// those of all rows before the first store and spilled them, behind every tile. 64 × 64 × 64 took
/// 1.01 of the time, with AVX2 1.01 to 1.02 (Zen 4).
template <class Arch, int Rows, int Vectors, bool Read>
HEADLANE_INLINE void store_tile(const Accumulators<Arch, Rows, Vectors>& acc, const GemmBlock& block, const float* c,
                                float* to, Index to_step) {
  using V = Lanes<Arch>;
  const V alpha = V::broadcast(block.alpha), beta = V::broadcast(block.beta);
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j)
      fma(alpha, acc[i][j], Read ? beta * V::load(c + j * lanes) : V::zero()).store(to + j * lanes);
    if (i + 1 < Rows) make_opaque(to += to_step);
    if (Read && i + 1 < Rows) make_opaque(c += block.c_row_step);
  }
}

/// The same for the last columns of c, fewer than the tile is wide.
template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE void store_part(const Accumulators<Arch, Rows, Vectors>& acc, const GemmBlock& block, const float* c,
                                float* to, Index to_step, Index columns) {
  using V = Lanes<Arch>;
  const V alpha = V::broadcast(block.alpha), beta = V::broadcast(block.beta);
  const bool read = block.beta != 0.0f;
#pragma GCC unroll 8
  for (int j = 0; j < Vectors; ++j) {
    const Index count = columns - j * lanes < lanes ? columns - j * lanes : lanes;
    if (count <= 0) return;
    const float* from = c + j * lanes;
    float* at = to + j * lanes;
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      fma(alpha, acc[i][j], read ? beta * V::load(from, count, 0.0f) : V::zero()).store(at, count);
      if (i + 1 < Rows) make_opaque(from += block.c_row_step), make_opaque(at += to_step);
    }
  }
}

/// The columns of a tile that c has: all of them, not all of them, at most half of its Lanes, or
/// what block.n says when it runs, at the price of a branch and of less code.
enum class Has { all, some, half, either };

/// Stores a tile, by way of a buffer if there is an epilogue. When the epilogue read the tile from
/// c, whose rows are often multiples of 1 KiB apart, 2048 × 512 × 512 with a bias took 1.03 of this
/// time (Zen 4, AVX-512).
template <class Arch, int Rows, int Vectors, Has has>
HEADLANE_INLINE void finish_tile(const Accumulators<Arch, Rows, Vectors>& acc, const GemmBlock& block, Index row,
                                 Index column) {
  constexpr Index width = Vectors * lanes;
  alignas(64) float tile[Rows * width];
  float* const c = block.c + row * block.c_row_step + column;
  float* to = block.epilogue != nullptr ? tile : c;
  const Index columns = block.n - column, to_step = block.epilogue != nullptr ? width : block.c_row_step;
  if (has == Has::some || has == Has::half || (has == Has::either && columns < width))
    store_part<Arch, Rows, Vectors>(acc, block, c, to, to_step, columns);
  else if (block.beta == 0.0f) store_tile<Arch, Rows, Vectors, false>(acc, block, c, to, to_step);
  else store_tile<Arch, Rows, Vectors, true>(acc, block, c, to, to_step);
  if (block.epilogue != nullptr)
    apply_epilogue<typename Narrow<Arch>::Epilogue>(block, tile, width, row, Rows, column, width);
}

}  // namespace
}  // namespace headlane::internal::kernels
