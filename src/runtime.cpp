// Version, instruction set and threads: see the header. The choice of the ISA is in dispatch.cpp.
#include <headlane/runtime.hpp>

#include "check.hpp"
#include "dispatch.hpp"
#include "kernels/table.hpp"
#include "parallel.hpp"

#include <atomic>
#include <cstdlib>

namespace headlane {
namespace {

std::atomic<int> chosen_threads{0};  // 0: the environment's

/// HEADLANE_NUM_THREADS, 0 if it is not set or not a positive number.
int environment_threads() noexcept {
  const char* text = std::getenv("HEADLANE_NUM_THREADS");
  if (text == nullptr) return 0;
  char* end = nullptr;
  const long threads = std::strtol(text, &end, 10);
  constexpr long most = 1 << 20;
  return end != text && *end == '\0' && threads > 0 && threads <= most ? static_cast<int>(threads) : 0;
}

}  // namespace

std::string_view version() noexcept { return HEADLANE_VERSION; }

std::vector<std::string_view> available_isas() {
  std::vector<std::string_view> names;
  for (const kernels::KernelTable* table : available_tables()) names.emplace_back(table->name);
  return names;
}

std::string_view isa() { return active().name; }

void set_isa(std::string_view name) { activate(name); }

int num_threads() noexcept {
  const int chosen = chosen_threads.load(std::memory_order_relaxed);
  if (chosen > 0) return chosen;
  static const int environment = environment_threads();
  return environment > 0 ? environment : default_threads();
}

void set_num_threads(int threads) {
  require(threads >= 0, "set_num_threads: threads is ", threads, ", the least is 0");
  chosen_threads.store(threads, std::memory_order_relaxed);
}

}  // namespace headlane
