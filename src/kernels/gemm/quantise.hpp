// Rows as 8-bit integers: centre, scale and outlier of each, and its bytes as a unit reads them.
#pragma once

#include "kernels/args/gemm.hpp"
#include "kernels/simd/exp.hpp"
#include "kernels/simd/integer_unit.hpp"

namespace headlane::internal::kernels {
namespace {

/// A float near it has units of 1 in the last place: x + rounding has rint(x) in its lowest bits.
inline constexpr float rounding = 0x1.8p23f;

/// q = rint(x · inverse) of 16 elements, as bytes; adds all their bits to the sum of each lane.
template <class Arch>
HEADLANE_INLINE void quantise_16(const Lanes<Arch>& x, const Lanes<Arch>& inverse, std::int8_t* to,
                                 typename Register<Arch>::Int (&sum)[Lanes<Arch>::parts]) {
  using R = Register<Arch>;
  const Lanes<Arch> t = x * inverse + Lanes<Arch>::broadcast(rounding);
#pragma GCC unroll 16
  for (int i = 0; i < Lanes<Arch>::parts; ++i) {
    const auto q = R::as_int(t.part[i]);
    sum[i] = sum[i] + q;
    R::store_bytes(to + i * R::width, q);
  }
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

  static HEADLANE_INLINE V min(const V& a, const V& b) {
    return V::map([](auto x, auto y) HEADLANE_INLINE_LAMBDA { return Register<Arch>::min(x, y); }, a, b);
  }
  HEADLANE_INLINE void add(const V& to_high, const V& to_low, const V& x) {
    high = max(to_high, high);
    low = min(to_low, low);
    not_finite = not_finite + (x - x);
  }
};
template <class Arch>
HEADLANE_INLINE Extremes<Arch> extremes_of(const float* x, Index n) {
  constexpr int chains = group_size<Arch>;  // since each step waits for the one before
  Extremes<Arch> of[chains];
  for_each_group<Arch>(n, [&](Index i, auto vectors, Index count) HEADLANE_INLINE_LAMBDA {
#pragma GCC unroll 4
    for (int j = 0; j < vectors.value; ++j) {
      const auto load = [&](float fill) HEADLANE_INLINE_LAMBDA {
        return load_some<Arch>(x + i + j * lanes, count - j * lanes, fill);
      };
      of[j].add(load(-__builtin_inff()), load(__builtin_inff()), load(0.0f));
    }
  });
  for (int j = 1; j < chains; ++j) of[0].add(of[j].high, of[j].low, of[j].not_finite);
  return of[0];
}

template <class Arch>
HEADLANE_INLINE RowScale scale_of(const float* x, Index n) {
  using V = Lanes<Arch>;
  const Extremes<Arch> of = extremes_of<Arch>(x, n);
  if (!(of.not_finite.reduce_add() == 0.0f)) return {0.0f, __builtin_nanf(""), 0.0f, 0};
  const V minus_low = V::zero() - of.low;
  const float highest = of.high.reduce_max(), minus_lowest = minus_low.reduce_max();
  const bool is_high = highest >= minus_lowest;
  const float apart = is_high ? highest : minus_lowest, sign = is_high ? 1.0f : -1.0f;
  if (n == 1 || apart == 0.0f) return {0.0f, 0.0f, 0.0f, 0};

  // The largest of the others, next: of the other lanes, and of the elements of the lane of the
  // outlier, unless several lanes have the same.
  const V& side = is_high ? of.high : minus_low;
  const unsigned has = equal_bits(side, V::broadcast(apart));
  const bool is_alone = (has & (has - 1)) == 0;
  const Index step = is_alone ? lanes : 1;
  Index outlier = is_alone ? __builtin_ctz(has) : 0;
  float next = is_alone ? V::broadcast(-__builtin_inff()).where(has, side).reduce_max() : apart;
  for (float element; (element = sign * x[outlier]) != apart; outlier += step) next = element > next ? element : next;
  for (Index i = outlier + step; is_alone && i < n; i += step) next = sign * x[i] > next ? sign * x[i] : next;
  const float top = is_high ? next : highest, bottom = is_high ? -minus_lowest : -next;
  const float centre = 0.5f * top + 0.5f * bottom, above = top - centre, below = centre - bottom;
  const float distance = above > below ? above : below;
  if (distance < least_distance) return {0.0f, 0.0f, centre, outlier};
  return {127.0f / distance, distance / 127.0f, centre, outlier};
}

/// Where the sums of a row begin: -128 · Σ q. Of each q there are the bits of q + rounding.
template <class Arch>
HEADLANE_INLINE std::int32_t start_of(const typename Register<Arch>::Int (&sum)[Lanes<Arch>::parts], Index columns) {
  using R = Register<Arch>;
  std::uint32_t each[lanes], all = 0;
  for (int i = 0; i < Lanes<Arch>::parts; ++i) R::store_int(each + i * R::width, sum[i]);
  for (const std::uint32_t s : each) all += s;
  const auto stored =
      static_cast<std::uint32_t>((columns + quantised_columns - 1) / quantised_columns * quantised_columns);
  return static_cast<std::int32_t>((stored * __builtin_bit_cast(std::uint32_t, rounding) - all) * 128);
}

template <class Arch, bool Extended>
void quantise_rows(const Source& source, const QuantisedRows& to) noexcept {
  using Unit = IntegerUnit<Arch, Extended>;
  using V = Lanes<Arch>;
  using Int = typename Register<Arch>::Int;
  constexpr Index chunk = quantised_columns;
  const Index columns = source.columns;
  for (Index r = 0; r < source.rows; ++r) {
    const float* x = source.data + r * source.row_step;
    std::int8_t* row = to.numbers + r * to.row_step;
    const RowScale scale = scale_of<Arch>(x, columns);
    const Index used = scale.inverse == 0.0f ? 0 : columns;  // not multiplied by 0, for 0 · inf is NaN
    const V centre = V::broadcast(scale.centre);
    Int sum[V::parts];
    for (Int& s : sum) s = Int(0);
    for (Index first = 0; first < columns; first += chunk) {
      alignas(64) std::int8_t bytes[chunk];
      std::int8_t* q = Unit::in_pairs ? bytes : row + first;
      const Index rest = used - first, outlier = scale.outlier - first;
      const auto quantise = [&](Index i, const V& v) HEADLANE_INLINE_LAMBDA {
        quantise_16<Arch>(v, V::broadcast(scale.inverse), q + i, sum);
      };
      if (rest >= chunk && (outlier < 0 || outlier >= chunk)) {
        for (Index i = 0; i < chunk; i += lanes) quantise(i, V::load(x + first + i) - centre);
      } else {
        for (Index i = 0; i < chunk; i += lanes) {
          V v = rest <= i ? V::zero() : load_some<Arch>(x + first + i, rest - i, scale.centre) - centre;
          if (outlier >= i && outlier < i + lanes) v = V::zero().where(1u << (outlier - i), v);
          quantise(i, v);
        }
      }
      if constexpr (Unit::in_pairs) Unit::store_pairs(bytes, row + first, to.odd);
    }
    to.scales[r] = scale.scale;
    to.centres[r] = scale.centre;
    to.outliers[r] = scale.scale == scale.scale ? x[scale.outlier] - scale.centre : 0.0f;
    to.outlier_columns[r] = scale.outlier;
    if constexpr (!Unit::from_zero) to.starts[r] = start_of<Arch>(sum, columns);
  }
}

}  // namespace
}  // namespace headlane::internal::kernels
