// The library in the processes that it lives in: with foreign floating-point states, few processors and
// little memory, in a child of fork(), behind the end of main(), and with its scratch memory given back.
#include "core/cpu_limits.hpp"
#include "support/child.hpp"
#include "support/every_call.hpp"
#include "support/floating_point_state.hpp"
#include "support/sanitized.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sched.h>
#include <thread>

#include <sys/resource.h>

namespace headlane::test {

using namespace internal;
namespace {

Index threads_of_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

/// 0 if work gives these hashes.
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

bool can_start_children() { return run_child("nothing").status == 0; }

// ---- floating-point state ----

#if defined(HEADLANE_TEST_HAS_STATE)

/// f() in a thread that starts in this state, as do the threads that it starts; whether the state is left as it was.
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

TEST_CASE("no floating-point state of the caller or of its threads changes a bit") {
  for (const float magnitude : {1.0f, 1e-20f}) {  // the second: products and variances are denormal
    const EveryCall work(24, magnitude);
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
          set_state(s);  // the team keeps the one that it started in
          work.run(threads);
          kept = state() == s;
          set_state(all_states.front());
        });
        CHECK(kept);
        check("set behind", s, threads);
        in_state(s, [&] {
          work.run(threads);
          set_state(all_states.front());  // and the other way round
          work.run(threads);
        });
        check("set in the team alone", s, threads);
      }
  }
}

#if defined(__x86_64__)
TEST_CASE("exception flags stay as they were, and unmasked exceptions do not trap") {
  const EveryCall work(7, 1e-20f);
  const unsigned before = _mm_getcsr();
  for (const unsigned wanted : {0x1f80u, 0x1f80u | 0x3f, 0x1f80u & ~0x1f80u}) {  // none, all raised, all unmasked
    for (const EveryCall::Call& call : work.calls()) {
      _mm_setcsr(wanted);
      call.run(2);
      const unsigned after = _mm_getcsr();
      _mm_setcsr(before);
      CHECK_MESSAGE(after == wanted, call.name);
    }
  }
}
#endif
#endif

// ---- processors ----

