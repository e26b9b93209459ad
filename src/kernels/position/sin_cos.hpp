// Rows of sines and cosines of equidistant angles.
#pragma once

#include "kernels/args/position.hpp"
#include "kernels/simd/pairs.hpp"
#include "kernels/simd/sin_cos.hpp"

namespace headlane::internal::kernels {
namespace {

/// Angles j … j+15 of `Rows` rows, side by side: the phases stay in registers.
template <class Arch, int Rows>
HEADLANE_INLINE void sin_cos_part(const Phases& phases, Index j, Lanes<Arch> (&sine)[Rows],
                                  Lanes<Arch> (&cosine)[Rows]) {
  using V = Lanes<Arch>;
  using R = typename V::R;
#pragma GCC unroll 16
  for (int i = 0; i < V::parts; ++i) {
    const Index first = j + i * V::width;
    auto high = R::load_int(phases.high + first), low = R::load_int(phases.low + first);
    const auto high_step = R::load_int(phases.high_step + first), low_step = R::load_int(phases.low_step + first);
#pragma GCC unroll 4
    for (int row = 0; row < Rows; ++row) {
      sin_cos<R>(high, low, sine[row].part[i], cosine[row].part[i]);
      const auto sum = low + low_step;  // 32 bits, of which the highest is carried
      low = sum & typename R::Int(0x7fffffff);
      high = high + high_step - R::shift_right(sum, 31);
    }
    R::store_int(phases.high + first, high);
    R::store_int(phases.low + first, low);
  }
}

/// Rows row … row + Rows - 1.
template <class Arch, int Rows>
HEADLANE_INLINE void sin_cos_some(const SinCosRows& rows, Index row) {
  float* const sin = rows.sin + row * rows.row_step;
  for (Index j = 0; j < rows.phases.count; j += lanes) {
    Lanes<Arch> s[Rows], c[Rows];
    sin_cos_part<Arch, Rows>(rows.phases, j, s, c);
    const Index sines = rows.phases.count - j, cosines = rows.columns - rows.phases.count - j;
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      float* const to = sin + r * rows.row_step;
      if (rows.cos == nullptr) {
        store_pairs(to + 2 * j, rows.columns - 2 * j, s[r], c[r]);
      } else {
        store_some(to + j, sines, s[r]);
        store_some(to + (rows.cos - rows.sin) + j, cosines, c[r]);
      }
    }
  }
}

template <class Arch>
void sin_cos_rows(const SinCosRows& rows) noexcept {
  constexpr int at_once = Lanes<Arch>::parts == 1 ? 4 : 2;  // as many as fit in registers
  Index row = 0;
  for (; row + at_once <= rows.rows; row += at_once) sin_cos_some<Arch, at_once>(rows, row);
  for (; row < rows.rows; ++row) sin_cos_some<Arch, 1>(rows, row);
}

}  // namespace
}  // namespace headlane::internal::kernels
