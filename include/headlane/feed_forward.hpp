// FeedForward: two linear layers with an activation, gated or not. The contract of all layers:
// layers.hpp.
#pragma once

#include <headlane/activation_kind.hpp>
#include <headlane/dtype.hpp>
#include <headlane/export.h>
#include <headlane/linear.hpp>
#include <headlane/state_dict.hpp>
#include <headlane/team.hpp>
#include <headlane/view.hpp>

#include <string_view>

namespace headlane {

struct FeedForwardOptions {
  /// BERT: gelu; T5: relu; T5 1.1: gelu_tanh; Llama: silu.
  Activation activation = Activation::relu;
  DType weights = DType::float32;      ///< how the weights are stored (PackedMatrix)
  DType activations = DType::float32;  ///< as Linear
  Team* team = nullptr;                ///< not owned; see layers.hpp
};

/// The feed-forward block of a transformer layer:
///   y = linear2(activation(linear1(x)))
/// or gated (T5 1.1, Llama), if the state dict has linear_gate.weight:
///   y = linear2(activation(linear_gate(x)) ∘ linear1(x))
///
/// Tensors, named as in torch.nn.TransformerEncoderLayer:
///   linear1.weight [d_ff, d_model], linear1.bias [d_ff]
///   linear_gate.weight [d_ff, d_model], linear_gate.bias [d_ff]
///   linear2.weight [d_model, d_ff], linear2.bias [d_model]
class HEADLANE_API FeedForward {
 public:
  FeedForward() = default;
  FeedForward(const StateDict& state, std::string_view prefix,
              const FeedForwardOptions& options = {});

  [[nodiscard]] Index d_model() const { return linear2_.out_features(); }
  [[nodiscard]] Index d_ff() const { return linear2_.in_features(); }
  [[nodiscard]] Activation activation() const { return activation_; }
  [[nodiscard]] bool gated() const { return gated_; }
  [[nodiscard]] const Linear& linear1() const { return linear1_; }
  [[nodiscard]] const Linear& linear_gate() const { return linear_gate_; }
  [[nodiscard]] const Linear& linear2() const { return linear2_; }
  [[nodiscard]] OwnedStateDict state_dict(std::string_view prefix = {}) const;

  /// Memory: the hidden activations are computed in chunks of at most 4 MiB, or 96 rows if those
  ///   are larger.
  void forward(View<const float, 3> x, View<float, 3> y, int num_threads = 0) const;
  /// In bfloat16 and float16, as Linear.
  void forward(View<const bfloat16, 3> x, View<bfloat16, 3> y, int num_threads = 0) const;
  void forward(View<const float16, 3> x, View<float16, 3> y, int num_threads = 0) const;

 private:
  Activation activation_ = Activation::none;
  bool gated_ = false;
  Linear linear1_, linear_gate_, linear2_;
};

}  // namespace headlane
