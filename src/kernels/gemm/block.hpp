// One block along k of a matrix product: packed rows times panels, added to c.
#pragma once

#include "kernels/args/gemm.hpp"
#include "kernels/gemm/stored_tile.hpp"
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

/// Prefetches the tile's lines of c, which are read and written, into the L1 while the products are
/// computed: 2048 × 2048 × 512 added to c waited for each of them, 90 to 94 % of the FMA peak.
/// Where c is only written, this gains nothing.
template <int Rows, int Vectors>
HEADLANE_INLINE void prefetch_tile(const float* c, Index row_step) {
  constexpr int line = 16;  // floats
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < Vectors * lanes; j += line) __builtin_prefetch(c + j, 1);
    if (i + 1 < Rows) make_opaque(c += row_step);
  }
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

/// Two rows of the next strip, which a tile prefetches while it computes: six tiles prefetch them
/// all. 2048 × 512 × 512 waited for rows of a in the first tile of each strip: 90 to 96 % of the
/// FMA peak. In the last strip, rows that are in the cache already.
HEADLANE_INLINE const float* rows_to_prefetch(const GemmBlock& block, Index row, Index column) {
  const Index next = row + strip_rows + column / panel_columns * 2 % strip_rows;
  return block.a + (next + 1 < block.m ? next : row) * block.a_row_step;
}

/// acc += sums, the chains before this one.
template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE void add_sums(Accumulators<Arch, Rows, Vectors>& acc, const float* sums) {
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) acc[i][j] = Lanes<Arch>::load(sums + (i * Vectors + j) * lanes) + acc[i][j];
}

template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE void store_sums(const Accumulators<Arch, Rows, Vectors>& acc, float* sums) {
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) acc[i][j].store(sums + (i * Vectors + j) * lanes);
}

/// A tile of c. T: an item of b.
template <class Arch, class T, int Rows, int Vectors, Has has, Visit visit>
HEADLANE_INLINE void gemm_tile(const GemmBlock& block, Index row, Index column) {
  using V = Lanes<Arch>;
  const Index panel = column / panel_columns, within = column % panel_columns, columns = block.n - column;
  constexpr bool grouped = rows_of<T> == 32;
  PanelsOf<T> b{static_cast<const T*>(block.b) + panel * block.b_panel_step + (grouped ? 0 : within), block.b_row_step,
                block.b_panel_step};
  b.within = within;
  float* keep = visit == Visit::keep ? block.keep + panel * panel_columns * block.k + within : nullptr;
  if constexpr (std::is_same_v<T, Int8Quad>) b.scales = block.b_scales + column;
  const float *a = block.a + row * block.a_row_step, *ahead = rows_to_prefetch(block, row, column);
  if (block.beta != 0.0f) prefetch_tile<Rows, Vectors>(block.c + row * block.c_row_step + column, block.c_row_step);
  V acc[Rows][Vectors];
  alignas(64) float memory[Rows * Vectors * lanes];  // stays in the L1
  float* sums = memory;
  make_opaque(sums);  // not in registers, which GCC would spill
  for (Index first = 0;; first += chain_of<T>) {
    const Index rest = block.k - first, length = rest < chain_of<T> ? rest : chain_of<T>;
    const Index word = first / columns_of_word<T>;
    clear<Arch, Rows, Vectors>(acc);
    multiply<Arch, Rows, Vectors, visit, has == Has::some>(length,
                                                           StridedRows<Rows>(a + word, block.a_row_step, ahead + word),
                                                           b, acc, keep, columns - (Vectors - 1) * lanes);
    if (first > 0) add_sums<Arch, Rows, Vectors>(acc, sums);
    if (rest <= chain_of<T>) break;
    store_sums<Arch, Rows, Vectors>(acc, sums);
    b.data += chain_of<T> / rows_of<T> * b.row_step;
    if constexpr (visit == Visit::keep) keep += chain_of<T> * panel_columns;
  }

  finish_tile<Arch, Rows, Vectors, has>(acc, block, row, column);
}

/// Not inline: it runs once for each row of tiles, and the loop over the others keeps its
/// registers.
template <class Arch, class T, int Rows, int Vectors, Visit visit>
__attribute__((noinline)) void last_tile(const GemmBlock& block, Index row, Index column) {
  gemm_tile<Arch, T, Rows, Vectors, Has::some, visit>(block, row, column);
}

