// The distance between a float and an exact value, in units in the last place of that value.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace headlane::test {

/// |actual - exact| / (distance of floats around exact). 0 if both are the same special value,
/// infinite if only one is. Infinity counts as 2^128, where the next float would be.
inline double ulp_error(float actual, double exact) {
  constexpr double overflow = 0x1p128, wrong = std::numeric_limits<double>::infinity();
  if (std::isnan(exact) || std::isnan(actual)) return std::isnan(exact) && std::isnan(actual) ? 0 : wrong;
  if (std::isinf(exact) && double{actual} == exact) return 0;
  const double near = std::clamp(exact, -overflow, overflow);
  const double y = std::clamp(double{actual}, -overflow, overflow);
  if (y == near) return 0;
  const double magnitude = std::abs(near);
  // exact is computed in double: its own error is below 2^-28 of the result.
  const int exponent = std::clamp(magnitude == 0 ? -126 : std::ilogb(magnitude), -126, 127);
  return std::abs(y - near) / std::ldexp(1.0, exponent - 23);
}

}  // namespace headlane::test
