// q·kᵀ of few query rows and keys that lie in rows, as in a tensor.
#pragma once

#include "kernels/args/attention.hpp"
#include "kernels/gemm/columns.hpp"

namespace headlane::internal::kernels {
namespace {

/// sums = q · kᵀ, [Rows, 16], for 16 keys or the `count` ones that there are.
template <class Arch, int Rows>
__attribute__((noinline)) void multiply_key_rows(const AttentionBlock& block, Index row, Index key, Index count,
                                                 float* sums) {
  const KeyBlock& keys = block.keys;
  const float* const q = block.q + row * packed_row_stride;
  const float* const k = static_cast<const float*>(keys.k[0]) + key * keys.k_row_step;
  const float* const v = static_cast<const float*>(keys.v[0]) + key * keys.v_row_step;
  Accumulators<Arch, Rows, 1> acc;
  clear<Arch, Rows, 1>(acc);
  multiply_columns<Arch, Rows>(block.head_dim, {q, packed_row_stride, k, keys.k_row_step, count}, acc,
                               [&](Index i) HEADLANE_INLINE_LAMBDA {
                                 if (keys.prefetches) prefetch_beyond(v + i, 0, keys.v_row_step);
                               });
  for (int i = 0; i < Rows; ++i) acc[i][0].store(sums + i * lanes);
}

}  // namespace
}  // namespace headlane::internal::kernels
