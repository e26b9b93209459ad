// Rows as 8-bit integers: centre, scale and outlier of each, and its bytes as a unit reads them.
#pragma once

#include "kernels/args/gemm.hpp"
#include "kernels/simd/exp.hpp"
#include "kernels/simd/integer_unit.hpp"

namespace headlane::internal::kernels {
namespace {

/// A float near it has units of 1 in the last place: x + rounding has rint(x) in its lowest bits,
/// or rint(x) + 128 if the unit's rows are unsigned.
template <class Unit>
inline constexpr float rounding = 0x1.8p23f + (Unit::unsigned_rows ? 128.0f : 0.0f);

/// Stores q = rint(x · inverse) of 16 elements as the unit reads them.
template <class Arch, class Unit>
HEADLANE_INLINE void quantise_16(const Lanes<Arch>& x, const Lanes<Arch>& inverse, std::int8_t* to) {
  using R = Register<Arch>;
  const Lanes<Arch> t = x * inverse + Lanes<Arch>::broadcast(rounding<Unit>);
#pragma GCC unroll 16
  for (int i = 0; i < Lanes<Arch>::parts; ++i) R::store_bytes(to + i * R::width, R::as_int(t.part[i]));
}

/// How the elements of a row are quantised, q = rint((x - centre) · inverse), but for the outlier,
/// the first element that is as far from 0 as any, the positive one of two. All q are 0 if inverse
/// is; the scale is NaN if an element of the row is not finite.
struct RowScale {
  float inverse, scale, centre;
  Index outlier;
};

/// The largest and the smallest element in each lane, and a sum that is 0 if all are finite.
template <class Arch>
struct Extremes {
  using V = Lanes<Arch>;
  V high = V::broadcast(-__builtin_inff()), low = V::broadcast(__builtin_inff()), not_finite = V::zero();

  HEADLANE_INLINE void add(const V& to_high, const V& to_low, const V& x) {
    high = max(to_high, high);
    low = V::map([](auto a, auto b) HEADLANE_INLINE_LAMBDA { return Register<Arch>::min(a, b); }, to_low, low);
    not_finite = not_finite + (x - x);
  }
};

/// The extremes of a row in several groups of lanes, since each step waits for the one before:
/// element i counts in group i / lanes % groups.
template <class Arch>
struct RowExtremes {
  static constexpr int groups = Register<Arch>::width == 8 ? 2 : group_size<Arch>;
  Extremes<Arch> of[groups];

