// Checks of attention's arguments.
#pragma once

#include "attention/problem.hpp"

namespace headlane::internal {

/// Whether an option is an input or an output: a view of const elements, or of others.
template <class T>
inline constexpr bool is_input = false;
template <class T, int Rank>
inline constexpr bool is_input<View<const T, Rank>> = true;
template <int Rank>
inline constexpr bool is_input<FloatingView<Rank>> = true;
template <class T>
inline constexpr bool is_output = false;
template <class T, int Rank>
inline constexpr bool is_output<View<T, Rank>> = !is_input<View<T, Rank>>;

/// Calls f(operand) for each input that is given among the options.
template <class F>
void for_each_input(Caller caller, const AttentionOptions& options, const F& f) {
  for_each_option(options, [&]<class T>(const char* name, const T& option) {
    if constexpr (is_input<T>)
      if (option) f(caller.operand(name, option));
  });
}

/// Calls f(operand) for each output that is given among the options.
template <class F>
void for_each_output(Caller caller, const AttentionOptions& options, const F& f) {
  for_each_option(options, [&]<class T>(const char* name, const T& option) {
    if constexpr (is_output<T>)
      if (option) f(caller.operand(name, option));
  });
}

/// The arguments of a call. v of rank 0: none.
struct AttentionArguments : AttentionOperands {
  Caller caller;
  CheckLevel level;
  bool cached;  // k and v are sequences of a cache
  const AttentionOptions& options;
};

/// The last axis of q, k, v or out [batch, heads, rows, dim] is 1 … max_head_dim.
void check_head_dim(const Operand& operand);

/// Number of batch elements, or of the sequences that share one.
Index batch_of(const AttentionArguments& arguments);

/// Checks all options, query_starts and key_starts first.
void check_options(const AttentionArguments& arguments);

}  // namespace headlane::internal
