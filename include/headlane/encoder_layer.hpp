// EncoderLayer: self-attention and feed-forward. The contract of all layers: layers.hpp.
#pragma once

#include <headlane/attention.hpp>
#include <headlane/dtype.hpp>
#include <headlane/export.h>
#include <headlane/feed_forward.hpp>
#include <headlane/multi_head_attention.hpp>
#include <headlane/normalization.hpp>
#include <headlane/state_dict.hpp>
#include <headlane/transformer_layer_options.hpp>
#include <headlane/view.hpp>

#include <string_view>

namespace headlane {

/// torch.nn.TransformerEncoderLayer.
///
/// Tensors: self_attn.… (MultiHeadAttention), linear1.…, linear2.… (FeedForward), norm1.…, norm2.…
class HEADLANE_API EncoderLayer {
 public:
  EncoderLayer() = default;
  EncoderLayer(const StateDict& state, std::string_view prefix,
               const TransformerLayerOptions& options);

  [[nodiscard]] Index d_model() const { return self_attn_.d_model(); }
  [[nodiscard]] const MultiHeadAttention& self_attn() const { return self_attn_; }
  [[nodiscard]] OwnedStateDict state_dict(std::string_view prefix = {}) const;

  void forward(View<const float, 3> x, View<float, 3> y,
               const AttentionOptions& options = {}) const;
  /// In bfloat16 and float16, as MultiHeadAttention.
  void forward(View<const bfloat16, 3> x, View<bfloat16, 3> y,
               const AttentionOptions& options = {}) const;
  void forward(View<const float16, 3> x, View<float16, 3> y,
               const AttentionOptions& options = {}) const;

 private:
  bool norm_first_ = false;
  MultiHeadAttention self_attn_;
  FeedForward feed_forward_;
  Normalization norm1_, norm2_;
};

}  // namespace headlane
