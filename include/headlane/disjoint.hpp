// Overlap checks for callers that write one output by several calls.
#pragma once

#include <headlane/export.h>
#include <headlane/floating_view.hpp>

#include <span>

namespace headlane {

/// An argument and its name, for messages.
struct NamedView {
  const char* name = "";
  AnyFloatingView view = {};
};

/// Checks that an output neither overlaps itself nor an input.
///
/// Every function of the library checks its own arguments. A caller that walks over the leading
/// axes of larger arrays, and calls a function at each position, checks the whole arrays first: no
/// single call sees that one of them writes what a later one reads.
///
/// Aliasing: arguments that interleave, such as different columns of one buffer, do not overlap.
///   Inputs may overlap each other. An input without data is skipped.
/// Errors: std::invalid_argument, "function: out of shape [2, 3] overlaps a of shape [3]", if there
///   is an overlap, or if the output has no data.
HEADLANE_API void require_disjoint(const char* function, const NamedView& output,
                                   std::span<const NamedView> inputs);

}  // namespace headlane
