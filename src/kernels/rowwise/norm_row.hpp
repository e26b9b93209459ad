// Layer norm and RMS norm of rows: a pass for the mean (or the mean square), one for the variance,
// one for the result. The row stays in the L1 in between.
#pragma once

#include "kernels/args/rowwise.hpp"
#include "kernels/simd/lanes.hpp"

namespace headlane::internal::kernels {
namespace {

/// A sum consists of 4 × 16 partial sums on every instruction set: a single Lanes would wait for
/// its own additions, 4 cycles each.
inline constexpr int norm_vectors = 4;
inline constexpr Index norm_group = norm_vectors * lanes;

/// Calls f(j, i, count) for vectors of 16 elements from i on, of which `count` exist; j = i / 16
/// mod 4.
template <class F>
HEADLANE_INLINE void for_each_vector(Index n, const F& f) {
  Index i = 0;
  for (; i + norm_group <= n; i += norm_group) {
#pragma GCC unroll 4
    for (int j = 0; j < norm_vectors; ++j) f(j, i + j * lanes, lanes);
  }
#pragma GCC unroll 4
  for (int j = 0; j < norm_vectors; ++j)
    if (i + j * lanes < n) f(j, i + j * lanes, n - i - j * lanes);
}

/// Four times 16 partial sums.
template <class Arch>
struct PartialSums {
  Lanes<Arch> part[norm_vectors];

