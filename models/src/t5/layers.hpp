// Layers of T5, from the tensors of a checkpoint.
#pragma once

#include "io/digest.hpp"

#include <headlane/layers.hpp>
#include <headlane/models/checkpoint.hpp>
#include <headlane/models/t5.hpp>

#include <deque>
#include <string>
#include <vector>

namespace headlane::models::internal {

/// Builds layers under the tensor names of torch.nn, with the share of the weights that a rank of a
/// team has. Refers to the arguments of the constructor; the digest gets what all ranks read.
class T5Layers {
 public:
  T5Layers(const Checkpoint& checkpoint, const T5Config& config, const ModelOptions& options, Digest& whole)
      : checkpoint_(checkpoint), config_(config), options_(options), whole_(whole) {}

  [[nodiscard]] EncoderLayer encoder(Index i) const;
  [[nodiscard]] DecoderLayer decoder(Index i) const;
  [[nodiscard]] Normalization norm(const std::string& name) const;

 private:
  /// The tensors of a layer during its construction: loaded ones, joined ones, and stored weights.
  struct Parts {
    StateDict state;
    std::vector<Tensor> loaded;
    std::vector<std::vector<float>> joined;
    std::deque<PackedMatrix> packed;
  };

  /// The weight of a norm.
  void add_norm(Parts& parts, const std::string& to, const std::string& name) const;
  /// The weight [out, in] of a linear layer, as the file stores it if it is quantised.
  void add_weight(Parts& parts, const std::string& to, const std::string& layer, Index out, Index in) const;
  void add_attention(Parts& parts, const std::string& to, const std::string& from) const;
  void add_feed_forward(Parts& parts, const std::string& from) const;
  [[nodiscard]] TransformerLayerOptions options() const;

  const Checkpoint& checkpoint_;
  const T5Config& config_;
  const ModelOptions& options_;
  Digest& whole_;
};

}  // namespace headlane::models::internal
