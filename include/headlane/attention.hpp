// Scaled dot-product attention, tiled over keys: nothing of size q_length × kv_length is ever stored.
#pragma once

#include <headlane/attention_options.hpp>
#include <headlane/export.h>
#include <headlane/kv_cache.hpp>
#include <headlane/view.hpp>

#include <cstddef>
#include <span>

namespace headlane {

/// out = softmax(softcapped scale · q · kᵀ + ALiBi + bias) · v, for each batch and head. All options combine.
///
/// Shapes: q [batch, q_heads, q_length, head_dim], k [batch, kv_heads, kv_length, head_dim],
///   v [batch, kv_heads, kv_length, value_dim], out [batch, q_heads, q_length, value_dim]; any strides, so that
///   [batch, sequence, head, dim] or one packed QKV buffer are views. head_dim and value_dim 1 … 512 (64 is fastest); lengths
///   from 0. kv_heads divides q_heads: query head h uses key head h / (q_heads / kv_heads).
/// A key is seen if causal, window, lengths, mask and bias all let it be. A row that sees no key gives 0, and log-sum-exp -inf, or
///   its sink if it has one. A key that is not seen has no influence, NaN or not; what is seen propagates: a NaN in a query or bias gives NaN in its row, in a key or
///   value in the rows that see it. A score of +inf gives NaN, one of -inf a probability of 0.
/// Aliasing: inputs, and what options point to, may overlap each other; out and lse must overlap nothing.
/// Arithmetic: q · scale is rounded first; each score is an fma chain over head_dim from 0; then s = tanh(s · (1 / softcap)) · softcap
///   (the reciprocal at most the largest float),
///   s = fma(slope, j - i - causal_offset, s), s = s + relative bias and s = s + bias. Keys lie on a grid of 512: each block gives its own maximum, exponentials and sum (as in softmax) and P·V (an fma chain over keys), and
///   blocks merge in order. The same bits for every instruction set, number of threads, stride, batch, and split of the queries.
/// Error, u = 2^-24, D = head_dim, N = min(kv_length, 512), B = ceil(kv_length / 512), S = the largest over the row of
///   Σ|q||k| · |scale|, M = max|score|: |out - exact| <= (2·(D + 3)·S + 4·M + N + ceil(N / 16) + 8·B + 12) · u · Σ_j p_j |v_j|, and
///   |lse - exact| <= ((D + 3)·S + 2·M + |lse| + ceil(N / 16) + 4·B + 2·ln(kv_length + 1) + 8) · u, plus underflow. With a bias
///   or a relative one, which M includes, 2·M and 1·M more (with both, twice that); with a softcap or ALiBi, 12 and 6 times the largest magnitudes before the cap and before the
///   bias; with a sink, 2·(8 + |lse|) and 8 + |lse|.
/// Source: the block recurrence of Milakov and Gimelshein 2018; Rabe and Staats 2021; Dao et al. 2022.
/// Memory: scratch is kept per thread: tiles, and packed keys and values of one kv head; or those that all threads share, at most max(32 MiB, one kv
///   head). Decoding that shares out keys keeps a result of each block of keys. plan_attention() tells it. A call allocates nothing once warm.
/// Errors: std::invalid_argument, before anything is written, for shapes that do not match, heads that do not divide,
///   dims out of range, null data, an overlapping output, sizes that overflow; std::bad_alloc.
HEADLANE_API void attention(View<const float, 4> q, View<const float, 4> k, View<const float, 4> v, View<float, 4> out,
                            const AttentionOptions& options = {});

/// The same over the keys and values of sequences in a cache: batch element b of q and out belongs to sequence sequences[b].
///
/// The queries are the last ones of their sequence, so that appending tokens and then attending is causal decoding or chunked prefill:
///   the position of the first query is the number of keys - the number of queries (of that sequence; key_lengths and
///   query_lengths count) + causal_offset, or causal_offsets[b] where those are given.
/// kv_length, as in the shape of masks, is the length of the longest of the sequences. Ragged batches are an error: every sequence is its
///   own batch element here. All other options, and the bits, as in attention() of tensors. Decoding shares out keys as well as heads:
///   it uses all threads for a single sequence.
HEADLANE_API void attention(View<const float, 4> q, const KvCache& cache, std::span<const Index> sequences,
                            View<float, 4> out, const AttentionOptions& options = {});

/// How attention() will compute something, and what it needs for it.
struct AttentionPlan {
  const char* isa = "";     ///< the instruction set
  Index tile_rows = 0;      ///< query rows in registers at a time
  Index key_block = 0;      ///< the grid of keys, 512
  Index rows_of_task = 0;   ///< query rows that a task takes at a time
  Index key_parts = 1;      ///< tasks that share the keys of a row: more than 1 when decoding few heads on many threads
  Index tasks = 0;          ///< that may run in parallel
  int threads = 1;          ///< that share them
  bool packs_keys = false;  ///< whether keys are copied to another order first, or read where they stand
  bool packs_values = false;        ///< values likewise
  std::size_t workspace_bytes = 0;  ///< memory besides inputs and outputs
};

/// Takes what attention() takes, and looks at shapes, strides, options, the starts of a ragged batch and num_threads() only: data may be
/// null. Errors as attention(), for what it looks at.
HEADLANE_API AttentionPlan plan_attention(View<const float, 4> q, View<const float, 4> k, View<const float, 4> v,
                                          View<float, 4> out, const AttentionOptions& options = {});
HEADLANE_API AttentionPlan plan_attention(View<const float, 4> q, const KvCache& cache,
                                          std::span<const Index> sequences, View<float, 4> out,
                                          const AttentionOptions& options = {});

/// The same on heads that lie side by side: head h has the columns dim·h … dim·h + dim-1, so that eight heads of 64
/// fill one [sequence, 512] buffer and their outputs stand concatenated. Nothing is copied: these are views for attention().
///
/// Shapes: q [batch, q_length, heads · head_dim], k [batch, kv_length, kv_heads · head_dim], v [batch, kv_length,
///   kv_heads · value_dim], out [batch, q_length, heads · value_dim]; head_dim is q's width / heads, and kv_heads k's width /
///   head_dim. Everything else as in attention().
HEADLANE_API void multi_head_attention(View<const float, 3> q, View<const float, 3> k, View<const float, 3> v,
                                       View<float, 3> out, Index heads, const AttentionOptions& options = {});

/// One sequence: [length, heads · dim]; lse, if wanted, is [1, heads, q_length].
HEADLANE_API void multi_head_attention(View<const float, 2> q, View<const float, 2> k, View<const float, 2> v,
                                       View<float, 2> out, Index heads, const AttentionOptions& options = {});

}  // namespace headlane
