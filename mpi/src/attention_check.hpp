// Checks of attention over tensors and over caches.
#pragma once

#include "error.hpp"

#include <headlane/attention_options.hpp>
#include <headlane/disjoint.hpp>

#include <concepts>
#include <vector>

namespace headlane::mpi::internal {

inline constexpr const char* attention_name = "mpi::attention";

/// Throws std::invalid_argument, "mpi::attention: …", unless `condition`.
template <class... Parts>
void refuse_unless(bool condition, const Parts&... parts) {
  if (!condition) fail(attention_name, ": ", parts...);
}

/// Refuses options that belong to calls of one process.
inline void check_options_of_ranks(const AttentionOptions& o) {
  refuse_unless(!o.sum && !o.resume, "sum or resume is given, which only headlane::attention has");
  refuse_unless(o.workspace.data() == nullptr, "workspace is given, which only headlane::attention has");
}

/// Checks that the outputs overlap neither each other nor an input: `inputs`, or one of the
/// options.
inline void check_outputs(const View<float, 4>& out, std::vector<NamedView> inputs, const AttentionOptions& options) {
  for_each_option(options, [&]<class T>(const char* name, const T& option) {
    if constexpr (std::constructible_from<NamedView, const char*, T> && !std::same_as<T, View<float, 3>>)
      inputs.emplace_back(name, option);
  });
  require_disjoint(attention_name, {"out", out}, inputs);
  if (!options.lse) return;
  inputs.emplace_back("out", out);
  require_disjoint(attention_name, {"lse", options.lse}, inputs);
}

}  // namespace headlane::mpi::internal
