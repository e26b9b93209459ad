// Memory: a warm call allocates nothing, and attention stores no matrix of scores.
#include "support/allocation_count.hpp"
#include "support/child.hpp"
#include "support/every_call.hpp"
#include "support/process.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <malloc.h>
#include <string>

namespace headlane::test {
namespace {

#if !defined(HEADLANE_TEST_SANITIZED)
TEST_CASE("a warm call allocates nothing") {
  const EveryCall work(slow_isa() ? 7 : 24);
  for (const int threads : {1, 2}) {
    for (int i = 0; i < 3; ++i) work.run(threads);
    const auto bytes = static_cast<std::ptrdiff_t>(mallinfo2().uordblks);
    work.run(threads);
    const auto grown = static_cast<std::ptrdiff_t>(mallinfo2().uordblks) - bytes;
    CHECK_MESSAGE(std::abs(grown) < 1024, threads, " threads");  // libomp's own moves; scratch is never so small
    for (const EveryCall::Call& call : work.calls()) {
      const long start = allocations;
      call.run(threads);
      const long made = allocations - start;
      CHECK_MESSAGE(made == 0, call.name, ", ", threads, " threads");
    }
  }
  const long before = allocations;
  void* volatile p = ::operator new(1);
  ::operator delete(p);
  CHECK(allocations == before + 1);  // it does count
}

const bool memory_registered = [] {
  child_tasks()["memory"] = [] {
    const AttentionTensors t({.q_heads = 4, .kv_heads = 2, .q_length = 16384, .kv_length = 16384}, 1);
    const double before = mib_of_process("VmRSS");
    t.run(causal(0));
    std::printf("%f", mib_of_process("VmHWM") - before);
    return 0;
  };
  return true;
}();

TEST_CASE("causal attention at L = 16384 needs at most 64 MiB besides inputs and outputs") {
  if (slow_isa() || !can_start_children()) return;
  const ChildResult child = run_child("memory");
  const double mib = std::atof(child.output.c_str());
  MESSAGE("attention, 4 heads, L = 16384: ", mib, " MiB beyond inputs and outputs");
  CHECK(child.status == 0);
  CHECK(mib > 0);
  CHECK(mib <= 64);
}
#endif

}  // namespace
}  // namespace headlane::test
