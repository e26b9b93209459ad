// A layer norm or RMS norm, and the checks of its arguments.
#pragma once

#include "core/check.hpp"

#include <headlane/view.hpp>

namespace headlane::internal {

/// A call of layer_norm or rms_norm. Without x and y, their options.
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

/// Throws std::invalid_argument unless the arguments are valid; x and y may be of another type than
/// those of the norm.
void check_norm(const Norm& norm, const Operand& x, const Operand& y);

}  // namespace headlane::internal