  HEADLANE_INLINE PartialSums() {
#pragma GCC unroll 4
    for (int j = 0; j < norm_vectors; ++j) part[j] = Lanes<Arch>::zero();
  }
  /// 64 → 32 → 16, then as Lanes::reduce_add.
  HEADLANE_INLINE float total() const { return ((part[0] + part[2]) + (part[1] + part[3])).reduce_add(); }
};

/// 1 / sqrt(square + eps); NaN if the mean square is infinite or NaN.
HEADLANE_INLINE float reciprocal_root(float square, float eps) {
  return 1.0f / __builtin_sqrtf(square + eps) + (square - square);
}

/// A row between the passes.
struct NormRow {
  const float* x;
  const float* residual;
  float* y;
  float* keep;     ///< where x + residual is stored: sum, else y; null without residual and sum
  const float* s;  ///< x + residual
  float mean, factor, shift;
};

HEADLANE_INLINE NormRow norm_row(const NormRows& rows, Index i) {
  NormRow row{};
  row.x = row.s = rows.x + i * rows.x_step;
  row.y = rows.y + i * rows.y_step;
  if (rows.residual != nullptr) {
    row.residual = rows.residual + i * rows.residual_step;
    row.keep = row.y;
  }
  if (rows.sum != nullptr) row.keep = rows.sum + i * rows.sum_step;
  if (row.keep != nullptr) row.s = row.keep;
  return row;
}

/// The first pass: x + residual, and its mean or mean square.
template <class Arch, bool Centred>
HEADLANE_INLINE void norm_sum(const NormRows& rows, NormRow& row) {
  using V = Lanes<Arch>;
  const float *x = row.x, *residual = row.residual;
  float* keep = row.keep;
  PartialSums<Arch> sums;
  const auto add = [&](int j, Index i, Index count, const V& v) HEADLANE_INLINE_LAMBDA {
    if (keep != nullptr) store_some(keep + i, count, v);
    sums.part[j] = Centred ? sums.part[j] + v : fma(v, v, sums.part[j]);
  };
  if (residual != nullptr) {
    for_each_vector(rows.n, [&](int j, Index i, Index count) HEADLANE_INLINE_LAMBDA {
      add(j, i, count, load_some<Arch>(x + i, count) + load_some<Arch>(residual + i, count));
    });
  } else {
    for_each_vector(rows.n, [&](int j, Index i, Index count)
                                HEADLANE_INLINE_LAMBDA { add(j, i, count, load_some<Arch>(x + i, count)); });
  }
  row.mean = sums.total() / static_cast<float>(rows.n);
}

/// The second pass: factor and shift.
template <class Arch>
HEADLANE_INLINE void norm_variance(const NormRows& rows, NormRow& row) {
  using V = Lanes<Arch>;
  const float* s = row.s;
  const float mean = row.mean, length = static_cast<float>(rows.n);
  const V of_mean = V::broadcast(mean);
  PartialSums<Arch> rest, squares;
  for_each_vector(rows.n, [&](int j, Index i, Index count) HEADLANE_INLINE_LAMBDA {
    const V d = load_some<Arch>(s + i, count, mean) - of_mean;
    rest.part[j] = rest.part[j] + d;
    squares.part[j] = fma(d, d, squares.part[j]);
  });
  const float delta = rest.total() / length, variance = squares.total() / length - delta * delta;
  row.factor = reciprocal_root(variance < 0 ? 0 : variance, rows.eps);
  row.shift = -(delta * row.factor);
}

/// The last pass: y = fma(s - mean, factor, shift), or s · factor, then weight and bias.
template <class Arch, bool Centred, bool Weighted, bool Biased>
HEADLANE_INLINE void norm_result(const NormRows& rows, const NormRow& row) {
  using V = Lanes<Arch>;
  const V mean = V::broadcast(row.mean), factor = V::broadcast(row.factor), shift = V::broadcast(row.shift);
  const float *s = row.s, *weight = rows.weight, *bias = rows.bias;
  float* y = row.y;
  for_each_vector(rows.n, [&](int, Index i, Index count) HEADLANE_INLINE_LAMBDA {
    V v = load_some<Arch>(s + i, count);
    if constexpr (Centred) v = fma(v - mean, factor, shift);
    else v = v * factor;
    if constexpr (Weighted && Biased) v = fma(v, load_some<Arch>(weight + i, count), load_some<Arch>(bias + i, count));
    else if constexpr (Weighted) v = v * load_some<Arch>(weight + i, count);
    else if constexpr (Biased) v = v + load_some<Arch>(bias + i, count);
    store_some(y + i, count, v);
  });
}

/// Elements of the rows that go through the passes side by side: a third of an L1 of 48 KiB. While
/// the sums of one row fold and its root is taken, some 100 cycles, the others are read. Nothing is
/// prefetched, since rows are adjacent: with prefetches 2048 × 512 took 1.9 times a copy, without
/// 1.7 (Zen 5).
inline constexpr Index norm_side_by_side = 4096;

template <class Arch, bool Centred>
void norm_all(const NormRows& rows) {
  const Index max = norm_side_by_side / rows.n, together = max > 4 ? 4 : max < 1 ? 1 : max;
  for (Index first = 0; first < rows.rows; first += together) {
    const Index count = rows.rows - first < together ? rows.rows - first : together;
    NormRow row[4];
    for (Index i = 0; i < count; ++i) row[i] = norm_row(rows, first + i);
    for (Index i = 0; i < count; ++i) norm_sum<Arch, Centred>(rows, row[i]);
    for (Index i = 0; i < count; ++i) {
      if constexpr (Centred) norm_variance<Arch>(rows, row[i]);
      else row[i].factor = reciprocal_root(row[i].mean, rows.eps);
    }
    for (Index i = 0; i < count; ++i) {
      if (rows.weight != nullptr && rows.bias != nullptr) norm_result<Arch, Centred, true, true>(rows, row[i]);
      else if (rows.weight != nullptr) norm_result<Arch, Centred, true, false>(rows, row[i]);
      else if (rows.bias != nullptr) norm_result<Arch, Centred, false, true>(rows, row[i]);
      else norm_result<Arch, Centred, false, false>(rows, row[i]);
    }
  }
}

template <class Arch>
void norm_rows(const NormRows& rows) noexcept {
  rows.centred ? norm_all<Arch, true>(rows) : norm_all<Arch, false>(rows);
}

}  // namespace
}  // namespace headlane::internal::kernels