/// A tree of files below a folder that is removed again.
class Files {
 public:
  Files() : root_(std::filesystem::temp_directory_path() / ("headlane-" + std::to_string(getpid()))) {}
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  ~Files() { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  [[nodiscard]] std::string root() const { return root_.string(); }

 private:
  std::filesystem::path root_;
};

struct Group {
  const char* what;
  const char* self;  ///< /proc/self/cgroup
  std::vector<std::pair<const char*, const char*>> files;
  int quota;
};

TEST_CASE("the CPU quota of the control group, version 1 and 2") {
  const std::vector<Group> groups{
      {"none", "", {}, 0},
      {"no file", "0::/\n", {}, 0},
      {"no limit", "0::/\n", {{"sys/fs/cgroup/cpu.max", "max 100000\n"}}, 0},
      {"of a container", "0::/\n", {{"sys/fs/cgroup/cpu.max", "300000 100000\n"}}, 3},
      {"half a processor", "0::/\n", {{"sys/fs/cgroup/cpu.max", "50000 100000\n"}}, 1},
      {"two and a half", "0::/\n", {{"sys/fs/cgroup/cpu.max", "250000 100000\n"}}, 3},
      {"of a group", "0::/a/b\n", {{"sys/fs/cgroup/a/b/cpu.max", "400000 100000\n"}}, 4},
      {"of the group above",
       "0::/a/b\n",
       {{"sys/fs/cgroup/a/b/cpu.max", "max 100000\n"}, {"sys/fs/cgroup/a/cpu.max", "200000 100000\n"}},
       2},
      {"the least of both",
       "0::/a/b\n",
       {{"sys/fs/cgroup/a/b/cpu.max", "100000 100000\n"}, {"sys/fs/cgroup/a/cpu.max", "200000 100000\n"}},
       1},
      {"version 1",
       "3:cpuset:/x\n2:cpu,cpuacct:/x\n1:name=systemd:/x\n0::/\n",
       {{"sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "500000\n"},
        {"sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n"}},
       5},
      {"version 1, mounted as cpu",
       "2:cpu,cpuacct:/docker/1\n",
       {{"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n"}, {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}},
       2},
      {"version 1, no limit",
       "2:cpu:/\n",
       {{"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"}, {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}},
       0},
      {"a period of 0", "0::/\n", {{"sys/fs/cgroup/cpu.max", "300000 0\n"}}, 0},
      {"not a number", "0::/\n", {{"sys/fs/cgroup/cpu.max", "many\n"}}, 0},
      {"damaged", "::::\n0:\n\n0::nowhere\n", {{"sys/fs/cgroup/cpu.max", "700000 100000\n"}}, 7},
      {"beyond all numbers", "0::/\n", {{"sys/fs/cgroup/cpu.max", "1e300 1\n"}}, 1 << 20}};
  for (const Group& group : groups) {
    const Files files;
    files.write("proc/self/cgroup", group.self);
    for (const auto& [path, text] : group.files) files.write(path, text);
    CHECK_MESSAGE(cgroup_quota(files.root().c_str()) == group.quota, group.what);
  }
}

/// Where the process may use one processor.
int on_one_processor() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(0, &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0) return 1;
  std::printf("%d %d", max_threads(), num_threads());
  return 0;
}

/// The threads of the process after a call that was told to use very many.
int with_very_many() {
  const EveryCall work(24);
  work.run(1);
  const std::vector<std::uint64_t> expected = work.hashes();
  work.run(60000);
  std::printf("%d ", static_cast<int>(threads_of_process()) <= max_threads() ? 1 : 0);
  return compare(work, expected);
}

TEST_CASE("no more threads than the process may use processors, whatever is asked for") {
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

/// Threads of 8 MiB of stack each, with room for some of them.
int in_little_memory() {
  const EveryCall work(60);
  work.run(1);
  const std::vector<std::uint64_t> expected = work.hashes();
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  const rlim_t bytes = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{150} << 20);
  const rlimit limit{bytes, bytes};
  if (setrlimit(RLIMIT_AS, &limit) != 0) return 1;
  for (int round = 0; round < 3; ++round) work.run(1000);
  const Index threads = threads_of_process();
  std::printf("%s, ", threads > 1 && threads < 20 ? "some" : "none, or all");
  return compare(work, expected);
}

#if !defined(HEADLANE_TEST_SANITIZED)
TEST_CASE("where the system refuses threads, a call runs on those that there are") {
  if (!can_start_children()) return;
  const ChildResult child = run_child("little memory", {{"HEADLANE_MAX_THREADS", "1000"}});
  CHECK_MESSAGE(child.status == 0, child.output);
  CHECK(child.output == "some, the same bits");
}
#endif

// ---- fork ----

/// What a child of fork() computes; `threads`: those that its parent has used.
int after_fork(int threads) {
  auto work = std::make_unique<EveryCall>(24);
  work->run(threads);
  const std::vector<std::uint64_t> expected = work->hashes();
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // instead of waiting for ever
    work->run(0);
    work->run(3);
    std::thread([&] { work->run(3); }).join();
    const bool serial = num_threads() == 1;
    if (serial != (threads > 1)) std::printf("%d threads in the child, ", num_threads());
    const int status = compare(*work, expected);
    std::fflush(stdout);
    _exit(status);
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

// ---- the end of the process ----

/// A global object that computes in its destructor, if it was told to.
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

int behind_main() {
  last.work = std::make_unique<EveryCall>(24);
  last.work->run(3);
  last.expected = last.work->hashes();
  return 0;
}

TEST_CASE("a global object's destructor computes, as main() has") {
  if (!can_start_children()) return;
  const ChildResult child = run_child("behind main");
  CHECK(child.status == 0);
  CHECK(child.output == "the same bits");
}

// ---- scratch memory ----

double resident_mib() {
  std::ifstream file("/proc/self/statm");
  double pages = 0;
  file >> pages >> pages;
  return pages * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

constexpr Index d_model = 256;

/// MiB that stay after a layer has run over `rows` rows, and after release_scratch().
int memory_kept(Index rows) {
  RandomState state(1);
  add_attention(state, "", {.d_model = d_model, .heads = 4, .kv_heads = 4, .head_dim = 64}, false);
  const MultiHeadAttention layer(state.dict, "", {.heads = 4});
  const Tensor<3> x({rows / 64, 64, d_model}), y({rows / 64, 64, d_model});
  for_each(x.view, [](float& element) { element = 1; });
  for_each(y.view, [](float& element) { element = 1; });
  const double before = resident_mib();
  layer.forward(x.view, y.view);
  const double kept = resident_mib() - before;
  release_scratch();
  std::printf("%d %d", static_cast<int>(kept), static_cast<int>(resident_mib() - before));
  layer.forward(x.view, y.view);  // works as before
  return 0;
}

#if !defined(HEADLANE_TEST_SANITIZED)
TEST_CASE("scratch memory: what is large does not stay, the rest goes when it is released") {
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
  child_tasks()["nothing"] = [] { return 0; };
  child_tasks()["max threads"] = [] { return std::printf("%d", max_threads()) < 0 ? 1 : 0; };
  child_tasks()["one processor"] = on_one_processor;
  child_tasks()["very many threads"] = with_very_many;
  child_tasks()["little memory"] = in_little_memory;
  child_tasks()["fork from 1 thread"] = [] { return after_fork(1); };
  child_tasks()["fork from 3 threads"] = [] { return after_fork(3); };
  child_tasks()["behind main"] = behind_main;
  child_tasks()["memory of 65536 rows"] = [] { return memory_kept(65536); };
  child_tasks()["memory of 8192 rows"] = [] { return memory_kept(8192); };
  return true;
}();

}  // namespace
}  // namespace headlane::test
