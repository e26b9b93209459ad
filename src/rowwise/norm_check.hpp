// A layer norm or RMS norm, and the checks of its arguments.
#pragma once

#include "core/check.hpp"

#include <headlane/view.hpp>

namespace headlane::internal {

/// A call of layer_norm or rms_norm.
struct Norm {
  Caller caller;
  AnyView<const float> x;
  AnyView<float> y;
  AnyView<const float> residual;
  AnyView<float> sum;
  View<const float, 1> weight, bias;
  float eps;
  bool centred;
  int num_threads;
};

/// Throws std::invalid_argument unless the arguments are valid.
void check_norm(const Norm& norm);

}  // namespace headlane::internal
