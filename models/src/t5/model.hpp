// The layers of T5, loaded from a checkpoint.
#pragma once

#include "io/digest.hpp"

#include <headlane/layers.hpp>
#include <headlane/models/checkpoint.hpp>
#include <headlane/models/t5.hpp>

#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace headlane::models::internal {

/// The relative position bias, which all layers of a stack share.
class T5Bias {
 public:
  T5Bias() = default;
  T5Bias(const Checkpoint& checkpoint, const std::string& name, const T5Config& config, bool bidirectional,
         Digest& whole);

  [[nodiscard]] RelativeBias relative_bias() const;

 private:
  std::vector<float> table_;  // [buckets, heads], as in the checkpoint
  Index buckets_ = 0, heads_ = 0, max_distance_ = 0;
  bool bidirectional_ = true;
};

class T5Model {
 public:
  T5Model(const Checkpoint& checkpoint, const T5Config& config, const ModelOptions& options);

  /// Of what all ranks of a team read whole.
  [[nodiscard]] const Digest& whole() const { return whole_; }

  /// y [1, tokens, d_model] = the encoder output for variable-length sequences: ids and rows of y
  /// starts[s] … starts[s+1]-1 are sequence s. Calls poll, if given, after each layer.
  void encode(std::span<const Index> ids, std::span<const Index> starts, View<float, 3> y, int num_threads,
              const std::function<void()>& poll = {}) const;

  void embed(View<const Index, 2> ids, View<float, 3> y) const { embedding_.forward(ids, y); }
  [[nodiscard]] std::span<const DecoderLayer> decoder() const { return decoder_; }
  /// The bias of the decoder's self-attention.
  [[nodiscard]] RelativeBias decoder_bias() const { return decoder_bias_.relative_bias(); }
  /// The norm and scaling between the last decoder layer and logits(), in place.
  void finish_decoder(View<float, 3> x, int num_threads) const;
  void logits(View<const float, 3> x, View<float, 3> y, int num_threads) const;

 private:
  /// The embedding, and the output layer if that differs.
  void load_embedding(const Checkpoint& checkpoint, const T5Config& config, const ModelOptions& options);

  Embedding embedding_;
  std::optional<Linear> head_;  // unless the output layer is the embedding
  std::vector<EncoderLayer> encoder_;
  std::vector<DecoderLayer> decoder_;
  Normalization encoder_norm_, decoder_norm_;
  T5Bias encoder_bias_, decoder_bias_;
  float output_scale_ = 1.0f;
  Digest whole_;
};

}  // namespace headlane::models::internal
