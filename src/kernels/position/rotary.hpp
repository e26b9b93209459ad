// Positions applied to rows: adding a table of sines and cosines, or rotating pairs of elements by
// them.
#pragma once

#include "kernels/args/position.hpp"
#include "kernels/simd/pairs.hpp"

namespace headlane::internal::kernels {
namespace {

template <class Arch>
void scale_add_rows(const ScaleAddRows& rows) noexcept {
  const Lanes<Arch> scale = Lanes<Arch>::broadcast(rows.scale);
  for (Index r = 0; r < rows.rows; ++r) {
    const float* x = rows.x + r * rows.x_step;
    const float* addend = rows.addend + r * rows.addend_step;
    float* y = rows.y + r * rows.y_step;
    for (Index i = 0; i < rows.n; i += lanes) {
      const Index count = rows.n - i;
      store_some(y + i, count, fma(load_some<Arch>(x + i, count), scale, load_some<Arch>(addend + i, count)));
    }
  }
}

/// x1, x2 become x1·cos - x2·sin, x2·cos + x1·sin.
template <class Arch>
HEADLANE_INLINE void rotate(Lanes<Arch>& x1, Lanes<Arch>& x2, const Lanes<Arch>& sin, const Lanes<Arch>& cos) {
  const Lanes<Arch> y1 = fma(Lanes<Arch>::zero() - x2, sin, x1 * cos);
  x2 = fma(x1, sin, x2 * cos);
  x1 = y1;
}

/// Pairs j … j+count-1 of a row.
template <class Arch, bool Interleaved>
HEADLANE_INLINE void rotate_part(const RotaryRows& rows, Index row, Index j, Index count) {
  using V = Lanes<Arch>;
  const float* const x = rows.x + row * rows.x_step;
  float* const y = rows.y + row * rows.y_step;
  const V sin = load_some<Arch>(rows.sin + row * rows.table_step + j, count);
  const V cos = load_some<Arch>(rows.cos + row * rows.table_step + j, count);
  V x1, x2;
  if constexpr (Interleaved) {
    load_pairs(x + 2 * j, count, x1, x2);
    rotate(x1, x2, sin, cos);
    store_pairs(y + 2 * j, 2 * count, x1, x2);
  } else {
    x1 = load_some<Arch>(x + j, count);
    x2 = load_some<Arch>(x + rows.pairs + j, count);
    rotate(x1, x2, sin, cos);
    store_some(y + j, count, x1);
    store_some(y + rows.pairs + j, count, x2);
  }
}

template <class Arch, bool Interleaved>
HEADLANE_INLINE void rotate_rows(const RotaryRows& rows) {
  for (Index r = 0; r < rows.rows; ++r) {
    Index j = 0;
    for (; j + lanes <= rows.pairs; j += lanes) rotate_part<Arch, Interleaved>(rows, r, j, lanes);
    if (j < rows.pairs) rotate_part<Arch, Interleaved>(rows, r, j, rows.pairs - j);
    if (rows.x == rows.y) continue;
    const float* const x = rows.x + r * rows.x_step;
    float* const y = rows.y + r * rows.y_step;
    for (Index i = 2 * rows.pairs; i < rows.columns; i += lanes)
      store_some(y + i, rows.columns - i, load_some<Arch>(x + i, rows.columns - i));
  }
}

template <class Arch>
void rotary_rows(const RotaryRows& rows) noexcept {
  rows.interleaved ? rotate_rows<Arch, true>(rows) : rotate_rows<Arch, false>(rows);
}

}  // namespace
}  // namespace headlane::internal::kernels
