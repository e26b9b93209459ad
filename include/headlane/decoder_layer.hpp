// DecoderLayer: self-attention, cross-attention, feed-forward. The contract of all layers:
// layers.hpp.
#pragma once

#include <headlane/attention.hpp>
#include <headlane/dtype.hpp>
#include <headlane/export.h>
#include <headlane/feed_forward.hpp>
#include <headlane/kv_cache.hpp>
#include <headlane/multi_head_attention.hpp>
#include <headlane/normalization.hpp>
#include <headlane/state_dict.hpp>
#include <headlane/transformer_layer_options.hpp>
#include <headlane/view.hpp>

#include <span>
#include <string_view>

namespace headlane {

/// torch.nn.TransformerDecoderLayer.
///
/// Tensors: as EncoderLayer, with multihead_attn.… (cross-attention) and norm3.… (of the
///   feed-forward).
class HEADLANE_API DecoderLayer {
 public:
  DecoderLayer() = default;
  DecoderLayer(const StateDict& state, std::string_view prefix,
               const TransformerLayerOptions& options);

  [[nodiscard]] Index d_model() const { return self_attn_.d_model(); }
  [[nodiscard]] const MultiHeadAttention& self_attn() const { return self_attn_; }
  [[nodiscard]] const MultiHeadAttention& multihead_attn() const { return multihead_attn_; }
  [[nodiscard]] OwnedStateDict state_dict(std::string_view prefix = {}) const;

  /// All positions at once; causal, unless `self` says otherwise.
  void forward(View<const float, 3> x, View<const float, 3> memory, View<float, 3> y,
               const AttentionOptions& self = {.causal = true},
               const AttentionOptions& cross = {}) const;
  /// In bfloat16 and float16, as MultiHeadAttention.
  void forward(View<const bfloat16, 3> x, View<const bfloat16, 3> memory, View<bfloat16, 3> y,
               const AttentionOptions& self = {.causal = true},
               const AttentionOptions& cross = {}) const;
  void forward(View<const float16, 3> x, View<const float16, 3> memory, View<float16, 3> y,
               const AttentionOptions& self = {.causal = true},
               const AttentionOptions& cross = {}) const;

  /// The next tokens of sequences, bit-identical to all positions at once.
  ///
  /// cache holds the earlier tokens of the sequences, each named once, to which those of x are
  /// appended; memory what multihead_attn().project_memory() wrote.
  void forward(View<const float, 3> x, KvCache& cache, std::span<const Index> sequences,
               const KvCache& memory, std::span<const Index> memory_sequences, View<float, 3> y,
               const AttentionOptions& self = {}, const AttentionOptions& cross = {}) const;
  void forward(View<const bfloat16, 3> x, KvCache& cache, std::span<const Index> sequences,
               const KvCache& memory, std::span<const Index> memory_sequences, View<bfloat16, 3> y,
               const AttentionOptions& self = {}, const AttentionOptions& cross = {}) const;
  void forward(View<const float16, 3> x, KvCache& cache, std::span<const Index> sequences,
               const KvCache& memory, std::span<const Index> memory_sequences, View<float16, 3> y,
               const AttentionOptions& self = {}, const AttentionOptions& cross = {}) const;

 private:
  struct Call;
  HEADLANE_HIDDEN void check(const Call& call) const;
  HEADLANE_HIDDEN void run(const Call& call) const;

  bool norm_first_ = false;
  MultiHeadAttention self_attn_, multihead_attn_;
  FeedForward feed_forward_;
  Normalization norm1_, norm2_, norm3_;
};

}  // namespace headlane
