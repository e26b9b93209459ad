// The doctest runner. HEADLANE_ISA selects what is tested, as for every program; with a name that
// this machine does not have, ctest skips the test. HEADLANE_TEST_VERBOSE=1 prints where the
// largest errors were.
#define DOCTEST_CONFIG_IMPLEMENT
#include "support/child.hpp"
#include "support/tolerance.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr int skip = 77;

void print_worst_ratios() {
  for (const auto& [op, worst] : headlane::test::worst_ratios()) {
    std::printf("%-24s %9td comparisons, worst error / bound %.3f\n", op.c_str(), worst.comparisons, worst.ratio);
    if (std::getenv("HEADLANE_TEST_VERBOSE") != nullptr) std::printf("    %s\n", worst.where.c_str());
  }
  for (const auto& [digits, error] : headlane::test::worst_errors_of_attention())
    std::printf("attention, keys of %d digits: |error| at most %.2f eps * sum p|v|\n", digits, error);
}

/// Tests use more threads than the machine has processors.
constexpr const char* most_threads = "64";

}  // namespace

int main(int argc, char** argv) {
  if (const char* task = std::getenv(headlane::test::child_variable)) return headlane::test::child_tasks().at(task)();
  setenv("HEADLANE_MAX_THREADS", most_threads, 0);
  if (const char* wanted = std::getenv("HEADLANE_ISA")) {
    const auto available = headlane::available_isas();
    if (std::find(available.begin(), available.end(), wanted) == available.end()) {
      std::printf("isa %s is not available here\n", wanted);
      return skip;
    }
  }
  std::printf("isa %s, %d threads\n", std::string(headlane::isa()).c_str(), headlane::num_threads());
  doctest::Context context(argc, argv);
  const int status = context.run();
  print_worst_ratios();
  return status;
}
