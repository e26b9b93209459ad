// Argument checks that forward() of several layers shares.
#pragma once

#include "core/check.hpp"

#include <headlane/attention.hpp>
#include <headlane/view.hpp>

namespace headlane::internal {

/// x, y and memory of forward(), as the caller gave them; memory only where keys come from it.
struct ForwardOperands {
  Operand x, y, memory = {};
};

/// Checks x [batch, length, in] and y [batch, length, out]; with `in_place`, y may be x itself.
void check_forward(const Operand& x, Index in, const Operand& y, Index out, bool in_place, int num_threads);
template <class T>
void check_forward(Caller caller, const View<const T, 3>& x, Index in, const View<T, 3>& y, Index out, bool in_place,
                   int num_threads) {
  check_forward(caller.operand("x", x), in, caller.operand("y", y), out, in_place, num_threads);
}

/// Checks the options of attention inside a layer from x to y: the operands, and options that a
/// layer does not accept. attention() checks the rest.
void check_layer_options(Caller caller, const AttentionOptions& options, const Operand& x, const Operand& y);

}  // namespace headlane::internal
