// Arguments of the kernels whose state goes from token to token. Steps are strides, in elements.
#pragma once

#include "kernels/args/sizes.hpp"

namespace headlane::internal::kernels {

/// Columns of the state of linear attention that a kernel takes at a time. With 128 rows they are
/// 16 KiB, which stay in the L1.
inline constexpr Index state_columns = 2 * lanes;

/// Tokens of one head of linear attention, and up to state_columns columns of its values and its
/// state. Elements of a row have stride 1.
struct LinearAttentionTokens {
  Index tokens, key_dim, columns;
  const float *q, *k;  ///< [tokens, key_dim]
  Index q_step, k_step;
  const float* decay;  ///< [tokens + 1], or [tokens + 1, key_dim]; the last ones are 1
  Index decay_step;    ///< 0: one for all rows of the state
  const float* beta;   ///< null, or [tokens]: the delta rule
  const float* step;   ///< null, or [tokens]: u is computed from step · v
  const float* skip;   ///< null, or one number: skip · v is added to out
  float scale;
  const float* v;  ///< [tokens, columns]
  float* out;      ///< likewise
  Index v_step, out_step;
  const float* from;  ///< the state before, and after them: [key_dim, columns]; may be the same
  float* to;
  Index from_step, to_step;
  float* block;  ///< scratch [key_dim, state_columns]; not for linear_attention_step
};

/// Tokens of a causal convolution of some channels. Elements of a row have stride 1; weight and
/// bias continue to a multiple of 16 channels.
struct ConvolvedTokens {
  Index tokens, channels, width;
  const float* const* rows;  ///< [width - 1 + tokens], of x
  const float* weight;       ///< [width, weight_step]
  Index weight_step;
  const float* bias;  ///< null, or of each channel
  float* y;
  Index y_step;
};

}  // namespace headlane::internal::kernels
