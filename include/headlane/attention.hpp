// Scaled dot-product attention, tiled over keys: nothing of size q_length × kv_length is stored.
#pragma once

#include <headlane/attention_options.hpp>
#include <headlane/dtype.hpp>
#include <headlane/export.h>
#include <headlane/kv_cache.hpp>
#include <headlane/view.hpp>

#include <cstddef>
#include <span>

namespace headlane {

/// Computes, for each batch element and head:
///   out = softmax(softcapped scale · q · kᵀ + ALiBi + relative bias + bias) · v
/// All options combine (attention_options.hpp).
///
/// Shapes: any strides, so that [batch, sequence, head, dim] or one packed QKV buffer are views.
///     q    [batch, q_heads, q_length, head_dim]
///     k    [batch, kv_heads, kv_length, head_dim]
///     v    [batch, kv_heads, kv_length, value_dim]
///     out  [batch, q_heads, q_length, value_dim]
///   head_dim and value_dim are 1 … max_head_dim (limits.hpp; 64 is fastest); lengths may be 0.
///   kv_heads divides q_heads: query head h uses kv head h / (q_heads / kv_heads).
/// Visible keys: a key is visible to a query if causal, window, lengths, mask and bias allow it.
///   With q_length = 3 and kv_length = 5 (x: visible, .: masked):
///     causal                causal                causal
///     causal_offset = 0     causal_offset = 2     causal_offset = 2, window_left = 1
///       x . . . .             x x x . .             . x x . .
///       x x . . .             x x x x .             . . x x .
///       x x x . .             x x x x x             . . . x x
///   A row without visible keys returns 0, and as its log-sum-exp -inf, or its sink if it has one.
///   A masked key has no influence, NaN or not. Anything visible propagates: a NaN in a query or a
///   bias makes its row NaN, a NaN in a key or a value the rows that it is visible to. A score of
///   +inf results in NaN, a score of -inf in a probability of 0.
/// Aliasing: inputs, including those that options point to, may overlap each other; out, lse and
///   sum must overlap nothing.
/// Arithmetic: q · scale is rounded first. Each score s is an fma chain over head_dim from 0,
///   followed by those of these steps whose options are given:
///     s = tanh(s · (1 / softcap)) · softcap      (1 / softcap at most the largest float)
///     s = fma(slope, j - i - causal_offset, s)
///     s = s + relative bias
///     s = s + bias
///   Keys lie on a grid of 512. Each block has its own maximum, exponentials and sum (as in
///   softmax) and its own P·V (an fma chain over keys); blocks merge in order. The bits are the
///   same for every instruction set, number of threads, stride, batch, and split of the queries.
/// Error: with u = 2^-24, D = head_dim, N = min(kv_length, 512), B = ceil(kv_length / 512),
///   probabilities p_j, and over the visible keys of the row S = max Σ|q||k| · |scale| and
///   M = max |score|:
///     |out - exact| <= (2·(D + 3)·S + 4·M + N + ceil(N / 16) + 8·B + 12) · u · Σ_j p_j |v_j|
///     |lse - exact| <= ((D + 3)·S + 2·M + |lse| + ceil(N / 16) + 4·B
///                       + 2·ln(kv_length + 1) + 8) · u
///   plus underflow, and unless something overflows: Σ_j exp(s_j - max s) · |v_j|, which is summed
///   before it is divided by Σ_j exp(s_j - max s), has to be finite. Options add to the sums in
///   parentheses for out and lse:
///     bias or relative bias    2·M and 1·M; with both, twice that. M includes them.
///     softcap or ALiBi         12·X and 6·X, X = the largest magnitude of a score before the
///                              softcap and before the biases
///     sinks                    2·(8 + |lse|) and 8 + |lse|
/// Memory: scratch is kept per thread: tiles, and packed keys and values of one kv head; or packed
///   keys and values that all threads share, at most max(32 MiB, one kv head). Decoding in which
///   threads share the keys keeps a result for each block of keys. plan_attention() returns the
///   size. A call allocates nothing once warm.
/// Errors: std::invalid_argument, before anything is written, for shapes that do not match, heads
///   that do not divide, dims out of range, null data, an overlapping output or workspace, sizes
///   that overflow; std::bad_alloc.
/// Source: the block recurrence of Milakov and Gimelshein 2018; Rabe and Staats 2021; Dao et al.
///   2022.
HEADLANE_API void attention(View<const float, 4> q, View<const float, 4> k, View<const float, 4> v,
                            View<float, 4> out, const AttentionOptions& options = {});

/// The same in bfloat16 and float16: q, k and v are widened exactly, out is the result for float32
/// rounded once, to nearest, ties to even. Options are of float32 but for the bias, lse too; sum
/// and workspace are errors.
/// Memory: besides that of float32, scratch for float32 copies of q and out, and of k and v (where
///   few rows read them, of 512 keys in each thread); the calling thread keeps up to 64 MiB of it.
HEADLANE_API void attention(View<const bfloat16, 4> q, View<const bfloat16, 4> k,
                            View<const bfloat16, 4> v, View<bfloat16, 4> out,
                            const AttentionOptions& options = {});
HEADLANE_API void attention(View<const float16, 4> q, View<const float16, 4> k,
                            View<const float16, 4> v, View<float16, 4> out,
                            const AttentionOptions& options = {});

/// attention() over the keys and values of sequences in a cache: batch element b of q and out
/// belongs to sequence sequences[b].
///
/// Positions: the queries are the last ones of their sequence, so that appending tokens and then
///   attending is causal decoding or chunked prefill. The position of the first query is
///     number of keys - number of queries + causal_offset (or causal_offsets[b], if given),
///   with the numbers of that sequence, key_lengths and query_lengths included.
/// Shapes: kv_length, as in the shape of masks, is the length of the longest of the sequences.
///   query_starts and key_starts are an error: every sequence is its own batch element.
/// Arithmetic: as in attention() of tensors, with the same bits. All other options as there.
/// Threads: decoding divides keys as well as heads among the threads, so that a single sequence
///   uses all of them.
HEADLANE_API void attention(View<const float, 4> q, const KvCache& cache,
                            std::span<const Index> sequences, View<float, 4> out,
                            const AttentionOptions& options = {});

/// The same in bfloat16 and float16, with a cache of any type: as attention() of such tensors, with
/// copies of q and out alone.
HEADLANE_API void attention(View<const bfloat16, 4> q, const KvCache& cache,
                            std::span<const Index> sequences, View<bfloat16, 4> out,
                            const AttentionOptions& options = {});
HEADLANE_API void attention(View<const float16, 4> q, const KvCache& cache,
                            std::span<const Index> sequences, View<float16, 4> out,
                            const AttentionOptions& options = {});

/// How attention() divides a call into tasks, and the memory that it needs.
struct AttentionPlan {
  const char* isa = "";    ///< the instruction set
  Index tile_rows = 0;     ///< query rows in registers at a time
  Index key_block = 0;     ///< the grid of keys, 512
  Index rows_of_task = 0;  ///< query rows that a task computes at a time
  Index key_parts = 1;     ///< tasks that share the keys of a row; more than 1 only in decoding
  Index tasks = 0;         ///< tasks that may run in parallel
  int threads = 1;         ///< threads that share the tasks
  bool packs_keys =
      false;  ///< keys are packed first, but for few of them; otherwise they are read in place
  bool packs_values = false;        ///< values likewise
  std::size_t workspace_bytes = 0;  ///< memory besides inputs and outputs
};

/// Returns the plan of the attention() call with the same arguments. Depends only on shapes,
/// strides, options, the elements of query_starts and key_starts, and num_threads(): data may be
/// null.
///
/// Errors: as attention(), for what it depends on.
HEADLANE_API AttentionPlan plan_attention(View<const float, 4> q, View<const float, 4> k,
                                          View<const float, 4> v, View<float, 4> out,
                                          const AttentionOptions& options = {});
HEADLANE_API AttentionPlan plan_attention(View<const float, 4> q, const KvCache& cache,
                                          std::span<const Index> sequences, View<float, 4> out,
                                          const AttentionOptions& options = {});

/// attention() on heads that are adjacent columns: head h has the columns dim·h … dim·h + dim-1, so
/// that eight heads of 64 fill one [sequence, 512] buffer, and their outputs are concatenated.
/// Nothing is copied: attention() gets views.
///
/// Shapes: head_dim is q's width / heads, kv_heads is k's width / head_dim.
///     q    [batch, q_length, heads · head_dim]
///     k    [batch, kv_length, kv_heads · head_dim]
///     v    [batch, kv_length, kv_heads · value_dim]
///     out  [batch, q_length, heads · value_dim]
///   Everything else as in attention().
HEADLANE_API void multi_head_attention(View<const float, 3> q, View<const float, 3> k,
                                       View<const float, 3> v, View<float, 3> out, Index heads,
                                       const AttentionOptions& options = {});

/// The same for one sequence: q, k, v and out are [length, heads · dim], lse is
/// [1, heads, q_length].
HEADLANE_API void multi_head_attention(View<const float, 2> q, View<const float, 2> k,
                                       View<const float, 2> v, View<float, 2> out, Index heads,
                                       const AttentionOptions& options = {});

/// Both in bfloat16 and float16, as attention().
HEADLANE_API void multi_head_attention(View<const bfloat16, 3> q, View<const bfloat16, 3> k,
                                       View<const bfloat16, 3> v, View<bfloat16, 3> out,
                                       Index heads, const AttentionOptions& options = {});
HEADLANE_API void multi_head_attention(View<const float16, 3> q, View<const float16, 3> k,
                                       View<const float16, 3> v, View<float16, 3> out, Index heads,
                                       const AttentionOptions& options = {});
HEADLANE_API void multi_head_attention(View<const bfloat16, 2> q, View<const bfloat16, 2> k,
                                       View<const bfloat16, 2> v, View<bfloat16, 2> out,
                                       Index heads, const AttentionOptions& options = {});
HEADLANE_API void multi_head_attention(View<const float16, 2> q, View<const float16, 2> k,
                                       View<const float16, 2> v, View<float16, 2> out, Index heads,
                                       const AttentionOptions& options = {});

}  // namespace headlane
