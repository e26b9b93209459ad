// The options of attention(), and a visitor that lists them.
#pragma once

#include <headlane/floating_view.hpp>
#include <headlane/view.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace headlane {

/// A bias that depends only on the distance between key and query (T5; Raffel et al. 2020):
///   bias[head, t5_bucket(position of the key - position of the query)].
struct RelativeBias {
  /// [q_heads, buckets], any strides. -inf masks a key.
  View<const float, 2> table = {};
  /// All distances from this one on share a bucket.
  Index max_distance = 128;
  /// Half of the buckets are for keys after the query (encoders); otherwise those share bucket 0.
  bool bidirectional = true;
};

/// Options of attention(). All are optional, and all combine; a view without data is an option that
/// is not given.
///
/// Designated initializers name them in this order: the groups, and within a group the options,
/// keep it. A new option goes to the end of its group.
struct AttentionOptions {
  // ---- Scores

  /// Multiplies the scores; 1 / sqrt(head_dim) if absent.
  std::optional<float> scale = std::nullopt;
  /// If not 0, a scaled score s becomes softcap · tanh(s / softcap) before anything is added to it
  /// (Gemma 2, 2024). Not negative.
  float softcap = 0.0f;

  // ---- Visible keys: a key is visible to a query if all of these, and the lengths below, allow it

  /// Key j is visible to query i only if j <= i + causal_offset.
  bool causal = false;
  /// Position of the first query on the key axis: the number of cached keys when decoding.
  /// May be negative.
  Index causal_offset = 0;
  /// [batch]: one causal offset for each batch element, instead of causal_offset.
  View<const Index, 1> causal_offsets = {};
  /// Key j is visible to query i only if
  ///   i + causal_offset - window_left <= j <= i + causal_offset + window_right;
  /// -1: unbounded on that side.
  Index window_left = -1;
  Index window_right = -1;
  /// [batch, q_heads, q_length, kv_length], any strides, 0 to broadcast: only keys whose element is
  /// true are visible.
  View<const bool, 4> mask = {};
  /// [batch, q_heads, q_length, ceil(kv_length / 8)], strides as for mask: key j is visible only if
  /// bit j % 8 (bit 0 is the lowest) of byte j / 8 is set.
  View<const std::uint8_t, 4> mask_bits = {};

  // ---- Added to the scores

  /// Shape and strides as for mask; added to the scaled scores. A bias of -inf masks the key. One
  /// of bfloat16 or float16 is widened exactly, whatever the type of q: a copy in float32, for
  /// which the calling thread keeps up to 64 MiB.
  FloatingView<4> bias = {};
  /// [q_heads]: adds slope · (j - i - causal_offset) to the score (ALiBi; Press, Smith and Lewis
  /// 2022). Distances beyond max_alibi_distance (limits.hpp) are an error, since a float does not
  /// represent them exactly.
  View<const float, 1> alibi_slopes = {};
  /// T5's bias by buckets of distances.
  RelativeBias relative_bias = {};
  /// [q_heads]: one more score for each row, that of a key without a value: exp(sink) joins the sum
  /// and the log-sum-exp (attention sinks; Xiao et al. 2024).
  View<const float, 1> sinks = {};

  // ---- Variable lengths

  /// [batch]: queries (keys) of a batch element from this one on are padding and are not read.
  /// A padded query returns 0, and -inf as its log-sum-exp.
  View<const Index, 1> query_lengths = {};
  View<const Index, 1> key_lengths = {};
  /// Both or neither, [sequences + 1] each (PyTorch's cu_seqlens): sequences of different lengths,
  /// concatenated without padding in a single batch element. Sequence s has the queries
  ///   query_starts[s] … query_starts[s+1]-1
  /// and the keys
  ///   key_starts[s] … key_starts[s+1]-1;
  /// positions count from its first query and key. Options of shape [batch] are then [sequences];
  /// masks and biases have a row for each query, with key j of its sequence at j. Starts do not
  /// decrease; rows of no sequence are left alone.
  View<const Index, 1> query_starts = {};
  View<const Index, 1> key_starts = {};

  // ---- Outputs

  /// [batch, q_heads, q_length], any strides; receives log Σ_j exp(score_j), natural logarithm.
  View<float, 3> lse = {};
  /// [batch, q_heads, q_length], any strides; requires lse. The result is then a partial result for
  /// merge() (merge.hpp): out is not divided, lse receives the maximum score m of the row, and sum
  /// receives Σ_j exp(score_j - m). Not together with sinks, which belong to merge().
  View<float, 3> sum = {};
  /// Continues a partial result: out, lse and sum hold that of the same queries over other keys,
  /// and receive that over both. Requires sum. If the number of keys so far is a multiple of 512,
  /// the bits are those of one call over all of them. causal_offset counts from the first of these
  /// keys, so it is negative if the queries come before them. (An out of 0, an lse of -inf and a
  /// sum of 0 are the partial result over no key.)
  bool resume = false;

  // ---- Execution

  /// Memory to work in, instead of the library's: as many bytes as plan_attention() returns. Any
  /// alignment; overlaps nothing else.
  std::span<std::byte> workspace = {};
  /// Maximum number of threads of this call; 0: num_threads() (runtime.hpp).
  int num_threads = 0;
};

/// Calls f(name, member) for each option, in the order of the struct; the members of relative_bias
/// are options of their own ("relative_bias.table" and so on). This is the one list of the options:
/// the library's checks read it, and so can bindings and wrappers.
///
/// The type of a member tells its kind: a view of const elements or a FloatingView is an input, any
/// other view is an output.
template <class Options, class F>
constexpr void for_each_option(Options& options, const F& f) {
  // Does not compile if an option is missing here.
  auto& [scale, softcap, causal, causal_offset, causal_offsets, window_left, window_right, mask,
         mask_bits, bias, alibi_slopes, relative_bias, sinks, query_lengths, key_lengths,
         query_starts, key_starts, lse, sum, resume, workspace, num_threads] = options;
  auto& [table, max_distance, bidirectional] = relative_bias;
  f("scale", scale);
  f("softcap", softcap);
  f("causal", causal);
  f("causal_offset", causal_offset);
  f("causal_offsets", causal_offsets);
  f("window_left", window_left);
  f("window_right", window_right);
  f("mask", mask);
  f("mask_bits", mask_bits);
  f("bias", bias);
  f("alibi_slopes", alibi_slopes);
  f("relative_bias.table", table);
  f("relative_bias.max_distance", max_distance);
  f("relative_bias.bidirectional", bidirectional);
  f("sinks", sinks);
  f("query_lengths", query_lengths);
  f("key_lengths", key_lengths);
  f("query_starts", query_starts);
  f("key_starts", key_starts);
  f("lse", lse);
  f("sum", sum);
  f("resume", resume);
  f("workspace", workspace);
  f("num_threads", num_threads);
}

}  // namespace headlane
