// Checks of attention's arguments.
#pragma once

#include "attention/problem.hpp"
#include "core/check.hpp"

namespace headlane::internal {

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
    return internal::operand(function, name, view);
  }
  /// An input, against all that is written.
  void check_input(const Operand& input, const AttentionOptions& options) const;
};

/// f(operand) for each input that options name.
template <class F>
void for_each_input(const char* function, const AttentionOptions& o, const F& f) {
  const auto look = [&](const char* name, const auto& view) {
    if (view) f(operand(function, name, view));
  };
  look("mask", o.mask);
  look("mask_bits", o.mask_bits);
  look("bias", o.bias);
  look("key_lengths", o.key_lengths);
  look("query_lengths", o.query_lengths);
  look("alibi_slopes", o.alibi_slopes);
  look("sinks", o.sinks);
  look("causal_offsets", o.causal_offsets);
  look("query_starts", o.query_starts);
  look("key_starts", o.key_starts);
  look("relative_bias.table", o.relative_bias.table);
}

/// Elements of the batch: sequences, if it is ragged.
Index batch_of(const AttentionOperands& operands, const AttentionOptions& options);

/// All options, the starts of a ragged batch first.
void check_options(const AttentionOperands& operands, const AttentionOptions& options, Index batch);

}  // namespace headlane::internal
