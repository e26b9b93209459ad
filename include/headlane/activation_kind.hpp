// Names of the activations and what each computes.
#pragma once

namespace headlane {

/// What activate() computes, and what a product of matrices may end with.
///
/// Errors over all 2^32 floats, in units in the last place; a result below 2^-119 in magnitude far from 0 may be 0:
///   relu       max(x, 0)                                                                            exact
///   gelu       x · Phi(x), Phi the normal distribution (Hendrycks and Gimpel 2016)                  at most 10
///   gelu_tanh  its approximation x · sigmoid(z), z = 2·sqrt(2/pi) · (x + 0.044715·x³), which is
///              x/2 · (1 + tanh(z/2))                                                                at most 5 + 4·max(-z, 0)
///   silu       x · sigmoid(x), also called swish (Elfwing, Uchibe and Doya 2018)                    at most 4
///   sigmoid    1 / (1 + exp(-x))                                                                    at most 3
///   tanh                                                                                            at most 2
///   erf                                                                                             at most 2
/// NaN gives NaN. Infinities give the limits: relu, gelu, gelu_tanh and silu +inf and 0, sigmoid 1 and 0, tanh and erf 1 and -1.
enum class Activation : unsigned char { none, relu, gelu, gelu_tanh, silu, sigmoid, tanh, erf };

}  // namespace headlane
