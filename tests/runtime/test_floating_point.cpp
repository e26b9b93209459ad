// Floating-point state (rounding mode, flush to zero, exception flags): it changes no result, and
// no call changes it.
#include "support/every_call.hpp"
#include "support/floating_point_state.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>

#include <thread>

namespace headlane::test {
namespace {

#if defined(HEADLANE_TEST_HAS_STATE)

/// Calls f() in a thread that starts in this state, as do the threads that it starts; returns
/// whether the state is unchanged afterwards.
template <class F>
bool in_state(State wanted, const F& f) {
  bool kept = false;
  std::thread([&] {
    set_state(wanted);
    f();
    kept = state() == wanted;
  }).join();
  return kept;
}

TEST_CASE("the floating-point state of the caller and of its threads changes no bit") {
  for (const float magnitude : {1.0f, 1e-20f}) {  // 1e-20: products and variances are denormal
    const EveryCall work(slow_isa() ? 7 : 24, magnitude);
    work.run(1);
    const std::vector<std::uint64_t> expected = work.hashes();
    const auto check = [&](const char* what, State s, int threads) {
      const std::vector<std::uint64_t> actual = work.hashes();
      for (std::size_t i = 0; i < actual.size(); ++i)
        CHECK_MESSAGE(actual[i] == expected[i], work.calls()[i].name, ", ", what, ", state ", s, ", ", threads,
                      " threads, magnitude ", magnitude, ", isa ", isa());
    };
    for (const State s : all_states)
      for (const int threads : {1, 3}) {
        CHECK(in_state(s, [&] { work.run(threads); }));  // before the team exists
        check("set before", s, threads);
        bool kept = true;
        in_state(all_states.front(), [&] {
          work.run(threads);
          set_state(s);  // the team keeps its state
          work.run(threads);
          kept = state() == s;
          set_state(all_states.front());
        });
        CHECK(kept);
        check("set after", s, threads);
        in_state(s, [&] {
          work.run(threads);
          set_state(all_states.front());  // only the team has it
          work.run(threads);
        });
        check("set in the team alone", s, threads);
      }
  }
}

#if defined(__x86_64__)
TEST_CASE("exception flags are unchanged after a call, and unmasked exceptions do not trap") {
  const unsigned before = _mm_getcsr();
  for (const float magnitude : {5000.0f, 1e-20f}) {
    const EveryCall work(7, magnitude);
    for (const unsigned wanted : {0x1f80u, 0x1f80u | 0x3f, 0x1f80u & ~0x1f80u}) {  // none, all raised, all unmasked
      for (const EveryCall::Call& call : work.calls()) {
        _mm_setcsr(wanted);
        call.run(2);
        const unsigned after = _mm_getcsr();
        _mm_setcsr(before);
        CHECK_MESSAGE(after == wanted, call.name, ", magnitude ", magnitude);
      }
    }
  }
}
#endif
#endif

}  // namespace
}  // namespace headlane::test
