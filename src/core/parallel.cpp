// The only file that opens parallel regions.
//
// libgomp ends the surplus threads when a region has fewer than the one before on the same thread,
// and starts new ones, with cold scratch memory, for the next larger one. So each calling thread
// has a team that only grows: a region is always opened for the whole team, and surplus threads
// return at once.
#include "core/parallel.hpp"

#include "core/call_scope.hpp"
#include "core/cpu_limits.hpp"

#include <headlane/runtime.hpp>

#include <array>
#include <pthread.h>

#ifdef _OPENMP
#include <dlfcn.h>

#include <omp.h>
// They are in a library of their own before glibc 2.34, and may be missing in a static program.
#pragma weak dladdr
#pragma weak dlopen
#endif

namespace headlane::internal {
namespace {

#ifdef _OPENMP

/// The team of a calling thread, which is one of it.
struct Team {
  int more;      // threads beside the calling one
  bool is_full;  // the system refused another thread
  TaskScratch scratch;
};
constinit thread_local Team own_team{};

/// True in a child of fork() whose parent had a team: its threads do not exist there, but OpenMP
/// waits for them.
constinit std::atomic<bool> serial_child{false};

/// The number of threads by which a team grows at a time.
constexpr int max_new_threads = 1024;

/// The number of threads, of `count`, that can be started now. libgomp ends the process when it
/// cannot start one, so this tries before.
int startable(int count) {
  std::array<pthread_t, max_new_threads> threads{};
  std::atomic<bool> open{false};
  const auto wait = [](void* gate) -> void* {
    static_cast<std::atomic<bool>*>(gate)->wait(false);
    return nullptr;
  };
  int started = 0;
  while (started < count && pthread_create(&threads[static_cast<std::size_t>(started)], nullptr, wait, &open) == 0)
    ++started;
  open = true;
  open.notify_all();
  for (int i = 0; i < started; ++i) pthread_join(threads[static_cast<std::size_t>(i)], nullptr);
  return started;
}

/// Idle threads wait in the code of the OpenMP runtime: if a plugin brought it into the process, it
/// stays loaded when the plugin is closed.
void keep_runtime_loaded() {
  Dl_info runtime{};
  if (dladdr == nullptr || dlopen == nullptr) return;
  if (dladdr(reinterpret_cast<const void*>(&omp_get_max_threads), &runtime) != 0)
    dlopen(runtime.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

/// The size of the calling thread's team, grown to `threads` if possible.
int grown_team(Team& team, int threads) {
  const int wanted = std::min(threads - 1 - team.more, max_new_threads);
  if (wanted <= 0 || team.is_full) return team.more + 1;
  static const bool prepared = [] {
    prepare_scratch();
    keep_runtime_loaded();
    return pthread_atfork(nullptr, nullptr, [] { serial_child = true; }) == 0;
  }();
  static_cast<void>(prepared);
  const int can = startable(wanted);
  team.is_full = can < wanted;
  team.more += team.is_full ? can / 2 : can;                  // the rest is for the memory that they compute in
  team.scratch.grown.store(true, std::memory_order_relaxed);  // the new threads have none yet
  return team.more + 1;
}

/// Opens a region for the whole team; OMP_DYNAMIC would change its size.
template <class F>
void open_region(int size, const F& f) {
  const int dynamic = omp_get_dynamic();
  if (dynamic != 0) omp_set_dynamic(0);
#pragma omp parallel num_threads(size)
  f(omp_get_thread_num());
  if (dynamic != 0) omp_set_dynamic(dynamic);
}

#endif

}  // namespace

#ifdef _OPENMP

bool is_serial_child() noexcept { return serial_child.load(std::memory_order_relaxed); }

void run_team(int threads, void (*work)(void* context, int thread) noexcept, void* context) {
  Team& team = own_team;  // the calling thread's, in all of them
  const int size = grown_team(team, threads);
  if (size == 1) return work(context, 0);
  open_region(size, [&](int thread) {
    if (thread >= threads) return;
    const CallScope call;
    const TaskScope tasks(team.scratch);
    work(context, thread);
  });
  if (!team.scratch.grown.load(std::memory_order_relaxed)) return;
  team.scratch.grown.store(false, std::memory_order_relaxed);
  open_region(size, [&](int thread) {
    if (thread == 0) reserve_scratch_later(team.scratch);  // its buffers may be in use
    else reserve_scratch(team.scratch);
  });
}

void free_scratch_of_team() {
  Team& team = own_team;
  for (std::atomic<Index>& floats : team.scratch.floats) floats = 0;
  if (team.more == 0 || is_serial_child() || omp_in_parallel() != 0) return free_scratch();
  open_region(team.more + 1, [](int) { free_scratch(); });
}

#else

bool is_serial_child() noexcept { return false; }

void run_team(int, void (*work)(void* context, int thread) noexcept, void* context) { work(context, 0); }

void free_scratch_of_team() { free_scratch(); }

#endif

int useful_threads(double operations, double elements, int asked) noexcept {
  constexpr double grain = 6e5, element_weight = 16;
  const double fit = (operations + element_weight * elements) / grain;
  if (fit < 2) return 1;
#ifdef _OPENMP
  if (is_serial_child() || omp_in_parallel() != 0) return 1;
#endif
  const int limit = asked > 0 ? std::min(asked, max_threads()) : num_threads();
  return fit >= limit ? limit : static_cast<int>(fit);
}

}  // namespace headlane::internal
