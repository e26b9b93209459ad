// Threads. The only file that knows OpenMP.
#pragma once

#include "round.hpp"

#include <headlane/index.hpp>
#include <headlane/runtime.hpp>

#include <algorithm>
#include <exception>
#include <type_traits>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace headlane {

/// What OpenMP would use: OMP_NUM_THREADS or the number of cores.
inline int default_threads() noexcept {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

/// Threads worth starting for so many operations and so many elements read or written: none below a grain each, since a
/// parallel region costs some microseconds, more on a shared machine; one inside the caller's own parallel region. An element
/// weighs as many operations as a core does while it comes from the L3 or beyond. At most `asked` threads, if it is not 0.
inline int useful_threads(double operations, double elements, int asked) noexcept {
  constexpr double grain = 6e5, element_weight = 16;
  const double fit = (operations + element_weight * elements) / grain;
  if (fit < 2) return 1;
#ifdef _OPENMP
  if (omp_in_parallel()) return 1;
#endif
  const int limit = asked > 0 ? asked : num_threads();
  return fit >= limit ? limit : static_cast<int>(fit);
}

/// f(task) or f(task, thread) for task = 0 … tasks-1, each once, in any order, on up to `threads` threads, which count from 0. What a task
/// throws (std::bad_alloc) is thrown here when all have ended. Tasks are handed out one by one: they may differ in length, and so may cores.
template <class F>
void parallel_for(Index tasks, int threads, const F& f) {
  const auto run = [&](Index task, int thread) {
    if constexpr (std::is_invocable_v<const F&, Index, int>) f(task, thread);
    else f(task), static_cast<void>(thread);
  };
#ifdef _OPENMP
  const int team = static_cast<int>(std::min<Index>(threads, tasks));
  if (team <= 1) {
    for (Index task = 0; task < tasks; ++task) run(task, 0);
    return;
  }
  std::exception_ptr error;
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
  for (Index task = 0; task < tasks; ++task) {
    try {
      run(task, omp_get_thread_num());
    } catch (...) {
#pragma omp critical(headlane_error)
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
#else
  static_cast<void>(threads);
  for (Index task = 0; task < tasks; ++task) run(task, 0);
#endif
}

/// f(first, end) for parts of `count`, which begin at multiples of `unit`: one on a single thread, otherwise some for each thread, so that they
/// end at about the same time.
template <class F>
void parallel_parts(Index count, Index unit, int threads, const F& f) {
  constexpr Index of_thread = 8;
  const Index units = ceil_div(count, unit), parts = threads == 1 ? 1 : std::min(units, of_thread * threads);
  parallel_for(parts, threads,
               [&](Index part) { f(part * units / parts * unit, std::min((part + 1) * units / parts * unit, count)); });
}

}  // namespace headlane
