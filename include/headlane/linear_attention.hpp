// Linear attention: a state for each head instead of keys and values, updated token by token.
#pragma once

#include <headlane/dtype.hpp>
#include <headlane/export.h>
#include <headlane/view.hpp>

#include <limits>
#include <optional>

namespace headlane {

/// Options of linear_attention(). All are optional, and all combine; a view without data is an
/// option that is not given.
struct LinearAttentionOptions {
  /// Multiplies out; 1 / sqrt(key_dim) if absent.
  std::optional<float> scale = std::nullopt;
  /// Queries and keys are divided by their length: x / sqrt(Σ x² + eps).
  bool normalize = false;
  float eps = 1e-6f;  ///< for normalize, >= 0
  /// The state is multiplied by exp(log_decay) before a token: [batch, heads, length], or
  /// [batch, heads, length, key_dim] with a decay for each row of the state. Any strides, 0 to
  /// broadcast.
  AnyView<const float> log_decay = {};
  /// [batch, heads, length], any strides, 0 to broadcast: the delta rule. Of a value, beta times
  /// what differs from the value that the state has for the key is added.
  View<const float, 3> beta = {};
  /// [heads]: log_decay is what a gate is computed from, as in Mamba-2 and Gated DeltaNet: the
  /// state is multiplied by exp(-exp(a_log) · softplus(log_decay + dt_bias)).
  View<const float, 1> a_log = {};
  /// With a_log: [heads], or [heads, key_dim] beside a log_decay of rows; 0 if absent.
  AnyView<const float> dt_bias = {};
  /// With a_log, and one decay for each token: values are first multiplied by the step
  /// softplus(log_decay + dt_bias), as in Mamba-2.
  bool discretize = false;
  float min_step = 0.0f;  ///< a step below it is min_step, for the decay, too; >= 0
  float max_step = std::numeric_limits<float>::infinity();  ///< likewise above it; >= min_step
  bool sigmoid_beta = false;  ///< sigmoid(beta) takes the place of beta
  float beta_scale = 1.0f;    ///< multiplies beta; 2 where eigenvalues of the state may be negative
  /// [heads]: skip · v is added to out; D of Mamba-2.
  View<const float, 1> skip = {};
  /// [batch, heads, key_dim, value_dim], any strides: read before the first token, written after
  /// the last one. Without it the state is 0 before the first token.
  View<float, 4> state = {};
  int num_threads = 0;  ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

/// Computes, for each batch element and head, token after token, with a state S
/// [key_dim, value_dim]:
///   S = diag(exp(log_decay)) · S
///   u = beta · (v - Sᵀ · k)           without beta: u = v
///   S = S + k · uᵀ
///   out = scale · Sᵀ · q              with skip: + skip · v
/// With beta it is the gated delta rule (Gated DeltaNet, Qwen3-Next), with a decay for each row
/// Kimi Delta Attention; without beta gated linear attention, RetNet, and Mamba-2 (q = C, k = B,
/// v = x, log_decay = dt, with discretize, skip = D and scale = 1).
///
/// Shapes: any strides.
///     q, k    [batch, key_heads, length, key_dim]
///     v, out  [batch, heads, length, value_dim]
///   key_dim and value_dim are 1 … max_head_dim (limits.hpp). key_heads divides heads: head h uses
///   key head h / (heads / key_heads).
/// Aliasing: inputs may overlap each other; out and state must overlap nothing.
/// Special values: a NaN or an infinity stays in its head: in the columns of the state that it
///   reaches, and in what is read from them. With a length of 0 nothing is written.
/// Arithmetic: for each token t, row i of the state and column j:
///     d_i = exp(log_decay)                          1 if it is not given
///     S_ij = S_ij · d_i
///     p_j = Σ_i S_ij · k_i                          a chain of fma, from 0
///     u_j = (v_j - p_j) · beta                      v_j without beta
///     S_ij = fma(k_i, u_j, S_ij)
///     out_j = (Σ_i S_ij · q_i) · scale              a chain of fma, from 0
///     out_j = fma(skip, v_j, out_j)                 if skip is given
///   With a_log, log_decay is first -(exp(a_log) · softplus(s)), s = log_decay + dt_bias, and
///     softplus(s) = max(s, 0) + l                   t = exp(-|s|), w = 1 + t
///     l = log(w) · (t / (w - 1))                    t where w is 1
///   with discretize at least min_step, at most max_step; v_j is then v_j · softplus(s) in u_j.
///   beta is first beta_scale · beta, with sigmoid_beta that of activation.hpp.
///   With normalize, q and k are first x · r · (1 / sqrt(key_dim)), r that of rms_norm() for an eps
///   of eps / key_dim. Tokens follow one another: the bits are the same for every instruction set,
///   number of threads, stride and batch, and for every cut of a sequence into calls that pass the
///   state on, so that a prompt has those of one token at a time.
/// Error: with u = 2^-24, D = key_dim, for one token, which finds the state S and leaves S':
///     |p_j - exact| <= (D + 4) · u · Σ_i |S_ij · d_i · k_i|
///     |S'_ij - exact| <= 3 · u · |S_ij · d_i| + u · |S'_ij| + |k_i| · (error of u_j)
///     |out_j - exact| <= (D + 2) · u · |scale| · Σ_i |S'_ij · q_i|, without scale D + 3
///   plus underflow; normalize adds (D / 64 + 11) · u to each product with q or k. With a_log, by
///   which the decay is exp(L), the factors D + 4 and 3 grow by
///   11 · |L| + exp(a_log) · sigmoid(s) · |s|, and exp(a_log) multiplies underflow. With discretize
///   the product v_j · softplus(s) is off by (9 · softplus(s) + sigmoid(s) · |s|) · u · |v_j|; skip
///   adds u · |out_j|.
/// Memory: scratch for 64 tokens of q and k a thread, 64 columns of the state, and the state of a
///   head if none is given; a call allocates nothing once warm.
/// Threads: heads, and blocks of 32 columns of the values, are divided among the threads.
/// Errors: std::invalid_argument before anything is written, for shapes that do not match, heads
///   that do not divide, dims out of range, null data, an overlapping output, sizes that overflow,
///   a_log without log_decay, dt_bias or discretize without a_log, discretize with decays of rows,
///   sigmoid_beta without beta, min_step or max_step without discretize or out of order;
///   std::bad_alloc, after which some heads of out and state may have been written.
/// Source: Katharopoulos et al. 2020; Yang, Kautz and Hatamizadeh 2024 (Gated Delta Networks); Dao
///   and Gu 2024 (Mamba-2); Kimi Team 2025 (Kimi Linear).
HEADLANE_API void linear_attention(View<const float, 4> q, View<const float, 4> k,
                                   View<const float, 4> v, View<float, 4> out,
                                   const LinearAttentionOptions& options = {});

/// The same in bfloat16 and float16: q, k and v are widened exactly, out is the result for float32
/// rounded once, to nearest, ties to even. Options are of float32, the state too.
/// Memory: besides that of float32, scratch for float32 copies of q, k, v and out, of which the
///   calling thread keeps up to 64 MiB.
HEADLANE_API void linear_attention(View<const bfloat16, 4> q, View<const bfloat16, 4> k,
                                   View<const bfloat16, 4> v, View<bfloat16, 4> out,
                                   const LinearAttentionOptions& options = {});
HEADLANE_API void linear_attention(View<const float16, 4> q, View<const float16, 4> k,
                                   View<const float16, 4> v, View<float16, 4> out,
                                   const LinearAttentionOptions& options = {});

}  // namespace headlane
