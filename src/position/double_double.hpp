// Numbers of about 106 bits as pairs of doubles, |low| <= ulp(high) / 2 (Dekker 1971, Knuth). They
// use correctly rounded operations only, so the bits are the same everywhere. No infinities and no
// NaN. Meant for few numbers: fma may be a call.
#pragma once

#include <cmath>

namespace headlane::internal {

struct DoubleDouble {
  double high = 0, low = 0;

  /// high + low, |high| >= |low| or high is 0.
  static DoubleDouble of(double high, double low) {
    const double sum = high + low;
    return {sum, low - (sum - high)};
  }
};

inline DoubleDouble operator+(DoubleDouble a, DoubleDouble b) {
  const double sum = a.high + b.high, part = sum - a.high;
  const double error = (a.high - (sum - part)) + (b.high - part);
  return DoubleDouble::of(sum, error + (a.low + b.low));
}

inline DoubleDouble operator*(DoubleDouble a, DoubleDouble b) {
  const double product = a.high * b.high;
  return DoubleDouble::of(product, std::fma(a.high, b.high, -product) + (a.high * b.low + a.low * b.high));
}

inline DoubleDouble operator/(DoubleDouble a, DoubleDouble b) {
  const double quotient = a.high / b.high;
  const DoubleDouble rest = a + DoubleDouble{-quotient} * b;
  return DoubleDouble::of(quotient, rest.high / b.high);
}

inline constexpr DoubleDouble ln2{0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};

/// x > 0, normal: x = 2^n · m, sqrt(1/2) <= m < sqrt(2); log m = 2·atanh((m - 1) / (m + 1)), whose
/// series is truncated at 2^-110.
inline DoubleDouble log(double x) {
  int n = 0;
  double m = std::frexp(x, &n);
  if (m < 0x1.6a09e667f3bcdp-1) m *= 2, --n;
  const DoubleDouble s = DoubleDouble{m - 1} / (DoubleDouble{m} + DoubleDouble{1}), square = s * s;
  DoubleDouble sum;
  for (int k = 43; k >= 1; k -= 2) sum = sum * square + DoubleDouble{1} / DoubleDouble{static_cast<double>(k)};
  return ln2 * DoubleDouble{static_cast<double>(n)} + DoubleDouble{2} * s * sum;
}

/// -700 <= x <= 0: x = n·ln2 + r, |r| <= ln2/2; Taylor series, truncated at 2^-112.
inline DoubleDouble exp(DoubleDouble x) {
  const double n = std::floor(x.high / ln2.high + 0.5);
  const DoubleDouble r = x + ln2 * DoubleDouble{-n};
  DoubleDouble sum{1};
  for (int k = 22; k >= 1; --k) sum = sum * r / DoubleDouble{static_cast<double>(k)} + DoubleDouble{1};
  return {std::ldexp(sum.high, static_cast<int>(n)), std::ldexp(sum.low, static_cast<int>(n))};
}

}  // namespace headlane::internal
