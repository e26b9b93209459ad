// The time of an empty parallel region with one task per thread: the cost of threads in a call.
// With more threads than processors (HEADLANE_MAX_THREADS=64) this measures the operating system.
#include "core/parallel.hpp"

#include <headlane/runtime.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

namespace {

/// The median over the rounds, in microseconds.
double region(int threads) {
  using Clock = std::chrono::steady_clock;
  const int regions = threads > headlane::max_threads() / 2 && threads > 2 ? 200 : 2000;
  constexpr int rounds = 15;
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < regions; ++i) headlane::internal::parallel_for(threads, threads, [](headlane::Index) {});
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() / regions);
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[rounds / 2];
}

}  // namespace

int main() {
  for (const int threads : {1, 2, 4, 8, 16, 64}) std::printf("%2d threads %8.2f us\n", threads, region(threads));
}
