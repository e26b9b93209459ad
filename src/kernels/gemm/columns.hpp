// Few rows times columns that are contiguous along k: rows of a transposed matrix, keys of a
// tensor. Columns are transposed in registers, 16 × 16 at a time. Decoding one row through panels
// in the L1 takes 1.2 times as long, with the keys in the L2 (Zen 4).
#pragma once

#include "kernels/gemm/epilogue.hpp"
#include "kernels/gemm/tile.hpp"
#include "kernels/simd/transpose.hpp"

namespace headlane::internal::kernels {
namespace {

/// The most rows that are multiplied this way. With AVX2 panels are up to 5 % faster.
template <class Arch>
inline constexpr int max_rows_by_columns = Register<Arch>::width == lanes ? 4 : 0;

/// Some rows, a_step apart, and columns, b_step apart, at most 16 of these.
struct RowsAndColumns {
  const float* a;
  Index a_step;
  const float* b;
  Index b_step, columns;
};

/// acc[i] = fma(a[i, p], b[p, ·], acc[i]) for k steps, at most 16. Whole: 16 steps of 16 columns.
template <class Arch, int Rows, bool Whole>
HEADLANE_INLINE void multiply_square(Index k, const RowsAndColumns& from, Accumulators<Arch, Rows, 1>& acc) {
  using R = Register<Arch>;
  typename R::Float square[R::width];
  load_transposed<Arch, Whole>(from.b, from.b_step, 0, from.columns, k, square);
#pragma GCC unroll 16
  for (int p = 0; p < R::width; ++p)
    if (Whole || p < k)
#pragma GCC unroll 4
      for (int i = 0; i < Rows; ++i)
        acc[i][0].part[0] = R::fma(typename R::Float(from.a[i * from.a_step + p]), square[p], acc[i][0].part[0]);
}

/// The fmas of multiply() in tile.hpp. prefetch(p) is called before the steps from p on.
template <class Arch, int Rows, class Prefetch>
HEADLANE_INLINE void multiply_columns(Index k, const RowsAndColumns& all, Accumulators<Arch, Rows, 1>& acc,
                                      const Prefetch& prefetch) {
  for (Index p = 0; p < k; p += lanes) {
    prefetch_beyond(all.b + p, columns_ahead, all.b_step);
    prefetch(p);
    RowsAndColumns from = all;
    from.a += p, from.b += p;
    if (k - p >= lanes && all.columns >= lanes) multiply_square<Arch, Rows, true>(lanes, from, acc);
    else multiply_square<Arch, Rows, false>(k - p, from, acc);
  }
}

/// 16 columns of c.
template <class Arch, int Rows>
__attribute__((noinline)) void gemm_columns(const GemmBlock& block, Index column) {
  const Index columns = block.n - column;
  RowsAndColumns from{block.a, block.a_row_step, static_cast<const float*>(block.b) + column * block.b_column_step,
                      block.b_column_step, columns};
  Accumulators<Arch, Rows, 1> acc;
  alignas(64) float sums[Rows * lanes];  // of the chains before
  for (Index first = 0;; first += chain_length) {
    const Index rest = block.k - first;
    clear<Arch, Rows, 1>(acc);
    multiply_columns<Arch, Rows>(rest < chain_length ? rest : chain_length, from, acc, [](Index) {});
    for (int i = 0; i < Rows && first > 0; ++i) acc[i][0] = Lanes<Arch>::load(sums + i * lanes) + acc[i][0];
    if (rest <= chain_length) break;
    for (int i = 0; i < Rows; ++i) acc[i][0].store(sums + i * lanes);
    from.a += chain_length, from.b += chain_length;
  }
  finish_tile<Arch, Rows, 1, Has::either>(acc, block, 0, column);
}

}  // namespace
}  // namespace headlane::internal::kernels
