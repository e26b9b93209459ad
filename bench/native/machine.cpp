#include "machine.hpp"

#include "probe.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <thread>
#include <utility>

#ifdef _OPENMP
#include <omp.h>
#endif

#ifndef HEADLANE_XSIMD_VERSION
#define HEADLANE_XSIMD_VERSION "unknown"
#endif

namespace bench {

namespace {

// Runs body(thread, team) on every thread of a team. Returns the seconds until the last one is
// done.
template <class Body>
double team_seconds(int threads, const Body& body) {
#ifdef _OPENMP
  double begin = 0;
  double end = 0;
#pragma omp parallel num_threads(threads)
  {
#pragma omp master
    begin = now();
#pragma omp barrier
    body(omp_get_thread_num(), omp_get_num_threads());
#pragma omp barrier
#pragma omp master
    end = now();
  }
  return end - begin;
#else
  const double begin = now();
  for (int thread = 0; thread < threads; ++thread) body(thread, threads);
  return now() - begin;
#endif
}

struct Part {
  std::size_t begin, size;
};

// The share of one thread, in whole cache lines.
Part part(std::size_t bytes, int thread, int team) {
  const auto cut = [&](int t) {
    return t == team ? bytes : bytes / static_cast<std::size_t>(team) * static_cast<std::size_t>(t) / 64 * 64;
  };
  return {cut(thread), cut(thread + 1) - cut(thread)};
}

// Passes over a buffer, 32 MiB in all, so that the clock's resolution, the barrier and the time
// that a thread takes to wake up are negligible.
int passes(std::size_t bytes) {
  constexpr std::size_t enough = 32u << 20;
  return static_cast<int>(std::max<std::size_t>(1, enough / std::max<std::size_t>(1, bytes)));
}

struct Peak {
  std::string_view isa;
  int lanes;
  void (*run)(long rounds);
};

constexpr Peak peaks[] = {
#if defined(__x86_64__)
    {"avx512", 16, probe::fma_avx512},
    {"avx2", 8, probe::fma_avx2},
#elif defined(__aarch64__)
    {"neon", 4, probe::fma_neon},
#endif
    {"scalar", 1, probe::fma_scalar},
    {"portable", 1, probe::fma_scalar},
};

bool has_fma() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("fma") != 0;
#else
  return true;
#endif
}

// The value of the first line "key : value", or an empty string.
std::string line_of(const char* file, std::string_view key) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos && line.starts_with(key)) return line.substr(std::min(colon + 2, line.size()));
  }
  return "";
}

}  // namespace

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string cpu_name() {
  std::string name = line_of("/proc/cpuinfo", "model name");
  if (name.empty()) std::getline(std::ifstream("/sys/firmware/devicetree/base/model"), name, '\0');
#if defined(__x86_64__)
  // A virtual machine's model name may be just "AMD EPYC": family and model tell the generation.
  const char* file = "/proc/cpuinfo";
  return (name.empty() ? "x86-64" : name) + " (family " + line_of(file, "cpu family") + ", model " +
         line_of(file, "model\t") + ")";
#elif defined(__aarch64__)
  return name.empty() ? "AArch64, part " + line_of("/proc/cpuinfo", "CPU part") : name;
#else
  return name.empty() ? "unknown CPU" : name;
#endif
}

int cores() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

std::string compiler() {
#if defined(__clang__)
  return "clang " + std::to_string(__clang_major__) + "." + std::to_string(__clang_minor__) + "." +
         std::to_string(__clang_patchlevel__);
#elif defined(__GNUC__)
  return "GCC " + std::to_string(__GNUC__) + "." + std::to_string(__GNUC_MINOR__) + "." +
         std::to_string(__GNUC_PATCHLEVEL__);
#else
  return "unknown compiler";
#endif
}

std::string xsimd_version() { return HEADLANE_XSIMD_VERSION; }

double fma_peak(std::string_view isa, int threads) {
  const auto* peak = std::find_if(std::begin(peaks), std::end(peaks), [&](const Peak& p) { return p.isa == isa; });
  if (peak == std::end(peaks) || !has_fma()) return 0;
  constexpr long rounds = 200'000;  // 0.3 ms at 4 GHz and 6 cycles a round
  const double flops = 2.0 * probe::chains * peak->lanes * rounds * threads;
  static std::map<std::pair<std::string_view, int>, double> highest;
  double& earlier = highest[{peak->isa, threads}];
  double best = 0;
  // A figure far below an earlier one means that the cores were taken away: it is measured again.
  // A lower clock remains.
  for (int i = 0; i < 3 || (i < 20 && best < 0.85 * earlier); ++i) {
    best = std::max(best, flops / team_seconds(threads, [&](int, int) { peak->run(rounds); }));
  }
  earlier = std::max(earlier, best);
  return best;
}

double read_rate(const void* data, std::size_t bytes, int threads) {
  const int count = passes(bytes);
  const auto body = [&](int thread, int team) {
    const Part mine = part(bytes, thread, team);
    for (int i = 0; i < count; ++i) probe::read(static_cast<const char*>(data) + mine.begin, mine.size);
  };
  double best = 1e30;
  for (int i = 0; i < 3; ++i) best = std::min(best, team_seconds(threads, body));
  return static_cast<double>(bytes) * count / best;
}

double copy_seconds(const void* from, void* to, std::size_t bytes, int threads) {
  const int count = passes(bytes);
  const auto body = [&](int thread, int team) {
    const Part mine = part(bytes, thread, team);
    for (int i = 0; i < count; ++i) {
      std::memcpy(static_cast<char*>(to) + mine.begin, static_cast<const char*>(from) + mine.begin, mine.size);
      asm volatile("" : : "r"(to) : "memory");  // keeps every pass
    }
  };
  double best = 1e30;
  for (int i = 0; i < 3; ++i) best = std::min(best, team_seconds(threads, body));
  return best / count;
}

}  // namespace bench
