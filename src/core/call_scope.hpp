// What a call does to the thread that it runs on: every function that computes has a CallScope, and so
// has every thread that works for it.
#pragma once

#include "core/floating_point_scope.hpp"
#include "core/scratch.hpp"

namespace headlane::internal {

/// From the beginning to the end of a call. Nests.
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
