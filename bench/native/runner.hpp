// Registers the cases with Google Benchmark: one benchmark for each operation × size × {naive,
// instruction set} × threads.
#pragma once

#include "cases.hpp"

#include <string>
#include <vector>

namespace bench {

struct Plan {
  std::vector<Case> cases;
  std::vector<std::string> kinds;  ///< "naive" and instruction sets
  std::vector<int> threads;
  double seconds;  ///< minimum for each repetition
  int repetitions;
};

/// `plan` must live until the benchmarks have run.
void register_benchmarks(const Plan& plan);

/// Whether a benchmark threw.
bool anything_failed();

}  // namespace bench
