// The operations as a C++ programmer writes them first: plain loops over dense row-major arrays, compiled with the
// project's ordinary release flags. More threads: one OpenMP line on the outermost loop.
#pragma once

#include <headlane/view.hpp>

namespace bench {

using headlane::Index;

/// Eight heads of 64 side by side, as everywhere in the benchmark: d_model = 512.
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

/// q and out [batch, q_length, d_model], k and v [batch, kv_length, d_model]; one row of scores at a time is stored.
void naive_attention(const float* q, const float* k, const float* v, float* out, const AttentionShape& shape,
                     int threads);

/// Layer norm, and without a bias RMS norm.
void naive_norm(const float* x, const float* weight, const float* bias, float* y, Index rows, Index columns,
                int threads);

void naive_gelu(const float* x, float* y, Index size, int threads);

/// The encoding of positions, added to x unless that is null.
void naive_sinusoidal(const float* x, float* y, Index rows, Index columns, int threads);

/// x and y [count, length, head_dim].
void naive_rotary(const float* x, float* y, Index count, Index length, int threads);

}  // namespace bench
