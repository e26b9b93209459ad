// Normalization: layer norm or RMS norm with weights. The contract of all layers: layers.hpp.
#pragma once

#include <headlane/dtype.hpp>
#include <headlane/export.h>
#include <headlane/state_dict.hpp>
#include <headlane/view.hpp>

#include <string_view>
#include <vector>

namespace headlane {

enum class NormKind { layer, rms };

/// torch.nn.LayerNorm or torch.nn.RMSNorm over the last axis (norm.hpp).
///
/// Tensors: weight [d]; layer norm also bias [d].
class HEADLANE_API Normalization {
 public:
  Normalization() = default;
  Normalization(const StateDict& state, std::string_view prefix, NormKind kind, float eps);

  [[nodiscard]] Index size() const { return static_cast<Index>(weight_.size()); }
  [[nodiscard]] OwnedStateDict state_dict(std::string_view prefix = {}) const;

  /// y = norm(x), any rank.
  void forward(AnyView<const float> x, AnyView<float> y, int num_threads = 0) const;
  void forward(AnyView<const bfloat16> x, AnyView<bfloat16> y, int num_threads = 0) const;
  void forward(AnyView<const float16> x, AnyView<float16> y, int num_threads = 0) const;

 private:
  template <class T>
  HEADLANE_HIDDEN void normalize(const AnyView<const T>& x, const AnyView<T>& y,
                                 int num_threads) const;

  NormKind kind_ = NormKind::layer;
  float eps_ = 0;
  std::vector<float> weight_, bias_;
};

}  // namespace headlane
