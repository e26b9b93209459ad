// Softmax: checks of the arguments.
#pragma once

#include "core/check.hpp"

#include <headlane/softmax.hpp>

namespace headlane::internal {

/// Throws std::invalid_argument unless they are as softmax.hpp wants them.
void check_softmax(const Operand& x, const Operand& y, const SoftmaxOptions& options);

}  // namespace headlane::internal
