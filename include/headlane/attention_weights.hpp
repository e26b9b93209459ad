// The weights of attention themselves, for those who want to look at some of them: explanations, alignment, eviction of keys.
#pragma once

#include <headlane/attention.hpp>
#include <headlane/export.h>

namespace headlane {

/// weights[b, h, i, j] = the share of key j in row i: exp(score_j - lse_i), 0 for a key that the row does not see, so that a row of
/// attention()'s out is Σ_j weights_j · v_j.
///
/// Shapes: q and k as in attention(), weights [batch, q_heads, q_length, kv_length], last stride 1. Take the rows and heads that are wanted
///   by slices of q, with causal_offset + the first row: attention itself never stores them.
/// Options: as in attention(); lse, if given, is written too. No ragged batches, `sum` or workspace.
/// Arithmetic: the scores and the largest score m of attention(), then exp(score - m) times the factor that attention() ends with (1 / sum; with
///   a sink its share taken off): the bits depend on the row alone.
/// Error: (2·(D + 3)·S + 4·M + N + ceil(N / 16) + 8·B + 12) · u · weight + 2^-126, in the terms of attention().
/// Aliasing, errors: as in attention(). Memory: keeps scratch per thread.
HEADLANE_API void attention_weights(View<const float, 4> q, View<const float, 4> k, View<float, 4> weights,
                                    const AttentionOptions& options = {});

/// sums[b, h, j] = Σ_i weights[b, h, i, j]: how much all rows together look at a key (heavy hitters; Zhang et al. 2023), added in the
/// order of the rows. Nothing of size q_length × kv_length is stored.
///
/// Shapes: sums [batch, q_heads, kv_length], last stride 1. Everything else as in attention_weights().
HEADLANE_API void attention_key_sums(View<const float, 4> q, View<const float, 4> k, View<float, 3> sums,
                                     const AttentionOptions& options = {});

}  // namespace headlane
