#include "core/call_scope.hpp"
#include "core/check.hpp"
#include "position/double_double.hpp"

#include <headlane/position.hpp>

namespace headlane {

using namespace internal;

void alibi_slopes(View<float, 1> slopes) {
  const CallScope scope;
  check_output(Caller("alibi_slopes").operand("slopes", slopes));
  const Index heads = slopes.size(0);
  if (heads < 1) return;
  Index below = 1;  // the power of two
  while (below <= heads / 2) below *= 2;
  for (Index h = 0; h < heads; ++h) {
    // 2^(-4·k / below), the exponent as a whole number and a fraction, which is exact.
    const Index k = h < below ? 2 * (h + 1) : 2 * (h - below) + 1;
    const double fraction = static_cast<double>(4 * k % below) / static_cast<double>(below);
    const DoubleDouble root = exp(ln2 * DoubleDouble{-fraction});
    // high is the nearest double: rounding it again to a float errs only next to the middle of two
    // floats, where low would decide.
    slopes(h) = static_cast<float>(std::ldexp(root.high, -static_cast<int>(4 * k / below)));
  }
}

}  // namespace headlane