template <class Arch, class T, int Rows, int Vectors, Visit visit = Visit::again>
HEADLANE_INLINE void gemm_tile(const GemmBlock& block, Index row, Index column) {
  if constexpr (!std::is_same_v<T, float>) gemm_tile<Arch, T, Rows, Vectors, Has::either, visit>(block, row, column);
  else if (block.n - column >= Vectors * lanes) gemm_tile<Arch, T, Rows, Vectors, Has::all, visit>(block, row, column);
  else last_tile<Arch, T, Rows, Vectors, visit>(block, row, column);
}

/// A row of tiles: `rows` rows, at most those of a tile.
template <class Arch, class T>
HEADLANE_INLINE void gemm_few_rows(const GemmBlock& block, Index row, Index rows) {
  with_rows<Tile<Arch>::rows>(rows, [&](auto height) {
    for_each_column_tile<Arch, height.value, std::is_same_v<T, float>>(
        block.n, [&](Index column, auto width) { gemm_tile<Arch, T, height.value, width.value>(block, row, column); });
  });
}

/// Rows from `first` on, in strips.
template <class Arch, class T = float>
HEADLANE_INLINE void gemm_strips(const GemmBlock& block, Index first) {
  [[maybe_unused]] constexpr int vectors = Tile<Arch>::vectors;
  for_each_part(block.m - first, strip_rows, [&](Index at, Index rows) {
    const Index strip = first + at;
    if (rows <= Tile<Arch>::rows) return gemm_few_rows<Arch, T>(block, strip, rows);
    if constexpr (Tile<Arch>::rows < strip_rows)
      for (Index column = 0; column < block.n; column += vectors * lanes)
        for_each_row_tile<Arch>(rows, [&](Index row, auto height) {
          gemm_tile<Arch, T, height.value, vectors>(block, strip + row, column);
        });
  });
}

/// The first rows, as many as a tile has. Not inline, as last_tile.
template <class Arch, class T, Visit visit>
__attribute__((noinline)) void gemm_first_rows(const GemmBlock& block) {
  constexpr int rows = Tile<Arch>::rows;
  for_each_column_tile<Arch, rows, std::is_same_v<T, float>>(
      block.n, [&](Index column, auto width) { gemm_tile<Arch, T, rows, width.value, visit>(block, 0, column); });
}

/// The first rows store b in panels: two stores for 24 fmas. The others read those.
template <class Arch, class T>
HEADLANE_INLINE void gemm_keep(const GemmBlock& block) {
  gemm_first_rows<Arch, T, Visit::keep>(block);
  GemmBlock rest = block;
  rest.b = block.keep;
  rest.b_row_step = panel_columns;
  rest.b_panel_step = panel_columns * block.k;
  gemm_strips<Arch>(rest, Tile<Arch>::rows);
}

/// T is not float: the rows of one tile widen b as they read it; of more rows, the first ones store
/// it as panels of float.
template <class Arch, class T>
__attribute__((noinline)) void gemm_stored(const GemmBlock& block) {
  if (block.m <= Tile<Arch>::rows) return gemm_few_rows<Arch, T>(block, 0, block.m);
  gemm_keep<Arch, T>(block);
}

template <class Arch>
void gemm_block(const GemmBlock& block) noexcept {
  if (block.b_type == DType::bfloat16) return gemm_stored<Arch, BfloatPair>(block);
  if (block.b_type == DType::float16) return gemm_stored<Arch, float16>(block);
  if (block.b_type == DType::int8) return gemm_stored<Arch, Int8Quad>(block);
  if (block.b_type == DType::int8_group32) return gemm_stored<Arch, Int8Group>(block);
  if (block.b_type == DType::int4_group32) return gemm_stored<Arch, Int4Group>(block);
  if (block.m < 2 * strip_rows) return gemm_strips<Arch>(block, 0);
  if (block.keep != nullptr) return gemm_keep<Arch, float>(block);
  gemm_first_rows<Arch, float, Visit::first>(block);  // they wait for b unless it is prefetched
  gemm_strips<Arch>(block, Tile<Arch>::rows);
}

}  // namespace
}  // namespace headlane::internal::kernels
