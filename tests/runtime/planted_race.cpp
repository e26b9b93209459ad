// Two threads write to one variable without synchronization: in std::threads, in an OpenMP region,
// or in tasks of parallel_for. ThreadSanitizer must report each; otherwise it would miss races of
// the library as well.
#include "core/parallel.hpp"

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>

namespace {

long shared = 0;  // what the threads race for
std::atomic<int> arrived{0};

// Waits for the other thread first, with relaxed atomics, which order nothing. Writes many times,
// since ThreadSanitizer can miss two accesses that happen at the same time.
void race() {
  arrived.fetch_add(1, std::memory_order_relaxed);
  while (arrived.load(std::memory_order_relaxed) < 2) std::this_thread::yield();
  for (int i = 0; i < 100; ++i) {
    shared = shared + 1;
    std::this_thread::yield();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string way = argc == 2 ? argv[1] : "";
  if (way == "std_thread") {
    std::thread other(race);
    race();
    other.join();
  } else if (way == "openmp") {
#pragma omp parallel num_threads(2)
    race();
  } else if (way == "parallel_for") {
    headlane::internal::parallel_for(2, 2, [](headlane::Index) { race(); });
  } else {
    std::printf("usage: planted_race std_thread | openmp | parallel_for\n");
    return 2;
  }
  std::printf("%ld\n", shared);
}
