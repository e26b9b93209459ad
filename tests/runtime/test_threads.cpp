// Calls from several threads at once and from the caller's own parallel region: the same bits as a
// call alone.
#include "support/attention_case.hpp"
#include "support/process.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace headlane::test {
namespace {

// One problem per operation, with results of its own.
struct Problem {
  explicit Problem(std::uint64_t seed = 1)
      : random(seed),
        a(random_tensor<2>({60, 600}, random)),
        b(random_tensor<2>({600, 90}, random)),
        c({60, 90}),
        y({60, 600}),
        t({.q_heads = 4, .kv_heads = 2, .q_length = 60, .kv_length = 600, .head_dim = 32}, seed) {}

  void run() const {
    gemm(a.view, b.view, c.view);
    softmax(a.view, y.view);
    t.run(causal(540));
  }

  [[nodiscard]] Index differences(const Problem& other) const {
    return different_bits(c.view, other.c.view) + different_bits(y.view, other.y.view) +
           different_bits(t.out.view, other.t.out.view) + different_bits(t.lse.view, other.t.lse.view);
  }

  Random random;
  Tensor<2> a, b, c, y;
  AttentionTensors t;
};

// `callers` problems of one size and different data, each with its result when computed alone.
struct Callers {
  explicit Callers(int callers) {
    for (int i = 0; i < callers; ++i) {
      alone.emplace_back(static_cast<std::uint64_t>(i));
      alone.back().run();
      shared.emplace_back(static_cast<std::uint64_t>(i));
    }
    differing.assign(static_cast<std::size_t>(callers), 0);
  }
  void work(int caller) {
    const auto at = static_cast<std::size_t>(caller);
    for (int round = 0; round < (slow_isa() ? 1 : 5); ++round) {
      shared[at].run();
      differing[at] += shared[at].differences(alone[at]);
    }
  }
  void check() const {
    for (std::size_t i = 0; i < differing.size(); ++i) {
      CHECK_MESSAGE(differing[i] == 0, "caller ", i, ", isa ", isa());
      CHECK(shared[i].differences(alone[i]) == 0);
    }
  }
  std::vector<Problem> alone, shared;
  std::vector<Index> differing;
};

TEST_CASE("several std::threads call at once, each with 1 and with 2 threads of its own") {
  for (const int own : {1, 2}) {
    const ThreadsScope team(own);
    Callers callers(4);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&callers, i] { callers.work(i); });
    for (std::thread& thread : threads) thread.join();
    callers.check();
  }
}

TEST_CASE("threads that come and go") {
  Callers callers(1);
  for (int i = 0; i < (slow_isa() ? 5 : 20); ++i) std::thread([&callers] { callers.work(0); }).join();
  callers.check();
}

#ifdef _OPENMP
TEST_CASE("called from inside the caller's own parallel region") {
  const ThreadsScope team(4);
  for (const int outer : {1, 2, 3, 7}) {
    Callers callers(outer);
#pragma omp parallel num_threads(outer)
    callers.work(omp_get_thread_num());
    callers.check();
  }
}

// The most threads that exist while f() runs, this watcher included.
template <class F>
Index most_threads_during(F f) {
  std::atomic<bool> done{false};
  Index most = 0;
  std::thread watcher([&] {
    while (!done) most = std::max(most, threads_of_process());
  });
  f();
  done = true;
  watcher.join();
  return most;
}

TEST_CASE("a call inside a parallel region starts no threads") {
  const ThreadsScope team(4);
  omp_set_max_active_levels(2);  // nested regions would be possible
  const Problem problem;
  const auto in_region = [&](bool work) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // threads of the tests before may still be ending
    return most_threads_during([&] {
#pragma omp parallel num_threads(2)
      {
#pragma omp master
        for (int i = 0; i < 50; ++i) {
          if (work) problem.run();
          else std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      }
    });
  };
  const Index without = in_region(false), with = in_region(true);
  omp_set_max_active_levels(1);
  CHECK(without >= 3);
  CHECK(with <= without);
}
#endif

TEST_CASE("more threads than work, and changing numbers of threads") {
  const Problem alone;
  alone.run();
  for (const int threads : {16, 1, 7, 2, 64, 3}) {
    const ThreadsScope team(threads);
    const Problem problem;
    problem.run();
    CHECK_MESSAGE(problem.differences(alone) == 0, threads, " threads");
  }
}

}  // namespace
}  // namespace headlane::test
