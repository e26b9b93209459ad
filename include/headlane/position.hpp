// Positional encodings: sinusoidal and rotary embeddings, ALiBi's slopes, T5's buckets.
//
// Arithmetic of angles: the angle of a position is position · frequency, of which only the fraction
//   of a turn matters. A frequency is rounded to an integer multiple of 2^-63 turns, computed in
//   pairs of doubles with +, ·, / and fma alone; positions multiply it modulo 2^63, exactly. The
//   remainder, within an eighth of a turn, is rounded to a float, and two polynomials are its sin
//   and cos. No function of libm takes part. A row has the same bits alone, at its offset, and in a
//   table, on every instruction set, for any number of threads and any strides.
// Error of sin and cos: at most 1.4 ULP + 2^-48 + |position| · 2^-61; position 0 returns 0 and 1
//   exactly.
// Frequencies are base^(-2j/d), not rounded to float. PyTorch models round them, and the angle: at
//   position 10,000 that moves angles by up to 0.001.
// Positions are -2^36 … 2^36.
#pragma once

#include <headlane/dtype.hpp>
#include <headlane/export.h>
#include <headlane/view.hpp>

namespace headlane {

/// Frequency j of a sinusoidal encoding:
///   paper      base^(-2j / d_model)   (Vaswani et al. 2017)
///   doubled    base^(-4j / d_model)   (some tutorials)
enum class SinusoidalExponent { paper, doubled };

struct SinusoidalOptions {
  Index offset = 0;       ///< position of row 0
  double base = 10000.0;  ///< at least 1
  SinusoidalExponent exponent = SinusoidalExponent::paper;
  bool interleaved = true;  ///< sin, cos, sin, cos …; otherwise all sines, then all cosines
  /// Multiplies x in add_sinusoidal_encoding; 0: sqrt(d_model), correctly rounded. In
  /// sinusoidal_encoding it must be 1.
  float scale = 1.0f;
  int num_threads = 0;  ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

/// Writes the sinusoidal encoding of positions offset … offset + length - 1:
///   y[i, 2j]     = sin((offset + i) · frequency j)
///   y[i, 2j + 1] = cos((offset + i) · frequency j)
/// if interleaved; otherwise all sines, then all cosines. An odd d_model has one sine more.
///
/// Shapes: y [length, d_model], any strides.
/// Memory: a call allocates nothing once warm.
/// Errors: std::invalid_argument before anything is written; std::bad_alloc.
HEADLANE_API void sinusoidal_encoding(View<float, 2> y, const SinusoidalOptions& options = {});

/// The same in bfloat16 and float16: the encoding in float32, rounded once, to nearest, ties to
/// even.
/// Memory: scratch of 32 KiB or one row a thread, if that is more, kept.
HEADLANE_API void sinusoidal_encoding(View<bfloat16, 2> y, const SinusoidalOptions& options = {});
HEADLANE_API void sinusoidal_encoding(View<float16, 2> y, const SinusoidalOptions& options = {});
/// y = fma(x, scale, encoding), with the same encoding for all leading positions.
///
/// Shapes: x and y [..., length, d_model], of rank 2 to 8 and any strides.
/// Aliasing: y may be x itself (the same data and strides); any other overlap is an error.
/// Memory: a call allocates nothing once warm; scratch of some rows a thread.
/// Errors: std::invalid_argument before anything is written; std::bad_alloc.
HEADLANE_API void add_sinusoidal_encoding(AnyView<const float> x, AnyView<float> y,
                                          const SinusoidalOptions& options = {});

/// The same in bfloat16 and float16: x is widened exactly, y is the result for float32 rounded
/// once, to nearest, ties to even.
/// Memory: scratch of 32 KiB or one row a thread, if that is more; with rows that are not
///   contiguous 32 of them. Each thread keeps it, so that a warm call allocates nothing.
HEADLANE_API void add_sinusoidal_encoding(AnyView<const bfloat16> x, AnyView<bfloat16> y,
                                          const SinusoidalOptions& options = {});
HEADLANE_API void add_sinusoidal_encoding(AnyView<const float16> x, AnyView<float16> y,
                                          const SinusoidalOptions& options = {});
struct RotaryOptions {
  double base = 10000.0;  ///< at least 1; frequency j is base^(-2j / rotary_dim)
  /// Number of elements of head_dim that are rotated, the first ones; the others are copied. Even,
  /// at most head_dim; 0: all.
  Index rotary_dim = 0;
  /// Pairs are 2j, 2j+1 (RoFormer, GPT-J); otherwise j, j + rotary_dim/2 (GPT-NeoX, Llama).
  bool interleaved = false;
  Index offset = 0;  ///< position of the first row
  /// If data is not null: [batch], added to the positions of a batch element's rows; or
  /// [batch, length], where row i of element b is at position offset + positions[b, i].
  AnyView<const Index> positions = {};
  /// If data is not null: [rotary_dim / 2], replaces base (scaled as for Llama 3, say); each
  /// -65536 … 65536.
  View<const float, 1> frequencies = {};
  int num_threads = 0;  ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

/// Rotates pairs (x1, x2) of each row by the angle a of the row and the pair:
///   y1 = x1·cos a - x2·sin a
///   y2 = x2·cos a + x1·sin a
///
/// Shapes: x and y [batch, heads, length, head_dim], any strides.
/// Aliasing: y may be x itself (the same data and strides); any other overlap is an error,
///   including positions and frequencies.
/// Arithmetic: sin and cos as above, shared by heads, and by batch elements unless positions are
///   given. Elements that are not rotated keep their bits.
///     y1 = fma(0 - x2, sin a, x1·cos a)
///     y2 = fma(x1, sin a, x2·cos a)
/// Error: far from underflow, and likewise for y2,
///     |y1 - exact| <= (3.8 · |x1·cos a| + 2.8 · |x2·sin a| + |y1|) · 2^-24
///                     + (|x1| + |x2|) · (2^-48 + |position| · 2^-61)
/// Memory: a call allocates nothing once warm; scratch of some rows a thread.
/// Errors: std::invalid_argument before anything is written; std::bad_alloc.
/// Source: RoFormer, Su et al. 2021.
HEADLANE_API void rotary_embedding(View<const float, 4> x, View<float, 4> y,
                                   const RotaryOptions& options = {});

/// The same in bfloat16 and float16, as add_sinusoidal_encoding. The sines and cosines and the
/// frequencies are of float32.
HEADLANE_API void rotary_embedding(View<const bfloat16, 4> x, View<bfloat16, 4> y,
                                   const RotaryOptions& options = {});
HEADLANE_API void rotary_embedding(View<const float16, 4> x, View<float16, 4> y,
                                   const RotaryOptions& options = {});
/// The slopes of ALiBi for as many heads as `slopes` has elements.
///
/// For n heads, a power of two, head h (from 1) has the slope 2^(-8h/n). For other n, with m the
/// power of two below n, the first m heads have the slopes of m heads, and the others the 1st, 3rd,
/// 5th … slope of 2m heads.
///
/// Error: correctly rounded, except within 2^-60 of the middle between two floats; powers of two
///   are exact.
/// Errors: std::invalid_argument.
/// Source: Press et al. 2022.
HEADLANE_API void alibi_slopes(View<float, 1> slopes);

/// The bucket of T5's relative position bias for the distance between a key and a query:
///   distance = position of the key - position of the query
///
/// Half of the buckets of a direction are single distances. The other half grows logarithmically up
/// to max_distance, beyond which all distances share the last bucket. If bidirectional, the upper
/// half of all buckets is for keys after the query; otherwise those are in bucket 0.
///
/// Arithmetic: a bucket begins at the exact root of the formula, rounded up to an integer, computed
///   without libm. For the sizes of T5, and others in use, that is where the formula of
///   transformers in single precision begins it, for every distance (tests).
/// Errors: std::invalid_argument unless buckets is 2 … max_t5_buckets (limits.hpp; bidirectional:
///   4 … max_t5_buckets and even), and max_distance is more than the number of single distances.
/// Source: Raffel et al. 2020.
HEADLANE_API Index t5_bucket(Index distance, Index buckets = 32, Index max_distance = 128,
                             bool bidirectional = true);

}  // namespace headlane
