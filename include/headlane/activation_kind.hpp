// The activation functions and their error bounds.
#pragma once

namespace headlane {

/// Activation functions of activate() and of the epilogue of a matrix product.
///
/// Error: bounds over all 2^32 floats, in units in the last place. A result below 2^-119 in
///   magnitude, far from x = 0, may be 0.
///     relu       max(x, 0)                                              exact
///     gelu       x · Phi(x), Phi the normal distribution function       1.8; 7 for x < -5.5
///     gelu_tanh  x · sigmoid(z) = x/2 · (1 + tanh(z/2)),
///                z = 2·sqrt(2/pi) · (x + 0.044715·x³)                   5 + 3·max(-z, 0)
///     silu       x · sigmoid(x), also called swish                      4
///     sigmoid    1 / (1 + exp(-x))                                      3
///     tanh       tanh(x)                                                1.1
///     erf        erf(x)                                                 1.1
/// Special values: NaN returns NaN. Infinities return the limits: +inf and 0 for relu, gelu,
///   gelu_tanh and silu; 1 and 0 for sigmoid; 1 and -1 for tanh and erf.
/// Source: gelu and gelu_tanh, Hendrycks and Gimpel 2016; silu, Elfwing, Uchibe and Doya 2018.
enum class Activation : unsigned char { none, relu, gelu, gelu_tanh, silu, sigmoid, tanh, erf };

}  // namespace headlane
