// Integers of groups times their scales, rounded to float: every product is exact.
#pragma once

#include "kernels/gemm/operands.hpp"

namespace headlane::internal::kernels {
namespace {

/// Scales of a group for the columns of a register.
template <class R, class Group>
struct GroupScale {
  typename R::Float scale;
  HEADLANE_INLINE void load(const float16* scales) { scale = R::load(scales); }
  /// A row of words times the scales.
  template <class Word, class Row>
  [[nodiscard]] HEADLANE_INLINE typename R::Float times(const Word* words, Row row) const {
    return R::load(words, number_of(row)) * scale;
  }
};

/// q · scale as fma(q + z, scale, -z · scale). q + z is a float whose mantissa has q from bit `at`
/// on: z is 2^(23 - at) + 2^(bits - 1), and its product with a scale, which has 11 bits, is exact
/// if `at` is at least 8 for 4 bits, 4 for 8 bits. That is two or three instructions and a shift
/// for some rows, instead of two shifts, a conversion and a product. One row by 512 × 32768 in
/// groups of 4 and 8 bits takes 0.79 and 0.88 of the time, 2 rows 0.73 and 0.77, with AVX2 one row
/// 0.69 and 0.73 (Emerald Rapids). Where q · scale is -0, this is +0: see has_tiny().
template <class R, class Group>
struct GroupScale<R, ByFma<Group>> {
  static constexpr int bits = 32 / Group::rows_of_word;
  static constexpr int least = bits == 4 ? 8 : 4, fields = bits == 4 ? 3 : 2;  // at = least + bits · i, i < fields
  typename R::Float scale, start[fields];

  HEADLANE_INLINE void load(const float16* scales) {
    scale = R::load(scales);
    const auto negative = typename R::Float(0.0f) - scale;
    start[0] = zero<least>() * negative;
    start[1] = zero<least + bits>() * negative;
    if constexpr (fields > 2) start[2] = zero<least + 2 * bits>() * negative;
  }
  template <class Word>
  [[nodiscard]] HEADLANE_INLINE typename R::Float times(const Word* words, int row) const {
    return R::load(words, row) * scale;
  }
  template <class Word, int row>
  [[nodiscard]] HEADLANE_INLINE typename R::Float times(const Word* words, Constant<row>) const {
    // 8 bits: shift rows 0 and 1 left by 4, rows 2 and 3 right by 12. 4 bits: shift rows 0 and 1
    // left by 8, leave rows 2 to 4 in place, shift rows 5 to 7 right by 12.
    constexpr int left = bits == 8 ? (row < 2 ? 4 : -12) : row < 2 ? 8 : row < 5 ? 0 : -12;
    constexpr int at = bits * row + left;
    return R::fma(R::template in_mantissa<bits, left, at>(words), scale, start[(at - least) / bits]);
  }

 private:
  template <int at>
  static HEADLANE_INLINE typename R::Float zero() {
    return R::as_float(typename R::Int(R::template zero_in_mantissa<bits, at>));
  }
};

/// q · scale as (q + z - z) · scale, an instruction more. On CPUs with adders beside their FMA
/// units, those of AMD, 1 to 4 rows in groups of 4 bits take 0.84 to 0.91 of the time, of 8 bits
/// 0.84 to 0.89 (Zen 4, AVX-512).
template <class R, class Group>
struct GroupScale<R, BySubtraction<Group>> : GroupScale<R, Group> {
  using GroupScale<R, Group>::times;
  template <class Word, int row>
  [[nodiscard]] HEADLANE_INLINE typename R::Float times(const Word* words, Constant<row>) const {
    constexpr int bits = 32 / Group::rows_of_word, at = row % 2 * bits;
    const auto zero = R::as_float(typename R::Int(R::template zero_in_mantissa<bits, at>));
    return (R::template in_mantissa<bits, row / 2 * -2 * bits, at>(words) - zero) * this->scale;
  }
};

/// Whether a row has an element x with 0 < |x| < 2^-102. Without one, all products with weights of
/// groups, which are multiples of 2^-24, are multiples of 2^-149: no sum of them is rounded to -0,
/// and to a sum that is not -0 it makes no difference whether a weight is +0 or -0.
template <class Arch>
__attribute__((noinline)) bool has_tiny(const GemmBlock& block) {
  using R = Register<Arch>;
  constexpr std::int32_t least = (127 - 102) << 23;  // 2^-102
  bool tiny = false;
  for (Index row = 0; row < block.m; ++row)
    for (Index p = 0; p < block.k; p += R::width) {
      const auto x = R::magnitude(R::load_some(block.a + row * block.a_row_step + p, block.k - p, 0.0f));
      const auto beyond_zero = R::as_int(x) - 1;  // negative for 0
      tiny |= R::any_negative((beyond_zero - (least - 1)) & ~beyond_zero);
    }
  return tiny;
}

}  // namespace
}  // namespace headlane::internal::kernels
