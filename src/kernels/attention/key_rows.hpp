// q·kᵀ of one query row and keys that lie in rows, as in a tensor.
#pragma once

#include "kernels/args/attention.hpp"
#include "kernels/gemm/pack.hpp"
#include "kernels/gemm/tile.hpp"

namespace headlane::internal::kernels {
namespace {

/// True if tiles of so many rows read such keys by multiply_key_rows(); the others by panels, into
/// which keys are transposed for all rows. With half as wide registers panels are up to 5 % faster.
template <class Arch, int Rows>
inline constexpr bool reads_key_rows = Rows <= 4 && Register<Arch>::width == lanes;

/// acc[i] = fma(q[i, p], k[·, p], acc[i]) for 16 elements of 16 keys, or for the ones that there
/// are. Whole: for all.
template <class Arch, int Rows, bool Whole>
HEADLANE_INLINE void multiply_square(const float* q, const float* k, Index step, Index keys, Index elements,
                                     Lanes<Arch> (&acc)[Rows]) {
  using R = Register<Arch>;
  typename R::Float columns[R::width];
  load_transposed<Arch, Whole>(k, step, 0, keys, elements, columns);
#pragma GCC unroll 16
  for (int p = 0; p < R::width; ++p)
    if (Whole || p < elements)
#pragma GCC unroll 4
      for (int i = 0; i < Rows; ++i)
        acc[i].part[0] = R::fma(typename R::Float(q[i * packed_row_stride + p]), columns[p], acc[i].part[0]);
}

/// sums = q · kᵀ, [Rows, 16], for 16 keys or the `count` ones that there are: the fmas of
/// multiply() in gemm/tile.hpp, with keys that are transposed in registers. Through panels in the
/// L1 decoding takes 1.2 times as long (Zen 4, one row, keys in the L2).
template <class Arch, int Rows>
__attribute__((noinline)) void multiply_key_rows(const AttentionBlock& block, Index row, Index key, Index count,
                                                 float* sums) {
  const KeyBlock& keys = block.keys;
  const float* const q = block.q + row * packed_row_stride;
  const float* const k = static_cast<const float*>(keys.k[0]) + key * keys.k_row_step;
  const float* const v = static_cast<const float*>(keys.v[0]) + key * keys.v_row_step;
  Lanes<Arch> acc[Rows];
  for (Lanes<Arch>& x : acc) x = Lanes<Arch>::zero();
  for (Index first = 0; first < block.head_dim; first += lanes) {
    const Index elements = block.head_dim - first;
    prefetch_beyond(k + first, columns_ahead, keys.k_row_step);
    if (keys.prefetches) prefetch_beyond(v + first, 0, keys.v_row_step);
    if (count >= lanes && elements >= lanes)
      multiply_square<Arch, Rows, true>(q + first, k + first, keys.k_row_step, lanes, lanes, acc);
    else multiply_square<Arch, Rows, false>(q + first, k + first, keys.k_row_step, count, elements, acc);
  }
  for (int i = 0; i < Rows; ++i) acc[i].store(sums + i * lanes);
}

}  // namespace
}  // namespace headlane::internal::kernels
