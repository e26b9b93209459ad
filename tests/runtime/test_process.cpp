// Limits and life of the process: few processors, little memory, fork(), destructors of global
// objects, release of scratch memory.
#include "core/cpu_limits.hpp"
#include "support/child.hpp"
#include "support/every_call.hpp"
#include "support/process.hpp"
#include "support/sanitized.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <sched.h>
#include <thread>

#include <sys/resource.h>

namespace headlane::test {

using namespace internal;
namespace {

/// Returns 0 if the results have these hashes.
int compare(const EveryCall& work, const std::vector<std::uint64_t>& expected) {
  const std::vector<std::uint64_t> actual = work.hashes();
  for (std::size_t i = 0; i < actual.size(); ++i)
    if (actual[i] != expected[i]) {
      std::printf("%s differs", work.calls()[i].name.c_str());
      return 1;
    }
  std::printf("the same bits");
  return 0;
}

// ---- processors ----

/// A process that may use one processor.
int on_one_processor() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(0, &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0) return 1;
  std::printf("%d %d", max_threads(), num_threads());
  return 0;
}

/// A call with num_threads = 60000 starts no more than max_threads().
int with_very_many() {
  const EveryCall work(24);
  work.run(1);
  const std::vector<std::uint64_t> expected = work.hashes();
  work.run(60000);
  std::printf("%d ", static_cast<int>(threads_of_process()) <= max_threads() ? 1 : 0);
  return compare(work, expected);
}

TEST_CASE("never more threads than the process may use processors") {
  if (!can_start_children()) return;
  const int here = processors();
  CHECK(here >= 1);
  const std::pair<std::string, std::string> unset{"HEADLANE_MAX_THREADS", ""}, own{"HEADLANE_NUM_THREADS", "64"};
  CHECK(run_child("one processor", {unset, own}).output == "1 1");
  CHECK(run_child("very many threads", {unset, own}).output == "1 the same bits");
  CHECK(run_child("very many threads", {{"HEADLANE_MAX_THREADS", "5"}, own}).output == "1 the same bits");
  for (const std::string wrong : {"0", "-3", "3x", "many", "99999999"})
    CHECK_MESSAGE(run_child("max threads", {{"HEADLANE_MAX_THREADS", wrong}}).output == std::to_string(here), wrong);
#ifdef _OPENMP
  CHECK(run_child("max threads", {{"HEADLANE_MAX_THREADS", "5"}}).output == "5");
#endif
}

/// A call with num_threads = 1000, in an address space with room for the stacks of some of them.
int in_little_memory() {
  const EveryCall work(60);
  work.run(1);
  const std::vector<std::uint64_t> expected = work.hashes();
  const rlim_t bytes = bytes_of_process("VmSize") + (rlim_t{150} << 20);
  const rlimit limit{bytes, bytes};
  if (setrlimit(RLIMIT_AS, &limit) != 0) return 1;
  for (int round = 0; round < 3; ++round) work.run(1000);
  const Index threads = threads_of_process();
  std::printf("%s, ", threads > 1 && threads < 20 ? "some" : "none, or all");
  return compare(work, expected);
}

// clang's OpenMP ends the process if its threads, while they start, take memory that others need.
#if !defined(HEADLANE_TEST_SANITIZED) && !defined(__clang__)
TEST_CASE("a call runs on fewer threads where the system refuses more") {
  if (!can_start_children()) return;
  const ChildResult child = run_child("little memory", {{"HEADLANE_MAX_THREADS", "1000"}});
  CHECK_MESSAGE(child.status == 0, child.output);
  CHECK(child.output == "some, the same bits");
}
#endif

// ---- fork ----

/// Computes in a child of fork(), whose parent has used `threads` threads.
int after_fork(int threads) {
  auto work = std::make_unique<EveryCall>(24);
  work->run(threads);
  const std::vector<std::uint64_t> expected = work->hashes();
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // instead of a deadlock
    work->run(0);
    work->run(3);
    std::thread([&] { work->run(3); }).join();
    const bool serial = num_threads() == 1;
    if (serial != (threads > 1)) std::printf("%d threads in the child, ", num_threads());
    std::exit(compare(*work, expected));  // frees what the library holds
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return 1;
  work->run(3);  // the parent goes on as before
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

#if defined(_OPENMP) && !defined(HEADLANE_TEST_SANITIZED)
TEST_CASE("a child of fork() computes the same bits, on one thread if its parent has used several") {
  if (!can_start_children()) return;
  for (const std::string task : {"fork from 1 thread", "fork from 3 threads"}) {
    const ChildResult child = run_child(task, {{"HEADLANE_NUM_THREADS", "3"}});
    CHECK_MESSAGE(child.status == 0, task, ": ", child.output);
    CHECK_MESSAGE(child.output == "the same bits", task);
  }
}
#endif

// ---- destructors of global objects ----

/// A global object whose destructor computes, if `work` was set.
struct Last {
  std::unique_ptr<EveryCall> work;
  std::vector<std::uint64_t> expected;
  Last() = default;
  Last(const Last&) = delete;
  Last& operator=(const Last&) = delete;
  ~Last() {
    if (!work) return;
    work->run(3);
    work->run(1);
    compare(*work, expected);
    std::fflush(stdout);
  }
} last;

int after_main() {
  last.work = std::make_unique<EveryCall>(24);
  last.work->run(3);
  last.expected = last.work->hashes();
  return 0;
}

TEST_CASE("the destructor of a global object computes the same bits") {
  if (!can_start_children()) return;
  const ChildResult child = run_child("after main");
  CHECK(child.status == 0);
  CHECK(child.output == "the same bits");
}

// ---- scratch memory ----

constexpr Index d_model = 256;

/// Prints the MiB of scratch memory after a layer has processed `rows` rows, and after
/// release_scratch().
int memory_kept(Index rows) {
  RandomState state(1);
  add_attention(state, "", {.d_model = d_model, .heads = 4, .kv_heads = 4, .head_dim = 64}, false);
  const MultiHeadAttention layer(state.dict, "", {.heads = 4});
  const Tensor<3> x({rows / 64, 64, d_model}), y({rows / 64, 64, d_model});
  for_each(x.view, [](float& element) { element = 1; });
  for_each(y.view, [](float& element) { element = 1; });
  const double before = mib_of_process("VmRSS");
  layer.forward(x.view, y.view);
  const double kept = mib_of_process("VmRSS") - before;
  release_scratch();
  std::printf("%d %d", static_cast<int>(kept), static_cast<int>(mib_of_process("VmRSS") - before));
  layer.forward(x.view, y.view);  // works as before
  return 0;
}

#if !defined(HEADLANE_TEST_SANITIZED)
TEST_CASE("scratch memory: large buffers are freed after the call, others by release_scratch()") {
  if (slow_isa() || !can_start_children()) return;
  const auto kept_by = [](const char* task) {
    std::istringstream text(run_child(task).output);
    std::array<int, 2> mib{-1000, -1000};
    text >> mib[0] >> mib[1];
    return mib;
  };
  const auto large = kept_by("memory of 65536 rows"), small = kept_by("memory of 8192 rows");
  MESSAGE("65536 rows keep ", large[0], " MiB and ", large[1], " after release_scratch(), 8192 rows ", small[0],
          " and ", small[1]);
  CHECK(large[0] > -1000);
  CHECK(large[0] < 80);  // 256 MiB were needed
  CHECK(small[0] > 20);  // 8192 × 1024 floats
  CHECK(large[1] < 8);
  CHECK(small[1] > -1000);
  CHECK(small[1] < 8);
}
#endif

const bool registered = [] {
  child_tasks()["max threads"] = [] { return std::printf("%d", max_threads()) < 0 ? 1 : 0; };
  child_tasks()["one processor"] = on_one_processor;
  child_tasks()["very many threads"] = with_very_many;
  child_tasks()["little memory"] = in_little_memory;
  child_tasks()["fork from 1 thread"] = [] { return after_fork(1); };
  child_tasks()["fork from 3 threads"] = [] { return after_fork(3); };
  child_tasks()["after main"] = after_main;
  child_tasks()["memory of 65536 rows"] = [] { return memory_kept(65536); };
  child_tasks()["memory of 8192 rows"] = [] { return memory_kept(8192); };
  return true;
}();

}  // namespace
}  // namespace headlane::test
