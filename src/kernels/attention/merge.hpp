// The running result of query rows: partial results of blocks of keys are merged into it, and the
// end result is divided by its sums.
#pragma once

#include "kernels/args/attention.hpp"
#include "kernels/gemm/tile.hpp"
#include "kernels/simd/exp.hpp"

namespace headlane::internal::kernels {
namespace {

/// Factors of the state and of a block's partial result: state = keep · state + add · part; for the
/// only block, keep · part.
struct MergeFactors {
  float keep[lanes], add[lanes];
};

/// Merges the maxima and sums of up to 16 rows, one row a lane.
template <class Arch>
HEADLANE_INLINE void merge_sums(const AttentionState& state, Index row, Index rows, const Lanes<Arch>& part_max,
                                const Lanes<Arch>& part_sum, MergeFactors& factors) {
  using V = Lanes<Arch>;
  const V minus_inf = V::broadcast(-__builtin_inff());
  const V old_max = V::load(state.max + row, rows, 0.0f), old_sum = V::load(state.sum + row, rows, 0.0f);
  const V new_max = max(part_max, old_max);
  const V m = select_equal(new_max, minus_inf, V::zero(), new_max);
  const V keep = exp(old_max - m), add = exp(part_max - m);
  keep.store(factors.keep);
  add.store(factors.add);
  new_max.store(state.max + row, rows);
  fma(part_sum, add, old_sum * keep).store(state.sum + row, rows);
}

template <class Arch>
void attention_merge(const AttentionState& state, const AttentionState& part, Index all_rows,
                     Index value_dim) noexcept {
  using V = Lanes<Arch>;
  for (Index first = 0; first < all_rows; first += lanes) {
    const Index rows = all_rows - first < lanes ? all_rows - first : lanes;
    alignas(64) MergeFactors factors;
    merge_sums<Arch>(state, first, rows, V::load(part.max + first, rows, 0.0f), V::load(part.sum + first, rows, 0.0f),
                     factors);
    for (Index i = 0; i < rows; ++i) {
      const V keep = V::broadcast(factors.keep[i]), add = V::broadcast(factors.add[i]);
      float* out = state.out + (first + i) * state.out_step;
      const float* from = part.out + (first + i) * part.out_step;
      for (Index j = 0; j < value_dim; j += lanes) fma(V::load(from + j), add, V::load(out + j) * keep).store(out + j);
    }
  }
}

template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE bool all_finite(const Accumulators<Arch, Rows, Vectors>& acc) {
  using V = Lanes<Arch>;
  constexpr int chains = 4 < Rows ? 4 : Rows;  // an fma takes 4 cycles
  V zeros[chains];
  for (V& z : zeros) z = V::zero();
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) zeros[i % chains] = fma(acc[i][j], V::zero(), zeros[i % chains]);
#pragma GCC unroll 4
  for (int c = 1; c < chains; ++c) zeros[0] = zeros[0] + zeros[c];
  return zeros[0].reduce_add() == 0.0f;
}

/// Computes P · V of a tile again if an element is not finite, for rows that do not see all of its
/// keys: 0 times a hidden NaN or infinity is not 0. compute(i, j, to) writes vector j of row i, of
/// the keys alone that it sees.
template <class Arch, int Rows, int Vectors, class F>
HEADLANE_INLINE void recompute_unless_finite(Accumulators<Arch, Rows, Vectors>& acc, const F& compute) {
  if (all_finite<Arch, Rows, Vectors>(acc)) return;
  alignas(64) float part[lanes];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) {
      compute(i, j, part);
      acc[i][j] = Lanes<Arch>::load(part);
    }
}

/// 16 elements of the result. Never -0, which a part of weight 0 could turn into +0: the sum of a
/// tile may be -0 where the state has +0, and both give +0.
template <class Arch>
HEADLANE_INLINE Lanes<Arch> divided(const Lanes<Arch>& sum_of_values, const Lanes<Arch>& factor) {
  return sum_of_values * factor + Lanes<Arch>::zero();
}

/// Divides P · V of a tile and stores it in the output: of the only block, nothing to merge.
template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE void store_output(const AttentionOutput& output, Index row, Index column, const float* factor,
                                  const Accumulators<Arch, Rows, Vectors>& acc) {
  using V = Lanes<Arch>;
  float* to = output.out + row * output.row_step + column;
  const Index last = output.value_dim - column - (Vectors - 1) * lanes;  // columns of the last vector
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i, to += output.row_step) {
    const V scale = V::broadcast(factor[i]);
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) {
      const V y = divided(acc[i][j], scale);
      if (j + 1 < Vectors || last >= lanes) y.store(to + j * lanes);
      else y.store(to + j * lanes, last);
    }
  }
}

/// Finds the factors that divide up to 16 rows, one row a lane, and writes lse and sum.
template <class Arch>
__attribute__((noinline)) void finish_rows(const AttentionOutput& output, Index first, Index rows, Lanes<Arch> largest,
                                           Lanes<Arch> sum, float* factor) {
  using V = Lanes<Arch>;
  V weight = V::broadcast(1.0f);
  if (output.sinks != nullptr) {
    const V minus_inf = V::broadcast(-__builtin_inff()), sink = V::load(output.sinks + first, rows, 0.0f);
    const V joint = max(largest, sink), m = select_equal(joint, minus_inf, V::zero(), joint);
    weight = exp(largest - m);  // 0 for a row without visible keys
    sum = fma(sum, weight, exp(sink - m));
    largest = joint;
  }
  if (output.sum != nullptr) V::broadcast(1.0f).store(factor);
  else select_equal(sum, V::zero(), V::zero(), weight / sum).store(factor);
  if (output.lse == nullptr) return;
  alignas(64) float lse[lanes], sums[lanes];
  (output.sum != nullptr ? largest : largest + log(sum)).store(lse);
  sum.store(sums);
  for (Index i = 0; i < rows; ++i) output.lse[(first + i) * output.lse_step] = lse[i];
  for (Index i = 0; i < rows && output.sum != nullptr; ++i) output.sum[(first + i) * output.sum_step] = sums[i];
}

template <class Arch>
void attention_finish(const AttentionState& state, const AttentionOutput& output) noexcept {
  using V = Lanes<Arch>;
  for (Index first = 0; first < output.rows; first += lanes) {
    const Index rows = output.rows - first < lanes ? output.rows - first : lanes;
    alignas(64) float factor[lanes];
    finish_rows<Arch>(output, first, rows, V::load(state.max + first, rows, 0.0f),
                      V::load(state.sum + first, rows, 0.0f), factor);
    for (Index i = 0; i < rows; ++i) {
      const float* from = state.out + (first + i) * state.out_step;
      float* to = output.out + (first + i) * output.row_step;
      const V scale = V::broadcast(factor[i]);
      for (Index j = 0; j < output.value_dim; j += lanes) {
        const V y = divided(V::load(from + j), scale);
        const Index count = output.value_dim - j;
        alignas(64) float copy[lanes] = {};
        if (output.column_step == 1 && count >= lanes) y.store(to + j);
        else if (output.column_step == 1) y.store(to + j, count);
        else y.store(copy);
        for (Index c = 0; output.column_step != 1 && c < lanes && c < count; ++c)
          to[(j + c) * output.column_step] = copy[c];
      }
    }
  }
}

}  // namespace
}  // namespace headlane::internal::kernels
