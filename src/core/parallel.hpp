// Parallel loops: tasks that a team of threads shares. The threads themselves, OpenMP's, are in
// parallel.cpp.
#pragma once

#include "core/round.hpp"

#include <headlane/index.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <type_traits>

namespace headlane::internal {

/// The number of threads worth using for so many operations and so many elements read or written:
/// each has at least a grain of work, since a parallel region costs some microseconds, more on a
/// shared machine. An element counts as many operations as a core does while it comes from the L3
/// or beyond. At most `asked` threads if it is not 0, otherwise num_threads(), and never more than
/// max_threads(); one inside the caller's own parallel region.
int useful_threads(double operations, double elements, int asked) noexcept;

/// Operations of each row by itself, and of each of its elements.
struct RowCost {
  double row, element;
};
/// The same for `elements` elements in rows of `length`, none of which is 0.
inline int useful_threads(const RowCost& cost, Index elements, Index length, int asked) noexcept {
  const Index rows = elements / length;
  return useful_threads(cost.row * static_cast<double>(rows) + cost.element * static_cast<double>(elements), 0, asked);
}

/// Calls work(context, thread) for thread = 0 … threads - 1, or for fewer where the system refuses
/// more threads; thread 0, the calling one, always works. Allocates nothing and starts no thread
/// once the calling thread has used as many before.
void run_team(int threads, void (*work)(void* context, int thread) noexcept, void* context);

/// True in a child of fork() whose parent had a team: a call runs on one thread there.
bool is_serial_child() noexcept;

/// For release_scratch(): frees the scratch memory of the calling thread's team.
void free_scratch_of_team();

/// Which tasks a thread of a team takes first: some that follow each other, the same in every call,
/// so that its caches have some of their data; or whichever comes next.
enum class Order { by_thread, one_by_one };

/// Tasks that a team shares, in ranges. Threads take them one by one, since tasks may differ in
/// length, and cores in speed: those of its own range first, then what others have not begun.
template <class F>
class TaskQueue {
 public:
  TaskQueue(const F& f, Index tasks, int team, Order order)
      : f_(f), tasks_(tasks), team_(team), ranges_(order == Order::by_thread ? std::min(team, max_ranges) : 1) {
    for (int i = 0; i < ranges_; ++i) next(i).store(first_of(i), std::memory_order_relaxed);
  }

  static void run(const F& f, Index task, int thread) {
    if constexpr (std::is_invocable_v<const F&, Index, int>) f(task, thread);
    else f(task), static_cast<void>(thread);
  }
  /// For run_team(): takes tasks until none is left.
  static void work(void* queue, int thread) noexcept { static_cast<TaskQueue*>(queue)->take(thread); }
  /// Rethrows the first exception. Called when all threads have ended.
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  /// In a larger team neighbours, which are likely to share a cache, share a range.
  static constexpr int max_ranges = 32;

  /// The task of a range that is begun next. With a cache line for each, a region of two threads
  /// took 1.15 instead of 0.95 µs (Emerald Rapids).
  [[nodiscard]] std::atomic<Index>& next(int range) { return next_[static_cast<std::size_t>(range)]; }
  [[nodiscard]] Index first_of(int i) const { return i * tasks_ / ranges_; }

  void take(int thread) noexcept {
    const int own = static_cast<int>(static_cast<Index>(thread) * ranges_ / team_);
    try {
      take_from(own, thread);
      for (int i = 1; i < ranges_; ++i) {
        const int other = (own + i) % ranges_;
        if (next(other).load(std::memory_order_relaxed) < first_of(other + 1)) take_from(other, thread);
      }
    } catch (...) {
      if (!failed_.exchange(true)) error_ = std::current_exception();
      for (int i = 0; i < ranges_; ++i) next(i).store(tasks_, std::memory_order_relaxed);
    }
  }
  void take_from(int i, int thread) {
    const Index end = first_of(i + 1);
    for (Index task = 0; (task = next(i).fetch_add(1, std::memory_order_relaxed)) < end;) run(f_, task, thread);
  }

  const F& f_;
  Index tasks_;
  int team_, ranges_;
  std::array<std::atomic<Index>, max_ranges> next_{};
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
};

/// Calls f(task) or f(task, thread) for task = 0 … tasks - 1, each once, in any order, on up to
/// `threads` threads, numbered from 0. An exception of a task (std::bad_alloc) is rethrown when all
/// threads have ended; tasks that no thread has begun by then are skipped. Where tasks get shorter,
/// threads that take them one by one end at about the same time.
template <class F>
void parallel_for(Index tasks, int threads, Order order, const F& f) {
  const int team = static_cast<int>(std::min<Index>(threads, tasks));
  if (team <= 1) {
    for (Index task = 0; task < tasks; ++task) TaskQueue<F>::run(f, task, 0);
    return;
  }
  TaskQueue<F> queue(f, tasks, team, order);
  run_team(team, TaskQueue<F>::work, &queue);
  queue.rethrow();
}
template <class F>
void parallel_for(Index tasks, int threads, const F& f) {
  parallel_for(tasks, threads, Order::by_thread, f);
}

/// Calls f(first, end) for parts of `count` that begin at multiples of `unit`: one part on a single
/// thread, otherwise several for each thread, so that threads end at about the same time.
template <class F>
void parallel_parts(Index count, Index unit, int threads, const F& f) {
  constexpr Index of_thread = 8;
  const Index units = ceil_div(count, unit), parts = threads == 1 ? 1 : std::min(units, of_thread * threads);
  parallel_for(parts, threads,
               [&](Index part) { f(part * units / parts * unit, std::min((part + 1) * units / parts * unit, count)); });
}

}  // namespace headlane::internal
