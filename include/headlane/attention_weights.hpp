// Attention probabilities, for a selection of rows: explanations, alignment, eviction of keys.
#pragma once

#include <headlane/attention.hpp>
#include <headlane/export.h>

namespace headlane {

/// The probability of key j in row i, 0 for a key that is masked:
///   weights[b, h, i, j] = exp(score_j - lse_i)
/// so that a row of attention()'s out is Σ_j weights_j · v_j.
///
/// Shapes: q and k as in attention(); weights [batch, q_heads, q_length, kv_length], last stride 1.
///   Select rows and heads by slices of q, and add the first row to causal_offset: attention()
///   itself never stores the probabilities.
/// Options: as in attention(), without query_starts, key_starts, sum and workspace. lse, if given,
///   is written too.
/// Arithmetic: the scores and the largest score m of attention(), then exp(score - m) times the
///   factor that attention() ends with (1 / sum, with a sink less its share): the bits depend on
///   the row alone.
/// Error: in the terms of attention(), and unless something overflows,
///     |weight - exact| <= (2·(D + 3)·S + 4·M + N + ceil(N / 16) + 8·B + 12) · u · weight + 2^-126
/// Aliasing: as in attention().
/// Memory: scratch is kept per thread.
/// Errors: as in attention().
HEADLANE_API void attention_weights(View<const float, 4> q, View<const float, 4> k,
                                    View<float, 4> weights, const AttentionOptions& options = {});
/// In bfloat16 and float16: q and k are widened exactly, weights is the result for float32 rounded
/// once, to nearest, ties to even. The tensors of the options are of float32, but for the bias.
/// Memory: scratch for float32 copies of q, k and weights, of which the calling thread keeps up to
///   64 MiB.
HEADLANE_API void attention_weights(View<const bfloat16, 4> q, View<const bfloat16, 4> k,
                                    View<bfloat16, 4> weights,
                                    const AttentionOptions& options = {});
HEADLANE_API void attention_weights(View<const float16, 4> q, View<const float16, 4> k,
                                    View<float16, 4> weights, const AttentionOptions& options = {});

/// How much all rows together attend to each key (heavy hitters; Zhang et al. 2023):
///   sums[b, h, j] = Σ_i weights[b, h, i, j]
/// added in the order of the rows. Nothing of size q_length × kv_length is stored.
///
/// Shapes: sums [batch, q_heads, kv_length], last stride 1. Everything else as in
///   attention_weights().
HEADLANE_API void attention_key_sums(View<const float, 4> q, View<const float, 4> k,
                                     View<float, 3> sums, const AttentionOptions& options = {});
HEADLANE_API void attention_key_sums(View<const bfloat16, 4> q, View<const bfloat16, 4> k,
                                     View<bfloat16, 3> sums, const AttentionOptions& options = {});
HEADLANE_API void attention_key_sums(View<const float16, 4> q, View<const float16, 4> k,
                                     View<float16, 3> sums, const AttentionOptions& options = {});

}  // namespace headlane
