// The threads that work for a caller and their memory persist, whatever the sequence of sizes and
// numbers of threads.
#include "support/every_call.hpp"
#include "support/scope.hpp"
#include "support/system_calls.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <thread>

namespace headlane::test {
namespace {

#if defined(HEADLANE_TEST_COUNTS_SYSTEM_CALLS) && defined(_OPENMP)

/// Threads started and blocks requested by some work.
struct Counts {
  long threads = threads_started, blocks = blocks_asked_for;
  [[nodiscard]] Counts since(const Counts& before) const {
    Counts difference;
    difference.threads = threads - before.threads;
    difference.blocks = blocks - before.blocks;
    return difference;
  }
};

/// Sizes for which other numbers of threads are worth while.
std::vector<std::unique_ptr<EveryCall>> works() {
  std::vector<std::unique_ptr<EveryCall>> all;
  for (const Index size : slow_isa() ? std::vector<Index>{3, 20} : std::vector<Index>{1, 7, 24, 60})
    all.push_back(std::make_unique<EveryCall>(size));
  return all;
}

/// Every call in each size with numbers of threads that rise and fall.
void run_all(const std::vector<std::unique_ptr<EveryCall>>& works, int most) {
  for (const auto& work : works)
    for (const int threads : {most, 1, 2, most, 3, most / 2}) work->run(std::max(threads, 1));
}

TEST_CASE("counters count") {
  const Counts before;
  std::thread([] {}).join();
  void* volatile p = std::malloc(1);
  std::free(p);
  const Counts counted = Counts().since(before);
  CHECK(counted.threads == 1);
  CHECK(counted.blocks >= 1);
}

TEST_CASE("a warm call starts no thread and requests no memory, for any sizes and numbers of threads") {
  const auto all = works();
  for (const int most : slow_isa() ? std::vector<int>{4} : std::vector<int>{2, 4, 8, 16}) {
    std::thread([&] {
      run_all(all, most);
      const Counts warm;
      for (int round = 0; round < (slow_isa() ? 1 : 3); ++round) run_all(all, most);
      const Counts counted = Counts().since(warm);
      CHECK_MESSAGE(counted.threads == 0, "up to ", most, " threads");
      CHECK_MESSAGE(counted.blocks == 0, "up to ", most, " threads");
    }).join();
  }
}

TEST_CASE("a thread that gets its first long task late finds its memory there") {
  // One call makes all threads of the team warm, also those that had no task in it.
  for (int round = 0; round < (slow_isa() ? 2 : 30); ++round) {
    std::thread([&] {
      const EveryCall work(24);
      for (const EveryCall::Call& call : work.calls()) {
        call.run(7);
        const Counts warm;
        for (int i = 0; i < 3; ++i) call.run(7);
        const long blocks = Counts().since(warm).blocks;
        CHECK_MESSAGE(blocks == 0, call.name, ", round ", round);
      }
    }).join();
  }
}

TEST_CASE("a team that grows: its new threads get the memory that the others have") {
  for (int round = 0; round < (slow_isa() ? 2 : 30); ++round) {
    std::thread([&] {
      const EveryCall work(24);
      work.run(2);
      for (const EveryCall::Call& call : work.calls()) {
        call.run(7);  // in the first of them the team grows
        const Counts warm;
        for (int i = 0; i < 3; ++i) call.run(7);
        const long blocks = Counts().since(warm).blocks;
        CHECK_MESSAGE(blocks == 0, call.name, ", round ", round);
      }
    }).join();
  }
}

TEST_CASE("several callers: each has its team, and it stays whole") {
  constexpr int callers = 4;
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < callers; ++i)
    threads.emplace_back([&, i] {
      const std::vector<Index> sizes{5, 24};
      const EveryCall small(sizes[0]), large(sizes[1]);
      const auto run = [&] {
        for (const EveryCall* work : {&small, &large, &small})
          for (const int team : {4 + i, 2, 3}) work->run(team);
      };
      run();
      ++ready;
      while (!go) std::this_thread::yield();
      run();
      ++ready;
      while (go) std::this_thread::yield();
    });
  while (ready < callers) std::this_thread::yield();
  const Counts warm;
  ready = 0;
  go = true;
  while (ready < callers) std::this_thread::yield();
  const Counts counted = Counts().since(warm);
  go = false;
  for (std::thread& thread : threads) thread.join();
  CHECK(counted.threads == 0);
  CHECK(counted.blocks == 0);
}

#endif

TEST_CASE("the same bits with any number of threads, in any order") {
  const EveryCall work(24);
  work.run(1);
  const std::vector<std::uint64_t> expected = work.hashes();
  for (const int threads : {16, 1, 7, 2, 3}) {
    work.run(threads);
    const std::vector<std::uint64_t> actual = work.hashes();
    for (std::size_t i = 0; i < actual.size(); ++i)
      CHECK_MESSAGE(actual[i] == expected[i], work.calls()[i].name, ", ", threads, " threads, isa ", isa());
  }
}

}  // namespace
}  // namespace headlane::test
