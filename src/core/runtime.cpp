// The entries of runtime.hpp. The choice of the instruction set is in dispatch.cpp.
#include <headlane/runtime.hpp>

#include "core/check.hpp"
#include "core/cpu_limits.hpp"
#include "core/dispatch.hpp"
#include "core/parallel.hpp"
#include "kernels/table.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace headlane {

using namespace internal;

namespace {

std::atomic<int> chosen_threads{0};  // 0: the environment's

constexpr int max_settable_threads = 1 << 16;

#ifdef _OPENMP
/// The value of an environment variable; 0 unless it is a number from 1 to max_settable_threads.
int environment_threads(const char* name) noexcept {
  const char* text = std::getenv(name);
  if (text == nullptr) return 0;
  char* end = nullptr;
  const long threads = std::strtol(text, &end, 10);
  return end != text && *end == '\0' && threads > 0 && threads <= max_settable_threads ? static_cast<int>(threads) : 0;
}
#endif

}  // namespace

std::string_view version() noexcept { return HEADLANE_VERSION; }

std::vector<std::string_view> available_isas() {
  std::vector<std::string_view> names;
  for (const kernels::KernelTable* table : available_tables()) names.emplace_back(table->name);
  return names;
}

std::string_view isa() { return active().name; }

std::string_view isa_extension() { return active().extension; }

void set_isa(std::string_view name) { activate(name); }

int max_threads() noexcept {
#ifdef _OPENMP
  static const int environment = environment_threads("HEADLANE_MAX_THREADS");
  return environment > 0 ? environment : processors();
#else
  return 1;
#endif
}

int num_threads() noexcept {
#ifdef _OPENMP
  if (is_serial_child()) return 1;
  static const int environment = environment_threads("HEADLANE_NUM_THREADS");
  const int chosen = chosen_threads.load(std::memory_order_relaxed), own = chosen > 0 ? chosen : environment;
  return std::min(own > 0 ? own : omp_get_max_threads(), max_threads());
#else
  return 1;
#endif
}

void set_num_threads(int threads) {
  require(threads >= 0, "set_num_threads: threads is ", Index{threads}, ", the minimum is 0");
  require(threads <= max_settable_threads, "set_num_threads: threads is ", Index{threads}, ", the most is ",
          Index{max_settable_threads});
  chosen_threads.store(threads, std::memory_order_relaxed);
}

void release_scratch() { free_scratch_of_team(); }

}  // namespace headlane
