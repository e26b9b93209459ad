// Positions: what attention and embeddings know of them. Sinusoidal and rotary embeddings, ALiBi's slopes, T5's buckets.
//
// Angles. The angle of a position and a frequency is position · frequency, of which only the fraction of a turn matters. A frequency
// becomes a whole number of 2^-63 turns, worked out in pairs of doubles with +, ·, / and fma alone; positions multiply it modulo 2^63, exactly.
// What is left, within an eighth of a turn, is rounded to a float, and two polynomials are sin and cos. No function of libm takes part.
// Error of sin and cos: at most 1.4 ULP + 2^-48 + |position| · 2^-61; position 0 gives 0 and 1 exactly.
// Frequencies are base^(-2j/d), not rounded to float. PyTorch models round them, and the angle: at position 10,000 that moves angles by up to 0.001.
// Positions are -2^36 … 2^36. A row has the same bits alone, at its offset, and in a table, on every instruction set, for any threads and strides.
#pragma once

#include <headlane/export.h>
#include <headlane/view.hpp>

namespace headlane {

/// How fast the angles of a sinusoidal encoding grow: frequency j is base^(-2j / d_model) in the paper (Vaswani et al. 2017), and
/// base^(-4j / d_model) where the exponent is doubled, as some tutorials have it.
enum class SinusoidalExponent { paper, doubled };

struct SinusoidalOptions {
  Index offset = 0;       ///< position of row 0
  double base = 10000.0;  ///< at least 1
  SinusoidalExponent exponent = SinusoidalExponent::paper;
  bool interleaved = true;  ///< sin, cos, sin, cos …; otherwise all sines, then all cosines
  float scale =
      1.0f;  ///< of add_sinusoidal_encoding: multiplies x; 0: sqrt(d_model), correctly rounded. Otherwise it must be 1
  int num_threads = 0;  ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

/// y [length, d_model], any strides: y[i, 2j] = sin((offset + i) · frequency j), y[i, 2j+1] = cos of the same. An odd d_model ends with a sine.
///
/// Memory: allocates nothing once warm. Errors: std::invalid_argument before anything is written; std::bad_alloc.
HEADLANE_API void sinusoidal_encoding(View<float, 2> y, const SinusoidalOptions& options = {});

/// y = fma(x, scale, encoding), x and y [..., length, d_model] of rank 2 to 8 and any strides, the encoding the same for all leading positions.
///
/// Aliasing: y may be x itself (the same data and strides); any other overlap is an error. Memory and errors as above; scratch of some rows a thread.
HEADLANE_API void add_sinusoidal_encoding(AnyView<const float> x, AnyView<float> y,
                                          const SinusoidalOptions& options = {});

struct RotaryOptions {
  double base = 10000.0;  ///< at least 1; frequency j is base^(-2j / rotary_dim)
  Index rotary_dim =
      0;  ///< the first so many of head_dim are rotated, the others copied: even, at most head_dim; 0: all
  bool interleaved = false;  ///< pairs are 2j, 2j+1 (RoFormer, GPT-J); otherwise j, j + rotary_dim/2 (GPT-NeoX, Llama)
  Index offset = 0;          ///< position of the first row
  /// If data is not null: [batch], added to the positions of a batch element's rows; or [batch, length], row i of b is at offset + positions[b, i].
  AnyView<const Index> positions = {};
  /// If data is not null: [rotary_dim / 2] in place of the base (scaled as for Llama 3, say), -65536 … 65536 each.
  View<const float, 1> frequencies = {};
  int num_threads = 0;  ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

/// Rotates pairs (x1, x2) of x [batch, heads, length, head_dim] by the angle a of row and pair (RoFormer, Su et al. 2021):
/// y1 = x1·cos a - x2·sin a, y2 = x2·cos a + x1·sin a.
///
/// Any strides. Aliasing: y may be x itself (the same data and strides); any other overlap is an error, with positions and frequencies too.
/// Arithmetic: y1 = fma(0 - x2, sin a, x1·cos a), y2 = fma(x1, sin a, x2·cos a); sin and cos as above, shared by heads, and by batch elements
///   unless positions are given. What is not rotated keeps its bits.
/// Error: (3.8 · |x1·cos a| + 2.8 · |x2·sin a| + |y1|) · 2^-24 + (|x1| + |x2|) · (2^-48 + |position| · 2^-61), y2 likewise; far from underflow.
/// Memory: allocates nothing once warm; scratch of some rows a thread. Errors: std::invalid_argument before anything is written; std::bad_alloc.
HEADLANE_API void rotary_embedding(View<const float, 4> x, View<float, 4> y, const RotaryOptions& options = {});

/// The slopes of ALiBi (Press et al. 2022) for as many heads as `slopes` has: of n heads, a power of two, head h (from 1) has 2^(-8h/n). Of others
/// the first m, the power of two below, have those of m heads, and the rest the 1st, 3rd, 5th … of 2m heads.
///
/// Correctly rounded, but for what lies within 2^-60 of the middle between two floats; powers of two are exact. Errors: std::invalid_argument.
HEADLANE_API void alibi_slopes(View<float, 1> slopes);

/// The bucket of T5's relative position bias (Raffel et al. 2020) for distance = position of the key - position of the query.
///
/// Half of the buckets of a direction are single distances, the other half grows logarithmically up to max_distance, beyond which all share
/// the last one. bidirectional: the upper half of all buckets is for keys behind the query; otherwise those are in bucket 0.
/// A bucket begins at the exact root of the formula, rounded up to a whole number, worked out without libm; for T5's sizes, and others that are
/// in use, that is where transformers' formula in binary32 begins it, for every distance (tests).
/// Throws std::invalid_argument unless buckets is 2 … 1024 (bidirectional: 4 … 1024 and even), and max_distance is more than the single distances.
HEADLANE_API Index t5_bucket(Index distance, Index buckets = 32, Index max_distance = 128, bool bidirectional = true);

}  // namespace headlane
