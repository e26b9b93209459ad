// The operations as textbook loops over dense row-major arrays, compiled with the project's release
// flags; threads by one OpenMP pragma on the outermost loop.
#pragma once

#include <headlane/view.hpp>

namespace bench {

using headlane::Index;

/// Eight heads of 64 side by side: d_model = 512, as everywhere in the benchmark.
inline constexpr Index heads = 8;
inline constexpr Index head_dim = 64;
inline constexpr Index d_model = heads * head_dim;

struct AttentionShape {
  Index batch, q_length, kv_length;
  bool causal;
};

/// c [m, n] = a [m, k] · b [k, n].
void naive_gemm(const float* a, const float* b, float* c, Index m, Index n, Index k, int threads);

void naive_softmax(const float* x, float* y, Index rows, Index columns, int threads);

/// q and out [batch, q_length, d_model], k and v [batch, kv_length, d_model]. Stores one row of
/// scores at a time.
void naive_attention(const float* q, const float* k, const float* v, float* out, const AttentionShape& shape,
                     int threads);

struct DeltaRuleShape {
  Index batch, length, heads, dim;
};

/// The gated delta rule, token after token: q, k, v and out [batch, length, heads, dim], decay and
/// beta [batch, length, heads], state [batch, heads, dim, dim].
void naive_delta_rule(const float* q, const float* k, const float* v, const float* decay, const float* beta,
                      float* state, float* out, const DeltaRuleShape& shape, int threads);

/// Causal convolution of x [rows, channels] by weight [channels, width], and SiLU.
void naive_convolution(const float* x, const float* weight, float* y, Index rows, Index channels, Index width,
                       int threads);

/// Layer norm; RMS norm if bias is null.
void naive_norm(const float* x, const float* weight, const float* bias, float* y, Index rows, Index columns,
                int threads);

void naive_gelu(const float* x, float* y, Index size, int threads);

/// Sinusoidal position encoding, added to x unless x is null.
void naive_sinusoidal(const float* x, float* y, Index rows, Index columns, int threads);

/// x and y [count, length, head_dim].
void naive_rotary(const float* x, float* y, Index count, Index length, int threads);

}  // namespace bench
