// The oracle of the activations, in double, and their stated errors.
#pragma once

#include "support/ulp.hpp"

#include <headlane/activation.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace headlane::test {

struct ActivationCase {
  Activation activation;
  const char* name;
  double (*exact)(double x);
  double (*limit)(double x);  ///< ULP, where the result is at least 2^-119 in magnitude
};

// The limits at -inf, where a formula says inf · 0.
inline double times(double x, double factor) { return factor == 0 ? 0 * factor : x * factor; }

inline double exact_sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double exact_gelu(double x) { return times(x, std::erfc(-x * std::numbers::sqrt2 / 2) / 2); }
// Twice the argument of tanh.
inline double gelu_tanh_exponent(double x) { return 2 * std::sqrt(2 / std::numbers::pi) * x * (1 + 0.044715 * x * x); }

inline constexpr ActivationCase activation_cases[] = {
    {Activation::relu, "relu", [](double x) { return x > 0 || std::isnan(x) ? x : 0; }, [](double) { return 0.0; }},
    {Activation::gelu, "gelu", exact_gelu, [](double x) { return x < -5.5 ? 7.0 : 1.8; }},
    {Activation::gelu_tanh, "gelu_tanh", [](double x) { return times(x, exact_sigmoid(gelu_tanh_exponent(x))); },
     [](double x) { return 5 + 3 * std::max(-gelu_tanh_exponent(x), 0.0); }},
    {Activation::silu, "silu", [](double x) { return times(x, exact_sigmoid(x)); }, [](double) { return 4.0; }},
    {Activation::sigmoid, "sigmoid", exact_sigmoid, [](double) { return 3.0; }},
    {Activation::tanh, "tanh", [](double x) { return std::tanh(x); }, [](double) { return 1.1; }},
    {Activation::erf, "erf", [](double x) { return std::erf(x); }, [](double) { return 1.1; }},
};

/// ULP; 0 where a result below 2^-119 became 0, which is allowed but for functions that are as
/// small as x near 0.
inline double activation_error(const ActivationCase& one, float x, float y) {
  const double exact = one.exact(double{x});
  if (y == 0 && std::abs(exact) < 0x1p-119 && x < -1) return 0;
  return ulp_error(y, exact);
}

}  // namespace headlane::test
