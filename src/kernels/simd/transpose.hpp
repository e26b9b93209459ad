// Transposes of 16 × 16 elements in registers.
#pragma once

#include "kernels/simd/lanes.hpp"

namespace headlane::internal::kernels {
namespace {

/// to[c, r] = scale · from[r, c] for r < rows, c < columns (both <= 16), both with inner stride 1.
/// The rest of the 16 × 16 of `to` is zero for r >= rows and untouched for c >= columns. Whole:
/// both are 16.
template <class Arch, bool Whole>
HEADLANE_INLINE void transpose_part(const float* from, Index from_step, Index rows, Index columns, float scale,
                                    float* to, Index to_step) {
  using R = Register<Arch>;
  using Float = typename R::Float;
  constexpr int width = R::width;
  const Float factor(scale);
  for (Index column = 0; column < (Whole ? lanes : columns); column += width) {
    for (Index row = 0; row < lanes; row += width) {
      Float square[width];
#pragma GCC unroll 16
      for (int i = 0; i < width; ++i) {
        square[i] = Float(0.0f);
        if (Whole) square[i] = R::load(from + (row + i) * from_step + column) * factor;
        else if (row + i < rows)
          square[i] = R::load_some(from + (row + i) * from_step + column, columns - column, 0.0f) * factor;
      }
      R::transpose(square);
#pragma GCC unroll 16
      for (int i = 0; i < width; ++i)
        if (Whole || column + i < columns) R::store(to + (column + i) * to_step + row, square[i]);
    }
  }
}

template <class Arch>
HEADLANE_INLINE void transpose_16(const float* from, Index from_step, Index rows, Index columns, float scale, float* to,
                                  Index to_step) {
  if (rows >= lanes && columns >= lanes) transpose_part<Arch, true>(from, from_step, rows, columns, scale, to, to_step);
  else transpose_part<Arch, false>(from, from_step, rows, columns, scale, to, to_step);
}

}  // namespace
}  // namespace headlane::internal::kernels
