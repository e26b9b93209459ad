// Linear: y = activation(x · weightᵀ + bias) + residual. The contract of all layers: layers.hpp.
#pragma once

#include <headlane/activation_kind.hpp>
#include <headlane/dtype.hpp>
#include <headlane/export.h>
#include <headlane/floating_view.hpp>
#include <headlane/packed_matrix.hpp>
#include <headlane/state_dict.hpp>
#include <headlane/team.hpp>
#include <headlane/view.hpp>

#include <string_view>
#include <vector>

namespace headlane {

struct LinearOptions {
  Activation activation = Activation::none;  ///< applied after the bias
  /// If given: shape of y, any strides, of any type as in GemmOptions; added last.
  FloatingView<3> residual = {};
  int num_threads = 0;  ///< maximum for this call; 0: num_threads() (runtime.hpp)
};

/// torch.nn.Linear.
///
/// Tensors: weight [out_features, in_features], bias [out_features].
class HEADLANE_API Linear {
 public:
  Linear() = default;
  /// weights: how the weight is stored (PackedMatrix). activations: bfloat16 and int8 round the
  /// rows of x (GemmOptions), for weights of such a type. team: not owned; see layers.hpp.
  explicit Linear(const StateDict& state, std::string_view prefix = {},
                  DType weights = DType::float32, DType activations = DType::float32,
                  Team* team = nullptr);

  [[nodiscard]] Index in_features() const { return weight_.rows(); }
  [[nodiscard]] Index out_features() const { return columns_.count(); }
  /// The transposed weight, [in_features, out_features]; with a team, the columns of this rank.
  [[nodiscard]] const PackedMatrix& weight() const { return weight_; }
  /// The columns of each rank.
  [[nodiscard]] const Shares& columns() const { return columns_; }
  [[nodiscard]] DType activations() const { return activations_; }
  /// [columns of weight()]; null data if there is none. Valid as long as the layer.
  [[nodiscard]] View<const float, 1> bias() const;
  [[nodiscard]] OwnedStateDict state_dict(std::string_view prefix = {}) const;

  /// y = activation(x · weightᵀ + bias) + residual.
  ///
  /// Shapes: x [batch, length, in_features], y [batch, length, out_features].
  /// Aliasing: y must not overlap any input.
  void forward(View<const float, 3> x, View<float, 3> y, const LinearOptions& options = {}) const;
  /// In bfloat16 and float16: x is widened exactly, y is the result for float32 rounded once, to
  /// nearest, ties to even.
  /// Memory: scratch for float32 copies of x and y, of which the calling thread keeps up to 64 MiB.
  void forward(View<const bfloat16, 3> x, View<bfloat16, 3> y,
               const LinearOptions& options = {}) const;
  void forward(View<const float16, 3> x, View<float16, 3> y,
               const LinearOptions& options = {}) const;

 private:
  PackedMatrix weight_;
  Shares columns_;
  DType activations_ = DType::float32;
  std::vector<float> bias_;
};

}  // namespace headlane
