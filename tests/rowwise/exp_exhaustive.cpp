// All 2^32 floats through exp, log and the activations of each instruction set: the largest error
// in ULP and where, its share of the stated bound, and a hash of all results, which must be the
// same everywhere. Fails beyond a bound. Takes minutes: not part of ctest. Usage: exp_exhaustive
// [isa ...]
#include "core/dispatch.hpp"
#include "kernels/table.hpp"
#include "support/activation_case.hpp"
#include "support/data.hpp"
#include "support/hash.hpp"
#include "support/ulp.hpp"

#include <headlane/runtime.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>

namespace headlane::test {
namespace {

constexpr std::uint64_t all_floats = std::uint64_t{1} << 32;
constexpr std::uint64_t slice = std::uint64_t{1} << 20;
constexpr std::size_t slices = all_floats / slice;

struct Result {
  double worst = 0, worst_share = 0;
  float at = 0;
  std::uint64_t wrongly_rounded = 0;
  std::uint64_t hash = 0;
};

// Measures one slice; the ISA in use is the same for all threads.
template <class Kernel, class Error>
Result measure_slice(Kernel kernel, Error error_of, std::uint64_t first, std::vector<float>& x, std::vector<float>& y) {
  Result result;
  for (std::uint64_t i = 0; i < slice; ++i) x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(first + i));
  kernel(x.data(), y.data(), static_cast<Index>(slice));
  Hash hash;
  for (std::uint64_t i = 0; i < slice; ++i) {
    hash.add(y[i]);
    const auto [error, limit] = error_of(x[i], y[i]);
    if (error > 0) result.worst_share = std::max(result.worst_share, error / limit);
    result.wrongly_rounded += error <= 0.5 ? 0 : 1;
    if (error > result.worst) {
      result.worst = error;
      result.at = x[i];
    }
  }
  result.hash = hash.value();
  return result;
}

/// True if all errors are within the bound.
template <class Kernel, class Error>
bool measure(const char* name, Kernel kernel, Error error_of) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<Result> results(slices);
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> done{0};
  const auto work = [&] {
    std::vector<float> x(slice), y(slice);
    for (std::size_t i = next++; i < slices; i = next++) {
      results[i] = measure_slice(kernel, error_of, i * slice, x, y);
      if (++done % 64 == 0) std::fprintf(stderr, "\r%s %zu %%", name, 100 * done / slices);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();

  Result total;
  Hash hash;
  for (const Result& result : results) {
    hash.add(result.hash);
    total.wrongly_rounded += result.wrongly_rounded;
    total.worst_share = std::max(total.worst_share, result.worst_share);
    if (result.worst <= total.worst) continue;
    total.worst = result.worst;
    total.at = result.at;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf(
      "\r%-9s %s: at most %.6f ULP, at %a, %.3f of the bound; %llu of 2^32 not correctly rounded; hash %016llx; %.0f "
      "s\n",
      std::string(isa()).c_str(), name, total.worst, static_cast<double>(total.at), total.worst_share,
      static_cast<unsigned long long>(total.wrongly_rounded), static_cast<unsigned long long>(hash.value()),
      seconds.count());
  std::fflush(stdout);
  return total.worst_share <= 1;
}

}  // namespace
}  // namespace headlane::test

int main(int argc, char** argv) try {
  std::vector<std::string> names(argv + 1, argv + argc);
  if (names.empty()) {
    for (const auto name : headlane::available_isas()) names.emplace_back(name);
  }
  bool within = true;
  for (const std::string& name : names) {
    headlane::set_isa(name);
    using namespace headlane::test;
    within &= measure("exp", headlane::internal::active().exp,
                      [](float x, float y) { return std::pair(ulp_error(y, std::exp(double{x})), 1.0); });
    within &= measure("log", headlane::internal::active().log,
                      [](float x, float y) { return std::pair(ulp_error(y, std::log(double{x})), 1.0); });
    for (const ActivationCase& one : activation_cases) {
      const auto kernel = [&](const float* x, float* y, headlane::Index n) {
        headlane::internal::active().activate(one.activation, x, y, n);
      };
      within &= measure(one.name, kernel,
                        [&](float x, float y) { return std::pair(activation_error(one, x, y), one.limit(double{x})); });
    }
  }
  return within ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
