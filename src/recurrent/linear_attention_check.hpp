// The arguments of linear_attention, and their checks.
#pragma once

#include "core/check.hpp"

#include <headlane/linear_attention.hpp>

namespace headlane::internal {

struct LinearAttentionOperands {
  Operand q, k, v, out;
};

/// Throws std::invalid_argument unless the arguments are valid.
void check_linear_attention(const LinearAttentionOperands& x, const LinearAttentionOptions& options);

}  // namespace headlane::internal
