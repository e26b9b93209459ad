// parallel_for: which thread runs which task.
#include "core/parallel.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace headlane::test {

using namespace internal;
namespace {

constexpr std::array<Order, 2> orders{Order::by_thread, Order::one_by_one};

/// Each waits for all others, so that each thread of a team has begun a task.
class Meeting {
 public:
  explicit Meeting(int threads) : threads_(threads) {}
  void wait() {
    arrived_.fetch_add(1);
    while (arrived_.load() < threads_) std::this_thread::yield();
  }

 private:
  int threads_;
  std::atomic<int> arrived_{0};
};

/// The tasks that each thread ran, in its order; all threads begin one before any goes on.
std::vector<std::vector<Index>> tasks_of_threads(Index tasks, int threads, Order order) {
  std::vector<std::vector<Index>> found(static_cast<std::size_t>(threads));
  Meeting meeting(threads);
  parallel_for(tasks, threads, order, [&](Index task, int thread) {
    std::vector<Index>& own = found[static_cast<std::size_t>(thread)];
    own.push_back(task);
    if (own.size() == 1) meeting.wait();
  });
  return found;
}

}  // namespace

TEST_CASE("each task runs once") {
  for (const Order order : orders)
    for (const int threads : {1, 2, 3, 8, 40})
      for (const Index tasks : {0, 1, 2, 3, 7, 31, 33, 100, 1000}) {
        CAPTURE(threads);
        CAPTURE(tasks);
        std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
        std::atomic<bool> is_thread{true};
        parallel_for(tasks, threads, order, [&](Index task, int thread) {
          ++runs[static_cast<std::size_t>(task)];
          if (thread < 0 || thread >= threads) is_thread = false;
        });
        CHECK(is_thread);
        for (const std::atomic<int>& count : runs) CHECK(count == 1);
      }
}

TEST_CASE("a thread begins with its own tasks") {
  for (const int threads : {2, 3, 8})
    for (const Index tasks : {8, 9, 100}) {
      CAPTURE(threads);
      CAPTURE(tasks);
      const std::vector<std::vector<Index>> found = tasks_of_threads(tasks, threads, Order::by_thread);
      for (int thread = 0; thread < threads; ++thread) {
        const std::vector<Index>& own = found[static_cast<std::size_t>(thread)];
        CHECK(own.front() == thread * tasks / threads);
      }
    }
}

TEST_CASE("one by one, threads take what comes next") {
  const std::vector<std::vector<Index>> found = tasks_of_threads(50, 3, Order::one_by_one);
  Index first = 0;  // of all threads
  for (const std::vector<Index>& own : found) {
    first += own.front();
    for (std::size_t i = 1; i < own.size(); ++i) CHECK(own[i] > own[i - 1]);
  }
  CHECK(first == 0 + 1 + 2);
}

TEST_CASE("a thread takes the tasks of one that is held up") {
  constexpr Index tasks = 20;
  std::atomic<Index> done{0};
  parallel_for(tasks, 2, [&](Index task) {
    if (task == 0)
      while (done < tasks - 1) std::this_thread::yield();
    ++done;
  });
  CHECK(done == tasks);
}

TEST_CASE("an exception skips tasks that no thread has begun") {
  for (const Order order : orders)
    for (const int threads : {1, 2, 5}) {
      CAPTURE(threads);
      std::atomic<Index> runs{0};
      const auto fail = [&](Index) {
        ++runs;
        throw std::runtime_error("a task");
      };
      CHECK_THROWS_WITH_AS(parallel_for(1000, threads, order, fail), "a task", std::runtime_error);
      CHECK(runs <= threads);
    }
}

}  // namespace headlane::test
