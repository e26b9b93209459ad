// Checks of attention's arguments.
#pragma once

#include "attention.hpp"
#include "check.hpp"

namespace headlane {

/// What is read besides the options, and what is written. For a plan, overlaps are not looked at, nor whether there are data.
struct AttentionOperands {
  const char* function;
  Look look;
  Operand q, k;
  Operand result;  // out, or what a function gives in its place
  Operand v;       // rank 0: there is none

  /// An operand of this call.
  template <class T, int Rank>
  [[nodiscard]] Operand operand(const char* name, const View<T, Rank>& view) const {
    return headlane::operand(function, name, view);
  }
  /// An input, against all that is written.
  void check_input(const Operand& input, const AttentionOptions& options) const;
};

/// Elements of the batch: sequences, if it is ragged.
Index batch_of(const AttentionOperands& operands, const AttentionOptions& options);

/// All options, the starts of a ragged batch first.
void check_options(const AttentionOperands& operands, const AttentionOptions& options, Index batch);

}  // namespace headlane
