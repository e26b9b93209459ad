// The scope of a call on a thread: floating-point state and scratch memory. Every function that
// computes has a CallScope, and so has every thread that works for it.
#pragma once

#include "core/floating_point_scope.hpp"
#include "core/scratch.hpp"

namespace headlane::internal {

/// Lives from the beginning to the end of a call. Scopes nest.
class CallScope {
 public:
  CallScope() noexcept { enter_call(); }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;
  ~CallScope() { leave_call(); }

 private:
  FloatingPointScope state_;
};

}  // namespace headlane::internal
