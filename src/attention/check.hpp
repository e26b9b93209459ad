// Checks of attention's arguments.
#pragma once

#include "attention/problem.hpp"
#include "core/check.hpp"

namespace headlane::internal {

/// Whether an option is a view of const elements.
template <class T>
inline constexpr bool is_input = false;
template <class T, int Rank>
inline constexpr bool is_input<const View<const T, Rank>&> = true;

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

/// Calls f(operand) for each input that is given among the options.
template <class F>
void for_each_input(const char* function, const AttentionOptions& options, const F& f) {
  for_each_option(options, [&](const char* name, const auto& option) {
    if constexpr (is_input<decltype(option)>)
      if (option) f(operand(function, name, option));
  });
}

/// Number of batch elements, or of sequences of variable length.
Index batch_of(const AttentionOperands& operands, const AttentionOptions& options);

/// Checks all options, query_starts and key_starts first.
void check_options(const AttentionOperands& operands, const AttentionOptions& options, Index batch);

}  // namespace headlane::internal
