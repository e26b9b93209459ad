// Softmax of a row with masked elements: softmax with scores of -inf there, except that a row
// without any score above -inf does not become NaN, and that a NaN stays confined to the elements
// that are not masked.
#pragma once

#include "kernels/args/rowwise.hpp"
#include "kernels/rowwise/softmax_row.hpp"

namespace headlane::internal::kernels {
namespace {

/// The bias of elements i … i+15, -0 if there is none.
template <class Arch>
HEADLANE_INLINE Lanes<Arch> bias_of(const MaskedRow& row, Index i, Index count) {
  if (row.bias == nullptr) return Lanes<Arch>::broadcast(-0.0f);
  return Lanes<Arch>::gather(row.bias + i * row.bias_step, row.bias_step, count);
}

/// `value` for those of elements i … i+15 that mask and bias leave visible, `masked` elsewhere.
template <class Arch>
HEADLANE_INLINE Lanes<Arch> where_visible(const MaskedRow& row, Index i, Index count, Lanes<Arch> value,
                                          const Lanes<Arch>& bias, const Lanes<Arch>& masked) {
  if (row.bias != nullptr) value = select_equal(bias, Lanes<Arch>::broadcast(-__builtin_inff()), masked, value);
  if (row.mask != nullptr) value = value.where(row.mask + i * row.mask_step, row.mask_step, count, masked);
  return value;
}

/// The first pass: writes scores, or x, to y, and finds the maximum.
template <class Arch>
struct MaskedScores {
  using V = Lanes<Arch>;
  // y keeps x itself where its product with the scale may be rounded, so that it is rounded once,
  // after the maximum is subtracted. A product with 0 is exact, and 0 times the -inf of masked
  // elements would be NaN.
  bool kept;
  float factor;        // the scores are factor · y
  V largest, invalid;  // invalid: NaN if a score is NaN, otherwise 0

  HEADLANE_INLINE explicit MaskedScores(const MaskedRow& row)
      : kept(row.bias == nullptr && row.scale != 0.0f),
        factor(kept ? row.scale : 1.0f),
        largest(V::broadcast(-__builtin_inff())),
        invalid(V::zero()) {}

  HEADLANE_INLINE void add(const MaskedRow& row, Index i, Index count) {
    const V minus_inf = V::broadcast(-__builtin_inff()), bias = bias_of<Arch>(row, i, count);
    V value = load_some<Arch>(row.x + i, count);
    if (!kept) value = fma(value, V::broadcast(row.scale), bias);
    value = where_visible<Arch>(row, i, count, value, bias,
                                V::broadcast(factor < 0.0f ? __builtin_inff() : -__builtin_inff()));
    store_some(row.y + i, count, value);
    V score = fma(value, V::broadcast(factor), V::zero());
    if (count < lanes) score = score.first(count, minus_inf);
    invalid = select_equal(score, score, invalid, score);
    largest = max(score, largest);
  }
};

/// Fills a row with NaN, except where elements are masked.
template <class Arch>
HEADLANE_INLINE void nan_row(const MaskedRow& row, const Lanes<Arch>& nothing) {
  for (Index i = 0; i < row.end; i += lanes) {
    const Index count = row.end - i;
    where_visible<Arch>(row, i, count, Lanes<Arch>::broadcast(__builtin_nanf("")), bias_of<Arch>(row, i, count),
                        nothing)
        .store(row.y + i, count);
  }
}

template <class Arch>
void softmax_masked(const MaskedRow& row) noexcept {
  MaskedScores<Arch> scores(row);
  Index i = 0;
  for (; i + lanes <= row.end; i += lanes) scores.add(row, i, lanes);
  if (i < row.end) scores.add(row, i, row.end - i);

  const float inf = __builtin_inff(), largest = scores.largest.reduce_max();
  const bool is_nan = scores.invalid.reduce_add() != 0.0f || largest == inf, is_empty = !is_nan && largest == -inf;
  const auto nothing = Lanes<Arch>::broadcast(row.log ? -inf : 0.0f);
  if (is_nan) nan_row<Arch>(row, nothing);
  else if (!is_empty && row.log)
    softmax_below<Arch, true, true>(largest, scores.factor, row.end, row.y, row.y, 0, 0, [] {});
  else if (!is_empty) softmax_below<Arch, false, true>(largest, scores.factor, row.end, row.y, row.y, 0, 0, [] {});
  for (i = is_empty ? 0 : row.end; i < row.n; i += lanes) nothing.store(row.y + i, row.n - i);
}

}  // namespace
}  // namespace headlane::internal::kernels
