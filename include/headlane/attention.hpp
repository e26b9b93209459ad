// Scaled dot-product attention, tiled over keys: nothing of size q_length × kv_length is ever stored.
#pragma once

#include <headlane/export.h>
#include <headlane/kv_cache.hpp>
#include <headlane/view.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace headlane {

/// A bias that depends on the distance of key and query alone (T5; Raffel et al. 2020): bias[head, t5_bucket(j - position of the query)].
struct RelativeBias {
  View<const float, 2> table = {};  ///< if data is not null: [q_heads, buckets], any strides; -inf hides a key
  Index max_distance = 128;         ///< all distances from here on share a bucket
  /// Half of the buckets are for keys behind the query (encoders); otherwise those share bucket 0.
  bool bidirectional = true;
};

/// What a call of attention() does besides the plain computation. Options are optional, and all of them combine; a view without
/// data is an option that is not given. Designated initializers name them in this order: the groups, and within a group the
/// options, keep it. A new option goes to the end of its group.
struct AttentionOptions {
  // ---- Scores

  /// Multiplies the scores; 1 / sqrt(head_dim) if absent.
  std::optional<float> scale = std::nullopt;
  /// If not 0: a scaled score s becomes softcap · tanh(s / softcap) before anything is added to it (Gemma 2, 2024). Not negative.
  float softcap = 0.0f;

  // ---- Visible keys: a key is visible to a query if all of these, and the lengths below, allow it

  /// Key j is visible to query i only if j <= i + causal_offset.
  bool causal = false;
  /// Position of the first query on the key axis: the number of cached keys when decoding. May be negative.
  Index causal_offset = 0;
  /// [batch]: a causal offset for each batch element, instead of causal_offset.
  View<const Index, 1> causal_offsets = {};
  /// Key j is visible to query i only if i + causal_offset - window_left <= j <= i + causal_offset + window_right; -1: unbounded.
  Index window_left = -1;
  Index window_right = -1;
  /// [batch, q_heads, q_length, kv_length], any strides, 0 to broadcast: only keys whose element is true are visible.
  View<const bool, 4> mask = {};
  /// [batch, q_heads, q_length, ceil(kv_length / 8)], strides as of mask: key j is visible only if bit j % 8 (0 is the lowest) of
  /// byte j / 8 is set.
  View<const std::uint8_t, 4> mask_bits = {};

  // ---- Added to the scores

  /// Shape and strides as of mask; added to the scaled scores. A bias of -inf masks the key.
  View<const float, 4> bias = {};
  /// [q_heads]; slope · (j - i - causal_offset) is added to the score (ALiBi; Press, Smith and Lewis 2022). Distances beyond 2^24 are
  /// an error, since a float does not represent them exactly.
  View<const float, 1> alibi_slopes = {};
  /// T5's bias by buckets of distances.
  RelativeBias relative_bias = {};
  /// [q_heads]; one more score for each row, of a key without a value: exp(sink) joins the sum and the log-sum-exp (attention
  /// sinks; Xiao et al. 2024).
  View<const float, 1> sinks = {};

  // ---- Variable lengths

  /// [batch]; queries (keys) of a batch element from this one on are padding and are not read. A padded query returns 0, and -inf as
  /// its log-sum-exp.
  View<const Index, 1> query_lengths = {};
  View<const Index, 1> key_lengths = {};
  /// Both or neither, [sequences + 1] each (PyTorch's cu_seqlens): sequences of different lengths, concatenated without padding in a
  /// single batch element. Sequence s has queries query_starts[s] … query_starts[s+1]-1 and keys key_starts[s] … key_starts[s+1]-1;
  /// positions count from its first query and key. Options of shape [batch] are then [sequences]; masks and biases have a row for
  /// each query, with key j of its sequence at j. Starts do not decrease; rows of no sequence are left alone.
  View<const Index, 1> query_starts = {};
  View<const Index, 1> key_starts = {};

  // ---- Outputs

  /// [batch, q_heads, q_length], any strides; receives log Σ_j exp(score_j), natural logarithm.
  View<float, 3> lse = {};
  /// [batch, q_heads, q_length], any strides; with lse. The result is then a part for merge() (merge.hpp): out is not divided, lse
  /// receives the maximum score m of the row, and sum Σ_j exp(score_j - m). Not together with sinks, which belong to merge().
  View<float, 3> sum = {};

  // ---- Execution

  /// Memory to work in, instead of the library's: as many bytes as plan_attention() returns. Any alignment; overlaps nothing else.
  std::span<std::byte> workspace = {};
  /// Maximum number of threads of this call; 0: num_threads() (runtime.hpp).
  int num_threads = 0;
};

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
