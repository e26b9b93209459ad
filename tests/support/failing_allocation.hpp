// Fault injection: the n-th allocation of a call fails, for n = 0, 1, 2 … until the call succeeds.
#pragma once

#include "support/allocation_count.hpp"
#include "support/hash.hpp"

#include <doctest/doctest.h>
#include <headlane/runtime.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

namespace headlane::test {

struct FailingCall {
  std::string name;
  std::function<void()> prepare;        ///< restores what the call changes; no allocation fails here
  std::function<void()> call;           ///< the call under test
  std::function<std::uint64_t()> bits;  ///< hash of everything that it produced or changed
  bool all_or_nothing = false;          ///< a failed call must leave bits() unchanged
};

struct FailureCount {
  long failed = 0, survived = 0;  ///< calls that threw, calls that succeeded all the same
};

/// Lets the first allocation of the call fail, then the second, and so on until it needs no more;
/// after the first hundred every `step`-th. `warm`: no thread's scratch grows any more, so every
/// block must be freed.
inline FailureCount fail_each(const FailingCall& c, std::uint64_t right, long step, bool warm) {
  FailureCount count;
  c.prepare();
  const long live = live_blocks, c_live = c_blocks.live();
  for (long n = 0;; n += n < 100 ? 1 : step) {
    c.prepare();
    if (warm) CHECK_MESSAGE(live_blocks == live, c.name, ": lost when an allocation before number ", n, " failed");
    // With several threads, one of them may get its first task of a kind late and grow its scratch.
    if (warm && num_threads() == 1) CHECK_MESSAGE(c_blocks.live() == c_live, c.name, ", likewise: ", n);
    const std::uint64_t before = c.bits();
    bool thrown = false;
    until_failure = n;
    try {
      c.call();
    } catch (const std::bad_alloc&) {
      thrown = true;
    } catch (const std::exception& error) {
      until_failure = -1;
      FAIL_CHECK(c.name, ": allocation ", n, " failed: ", error.what());
      return count;
    }
    const bool reached = until_failure.exchange(-1) < 0;
    if (!reached) {
      CHECK_MESSAGE(c.bits() == right, c.name, " after ", n, " failures");
      return count;
    }
    ++(thrown ? count.failed : count.survived);
    if (thrown && c.all_or_nothing) CHECK_MESSAGE(c.bits() == before, c.name, ": allocation ", n, " failed");
    if (!thrown) CHECK_MESSAGE(c.bits() == right, c.name, ": did without allocation ", n);
  }
}

/// Runs fail_each() in a new thread, whose scratch memory is cold, then again when it is warm.
/// `least`: the minimum number of failures, to show that the test reaches the allocations.
inline void check_failing(const FailingCall& c, long least, long step = 1) {
#if defined(HEADLANE_TEST_SANITIZED)
  static_cast<void>(c), static_cast<void>(least), static_cast<void>(step);
#else
  c.prepare();
  c.call();
  const std::uint64_t right = c.bits();
  std::thread([&] {
    const FailureCount cold = fail_each(c, right, step, false);
#if defined(__clang__)
    const bool may_be_warm = num_threads() > 1;  // LLVM's OpenMP gives the team of an ended thread to the next one
#else
    const bool may_be_warm = false;
#endif
    CHECK_MESSAGE((may_be_warm || cold.failed >= least), c.name, ": ", cold.failed, " failures");
    fail_each(c, right, step, true);
  }).join();
  CHECK_MESSAGE(until_failure < 0, c.name);
#endif
}

}  // namespace headlane::test
