#include "runner.hpp"

#include "table.hpp"
#include "text.hpp"

#include <benchmark/benchmark.h>
#include <headlane/runtime.hpp>

#include <algorithm>
#include <exception>

namespace bench {

namespace {

bool failed = false;

// Holds the buffers of one case at a time: benchmarks run in the order of their registration.
const Work& work_of(const Case& which) {
  static const Case* current = nullptr;
  static Work work;
  if (current != &which) {
    work = {};
    work = which.prepare();
    current = &which;
  }
  return work;
}

void time_loop(benchmark::State& state, const Case& which, const std::string& kind, int threads) {
  const Work& work = work_of(which);
  const bool naive = kind == "naive";
  if (!naive) {
    headlane::set_isa(kind);
    headlane::set_num_threads(threads);
  }
  // The limit is measured before and after: it may change while something is timed.
  const std::string_view yardstick = naive ? "scalar" : std::string_view(kind);
  const double before = work.limit(yardstick, threads);
  if (naive) {
    for (auto _ : state) work.naive(threads);
  } else {
    for (auto _ : state) work.library();
  }
  const double after = work.limit(yardstick, threads);
  state.counters["rate"] = benchmark::Counter(which.amount, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["limit"] = std::max(before, after);
}

void run(benchmark::State& state, const Case& which, const std::string& kind, int threads) {
  status(figure_name(which.name(), kind, threads));
  try {
    time_loop(state, which, kind, threads);
  } catch (const std::exception& error) {
    failed = true;
    status("");
    std::fprintf(stderr, "%s: %s\n", figure_name(which.name(), kind, threads).c_str(), error.what());
    state.SkipWithError(error.what());
  }
}

// Repetitions: one for slow code, whose figure need not be precise; 0 to skip it.
int repetitions_of(const Plan& plan, const Case& which, const std::string& kind) {
  const bool naive = kind == "naive";
  const bool slow = naive || kind == "scalar" || kind == "portable";
  if (naive && (!which.naive || which.flops > 3e9)) return 0;
  const double seconds = which.flops / (naive ? 1e9 : slow ? 8e9 : 8e10);
  if (slow && seconds > 0.1) return 1;
  return seconds > 0.5 ? std::min(3, plan.repetitions) : plan.repetitions;
}

}  // namespace

void register_benchmarks(const Plan& plan) {
  for (const Case& which : plan.cases) {
    // One repetition of everything, then the next of everything: a moment's load from another
    // tenant affects all columns alike, and the median drops it.
    for (int repetition = 0; repetition < plan.repetitions; ++repetition) {
      for (const int threads : plan.threads) {
        for (const std::string& kind : plan.kinds) {
          if (repetition >= repetitions_of(plan, which, kind)) continue;
          benchmark::RegisterBenchmark(
              figure_name(which.name(), kind, threads).c_str(),
              [&which, &kind, threads](benchmark::State& state) { run(state, which, kind, threads); })
              ->UseRealTime()
              ->Unit(benchmark::kMicrosecond)
              ->MinTime(plan.seconds);
        }
      }
    }
  }
}

bool anything_failed() { return failed; }

}  // namespace bench