  HEADLANE_INLINE RowExtremes(const float* x, Index n) {
    constexpr Index at_once = groups * lanes;
    Index i = 0;
    for (; i + at_once <= n; i += at_once) {
#pragma GCC unroll 4
      for (int g = 0; g < groups; ++g) {
        const auto v = Lanes<Arch>::load(x + i + g * lanes);
        of[g].add(v, v, v);
      }
    }
#pragma GCC unroll 4
    for (int g = 0; g < groups; ++g, i += lanes) {
      if (i >= n) break;
      const auto load = [&](float fill) HEADLANE_INLINE_LAMBDA { return load_some<Arch>(x + i, n - i, fill); };
      of[g].add(load(-__builtin_inff()), load(__builtin_inff()), load(0.0f));
    }
  }
  [[nodiscard]] HEADLANE_INLINE Extremes<Arch> all() const {
    Extremes<Arch> result = of[0];
    for (int g = 1; g < groups; ++g) result.add(of[g].high, of[g].low, of[g].not_finite);
    return result;
  }
};

/// The first element that is `apart`, the largest times `sign`, and the largest of the others.
struct Outlier {
  Index at;
  float next;
};

/// Goes through the lane of the outlier once more. Branches that depend on the elements took twice
/// the time (Emerald Rapids).
template <class Arch>
HEADLANE_INLINE Outlier outlier_of(const float* x, Index n, const RowExtremes<Arch>& extremes, float sign,
                                   float apart) {
  using V = Lanes<Arch>;
  constexpr Index step = RowExtremes<Arch>::groups * lanes;
  const V signs = V::broadcast(sign), none = V::broadcast(-__builtin_inff());
  V others = none;
  std::uint64_t has = 0;
#pragma GCC unroll 4
  for (int g = 0; g * lanes < step; ++g) {
    const Extremes<Arch>& of = extremes.of[g];
    const V side = select_equal(signs, V::broadcast(1.0f), of.high, V::zero() - of.low);
    const unsigned bits = equal_bits(side, V::broadcast(apart));
    has |= std::uint64_t{bits} << (g * lanes);
    others = max(none.where(bits, side), others);
  }
  Outlier result{0, apart};
  if ((has & (has - 1)) != 0) {  // several lanes have such an element
    while (sign * x[result.at] != apart) ++result.at;
    return result;
  }
  result.at = __builtin_ctzll(has);
  float next = others.reduce_max();
  int found = 0;
  for (Index i = result.at; i < n; i += step) {
    const float element = sign * x[i];
    found += element == apart ? 1 : 0;
    result.at += found == 0 ? step : 0;
    const float other = element == apart ? -__builtin_inff() : element;
    next = other > next ? other : next;
  }
  if (found == 1) result.next = next;
  return result;
}

template <class Arch>
HEADLANE_INLINE RowScale scale_of(const float* x, Index n) {
  using V = Lanes<Arch>;
  const RowExtremes<Arch> extremes(x, n);
  const Extremes<Arch> all = extremes.all();
  constexpr unsigned every_lane = (1u << lanes) - 1;
  if (equal_bits(all.not_finite, V::zero()) != every_lane) return {0.0f, __builtin_nanf(""), 0.0f, 0};
  const float highest = all.high.reduce_max(), minus_lowest = (V::zero() - all.low).reduce_max();
  const bool is_high = highest >= minus_lowest;
  const float sign = is_high ? 1.0f : -1.0f, apart = is_high ? highest : minus_lowest;
  const float other_side = is_high ? minus_lowest : highest;
  if (n == 1 || apart == 0.0f) return {0.0f, 0.0f, 0.0f, 0};

  const Outlier outlier = outlier_of(x, n, extremes, sign, apart);
  const float centre = 0.5f * (sign * outlier.next) - 0.5f * (sign * other_side);
  const float above = outlier.next - sign * centre, below = sign * centre + other_side;
  const float distance = above > below ? above : below;
  if (distance < least_distance) return {0.0f, 0.0f, centre, outlier.at};
  return {127.0f / distance, distance / 127.0f, centre, outlier.at};
}

/// The outlier is quantised as the others are, and set to 0 then.
template <class Arch, bool Extended>
void quantise_rows(const Source& source, const QuantisedRows& to) noexcept {
  using Unit = IntegerUnit<Arch, Extended>;
  using V = Lanes<Arch>;
  constexpr Index chunk = quantised_columns;
  const Index columns = source.columns;
  for (Index r = 0; r < source.rows; ++r) {
    const float* x = source.data + r * source.row_step;
    std::int8_t* row = to.numbers + r * to.row_step;
    const RowScale scale = scale_of<Arch>(x, columns);
    const Index used = scale.inverse == 0.0f ? 0 : columns;  // not multiplied by 0, for 0 · inf is NaN
    const V centre = V::broadcast(scale.centre);
    const float* ahead = r + 4 < source.rows ? x + 4 * source.row_step : x;
    for (Index first = 0; first < columns; first += chunk) {
      alignas(64) std::int8_t bytes[chunk];
      std::int8_t* q = Unit::in_pairs ? bytes : row + first;
      const auto quantise = [&](Index i, const V& v) HEADLANE_INLINE_LAMBDA {
        quantise_16<Arch, Unit>(v, V::broadcast(scale.inverse), q + i);
      };
      for (Index i = 0; i < chunk; i += lanes) __builtin_prefetch(ahead + first + i);
      const Index rest = used - first;
      if (rest >= chunk)
        for (Index i = 0; i < chunk; i += lanes) quantise(i, V::load(x + first + i) - centre);
      else
        for (Index i = 0; i < chunk; i += lanes)
          quantise(i, rest <= i ? V::zero() : load_some<Arch>(x + first + i, rest - i, scale.centre) - centre);
      if constexpr (Unit::in_pairs) Unit::store_pairs(bytes, row + first, to.odd);
    }
    set_zero<Unit>(row, scale.outlier, to.odd);
    to.scales[r] = scale.scale;
    to.centres[r] = scale.centre;
    to.outliers[r] = scale.scale == scale.scale ? x[scale.outlier] - scale.centre : 0.0f;
    to.outlier_columns[r] = scale.outlier;
  }
}

}  // namespace
}  // namespace headlane::internal::kernels
