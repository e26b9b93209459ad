// The choice of the instruction set. A row for each one, fastest first: its tables, the CPU
// features that it requires, no fewer than the flags in cmake/isa.cmake, and the extensions of the
// second and the third table.
#include "core/dispatch.hpp"

#include "core/check.hpp"
#include "kernels/table.hpp"

#include <atomic>
#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace headlane::internal {
namespace kernels {
extern const KernelTable table_avx512[3], table_avx2[3], table_neon[3], table_scalar[3], table_portable[3];
}

namespace {

using kernels::KernelTable;

struct Row {
  const KernelTable* tables;
  bool (*runs_here)();
  bool (*has_integers)();  // the extension for products of 8-bit integers
  bool (*has_bfloat)();    // that for bfloat16, beside it
};

[[maybe_unused]] bool always() { return true; }
[[maybe_unused]] bool never() { return false; }

#if defined(__x86_64__)
// The compiler's built-in also checks that the operating system saves the registers.
[[maybe_unused]] bool has_fma() { return __builtin_cpu_supports("fma"); }
[[maybe_unused]] bool has_avx2() {
  return has_fma() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
}
[[maybe_unused]] bool has_avx512() {
  return has_fma() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}
[[maybe_unused]] constexpr auto has_scalar = has_fma;
[[maybe_unused]] bool has_avx512_vnni() { return __builtin_cpu_supports("avx512vnni"); }
/// A bit of leaf 7.1, of which GCC 12 knows no names.
bool has_feature(unsigned bit) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & 1u << bit) != 0;
}
[[maybe_unused]] bool has_avx_vnni() { return has_feature(4); }
[[maybe_unused]] bool has_avx512_bf16() { return has_feature(5); }
/// True on Intel's cores with AVX512-FP16: Emerald Rapids, the one that was measured, begins a
/// VDPBF16PS every second cycle, and the two fmas that stand for it in one. 2048 × 512 × 512 takes
/// 7.3 ms instead of 12.7.
bool prefers_fmas() {
  constexpr unsigned avx512_fp16 = 1u << 23;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_is("intel") && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & avx512_fp16) != 0;
}
#elif defined(__aarch64__) && defined(__linux__)
[[maybe_unused]] constexpr auto has_scalar = always;
constexpr auto prefers_fmas = never;
[[maybe_unused]] bool has_dotprod() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
#else
[[maybe_unused]] constexpr auto has_scalar = always;
constexpr auto prefers_fmas = never;
#endif

constexpr Row rows[] = {
#ifdef HEADLANE_HAS_avx512
    {kernels::table_avx512, has_avx512, has_avx512_vnni, has_avx512_bf16},
#endif
#ifdef HEADLANE_HAS_avx2
    {kernels::table_avx2, has_avx2, has_avx_vnni, never},
#endif
#ifdef HEADLANE_HAS_neon
    {kernels::table_neon, always, has_dotprod, never},
#endif
#ifdef HEADLANE_HAS_scalar
    {kernels::table_scalar, has_scalar, never, never},
#endif
#ifdef HEADLANE_HAS_portable
    {kernels::table_portable, always, never, never},
#endif
};

std::atomic<const KernelTable*> chosen{nullptr};

/// The available table of that name; `source` tells in the message where the name came from.
const KernelTable* find(std::string_view name, const char* source) {
  std::string names;
  for (const KernelTable* table : available_tables()) {
    if (name == table->name) return table;
    if (!names.empty()) names += ", ";
    names += table->name;
  }
  require(false, source, ": there is no instruction set '", name,
          "' here; available: ", names.empty() ? "none" : names);
  return nullptr;
}

const KernelTable* first_choice() {
  const char* forced = std::getenv("HEADLANE_ISA");
  if (forced != nullptr && *forced != '\0') return find(forced, "HEADLANE_ISA");
  const auto tables = available_tables();
  require(!tables.empty(), "headlane: built for none of the instruction sets that this CPU has");
  return tables.front();
}

}  // namespace

std::vector<const KernelTable*> available_tables() {
  const char* text = std::getenv("HEADLANE_EXTENSIONS");
  const std::string_view asked = text == nullptr ? "" : text;
  const auto extensions = [&](const Row& row) {
    if (asked == "none" || !row.has_integers()) return 0;
    if (asked == "vnni" || !row.has_bfloat()) return 1;
    return asked != "all" && prefers_fmas() ? 1 : 2;
  };
  std::vector<const KernelTable*> tables;
  for (const Row& row : rows)
    if (row.runs_here()) tables.push_back(row.tables + extensions(row));
  return tables;
}

const KernelTable& active() {
  const KernelTable* table = chosen.load(std::memory_order_acquire);
  if (table == nullptr) {
    table = first_choice();  // several threads may get here: all choose the same
    const KernelTable* none = nullptr;
    if (!chosen.compare_exchange_strong(none, table, std::memory_order_acq_rel)) table = none;
  }
  return *table;
}

void activate(std::string_view name) { chosen.store(find(name, "set_isa"), std::memory_order_release); }

}  // namespace headlane::internal
