// merge() combines split-KV partial results: shared prefixes, keys distributed over machines.
#pragma once

#include <headlane/dtype.hpp>
#include <headlane/export.h>
#include <headlane/view.hpp>

#include <span>

namespace headlane {

/// The result of attention() for some queries over some of their keys, in float, bfloat16 or
/// float16.
template <class T>
struct AttentionPartOf {
  /// [batch, q_heads, q_length, value_dim], any strides.
  View<const T, 4> out;
  /// [batch, q_heads, q_length], any strides.
  View<const float, 3> lse;
  /// Shape as for lse. Given if attention() was called with `sum`: out is then not divided, and lse
  /// is the maximum score of the row.
  View<const float, 3> sum = {};
};
/// A part in float32.
using AttentionPart = AttentionPartOf<float>;

struct MergeOptions {
  /// [batch, q_heads, q_length]; receives the log-sum-exp over all keys.
  View<float, 3> lse = {};
  /// Shape as for lse, which it requires: the result is a partial result again, as with the option
  /// of attention().
  View<float, 3> sum = {};
  /// [q_heads], as the option of attention(). Not together with sum.
  View<const float, 1> sinks = {};
  /// Maximum number of threads of this call; 0: num_threads() (runtime.hpp).
  int num_threads = 0;
};

/// Combines the results over disjoint sets of keys into the result over all of these keys:
///   out = Σ_i exp(lse_i - lse) · out_i
///   lse = log Σ_i exp(lse_i)
/// A part in which a row has no visible key (lse -inf and out 0, as attention() returns them) does
/// not contribute to it; a row without visible keys in any part returns 0, and -inf as its
/// log-sum-exp.
///
/// Shapes: out and each parts[i].out have the same shape, any strides. At least one part.
/// Aliasing: parts may overlap each other; outputs must overlap nothing.
/// Arithmetic: parts merge in order, as the blocks of 512 keys of attention() do. The bits are
///   those of attention() over all keys if the parts have `sum`, begin on that grid, and each part
///   but the first is one block. (Sums of rounded numbers depend on their order: two parts of
///   several blocks each agree with the whole within the error bound, not in the last bit.)
/// Error: with u = 2^-24, P parts, and w_i the share of part i, in addition to that of the parts:
///     2·(max |lse_i| + 4·P) · u · Σ_i w_i |out_i|    in out
///     (max |lse_i| + 4·P + 8) · u                    in lse
///   max |lse_i| only where a part has no `sum`. Unless something overflows:
///   Σ_i exp(lse_i - max lse) · |out_i| is divided last.
/// Memory: a call allocates nothing once warm.
/// Errors: std::invalid_argument, before anything is written; std::bad_alloc.
/// Source: Milakov and Gimelshein 2018; Dao et al. 2023 (Flash-Decoding).
HEADLANE_API void merge(std::span<const AttentionPart> parts, View<float, 4> out,
                        const MergeOptions& options = {});
/// In bfloat16 and float16: the out of each part is widened exactly, out is the result for float32
/// rounded once, to nearest, ties to even.
HEADLANE_API void merge(std::span<const AttentionPartOf<bfloat16>> parts, View<bfloat16, 4> out,
                        const MergeOptions& options = {});
HEADLANE_API void merge(std::span<const AttentionPartOf<float16>> parts, View<float16, 4> out,
                        const MergeOptions& options = {});

}  // namespace headlane
