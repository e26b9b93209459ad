// Softmax: checks of the arguments.
#pragma once

#include "core/check.hpp"

#include <headlane/softmax.hpp>

namespace headlane::internal {

/// The axis, from 0.
inline int axis_of(const SoftmaxOptions& options, int rank) {
  return options.axis < 0 ? options.axis + rank : options.axis;
}

/// Throws std::invalid_argument unless they are as softmax.hpp wants them.
void check_softmax(const Operand& x, const Operand& y, const SoftmaxOptions& options);

}  // namespace headlane::internal
