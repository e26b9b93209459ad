// Softmax: checks of the arguments.
#pragma once

#include <headlane/softmax.hpp>

namespace headlane::internal {

/// Throws std::invalid_argument unless they are as softmax.hpp wants them.
void check_softmax(const AnyView<const float>& x, const AnyView<float>& y, const SoftmaxOptions& options);

}  // namespace headlane::internal
