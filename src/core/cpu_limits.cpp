#include "core/cpu_limits.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#if defined(__linux__)
#include <sched.h>

#include <unistd.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

namespace headlane::internal {
namespace {

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

File open(const std::string& path) { return File(std::fopen(path.c_str(), "re")); }

int smaller(int a, int b) { return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b); }

int whole(double quota, double period) {
  constexpr double most = 1 << 20;
  if (!(quota > 0) || !(period > 0)) return 0;
  const double processors = std::min(quota / period, most);
  const int down = static_cast<int>(processors);
  return down < processors ? down + 1 : down;
}

/// Reads cpu.max: "quota period" or "max period".
int quota_v2(const std::string& folder) {
  double quota = 0, period = 0;
  const File file = open(folder + "/cpu.max");
  return file && std::fscanf(file.get(), "%lf %lf", &quota, &period) == 2 ? whole(quota, period) : 0;
}

/// Reads cpu.cfs_quota_us, -1 without a limit, and cpu.cfs_period_us.
int quota_v1(const std::string& folder) {
  double quota = 0, period = 0;
  const File quota_file = open(folder + "/cpu.cfs_quota_us"), period_file = open(folder + "/cpu.cfs_period_us");
  const bool both = quota_file && period_file && std::fscanf(quota_file.get(), "%lf", &quota) == 1 &&
                    std::fscanf(period_file.get(), "%lf", &period) == 1;
  return both ? whole(quota, period) : 0;
}

/// The smallest quota of mount/path and of all groups above it. In a container the path may be one
/// of the host's, which does not exist there: the mount itself is the group then.
int min_quota(const std::string& mount, std::string path, int (*quota)(const std::string&)) {
  int min = quota(mount);
  while (path.size() > 1 && path.front() == '/') {
    min = smaller(min, quota(mount + path));
    path.resize(path.rfind('/'));
  }
  return min;
}

/// True if a list such as "cpu,cpuacct" contains "cpu".
bool has_cpu(const std::string& controllers) {
  std::string list = ",";
  list += controllers;
  list += ',';
  return list.find(",cpu,") != std::string::npos;
}

int quota_below(const std::string& root) {
  const std::string mount = root + "/sys/fs/cgroup";
  const File file = open(root + "/proc/self/cgroup");
  int min = 0;
  char line[4096];
  while (file && std::fgets(line, sizeof line, file.get()) != nullptr) {  // number:controllers:path
    line[std::strcspn(line, "\n")] = '\0';  // NOLINT(clang-analyzer-security.ArrayBound): within line
    const char* const controllers = std::strchr(line, ':');
    const char* const path = controllers == nullptr ? nullptr : std::strchr(controllers + 1, ':');
    if (path == nullptr) continue;
    const std::string names(controllers + 1, path);
    if (names.empty()) min = smaller(min, min_quota(mount, path + 1, quota_v2));
    else if (has_cpu(names)) {
      min = smaller(min, min_quota(std::string(mount).append("/").append(names), path + 1, quota_v1));
      if (names != "cpu") min = smaller(min, min_quota(mount + "/cpu", path + 1, quota_v1));
    }
  }
  return min;
}

/// Processors in the main thread's mask, or OpenMP's count when it was loaded if that is more:
/// OMP_PROC_BIND narrows the mask of the main thread, and the calling thread may be bound to one
/// processor.
int in_affinity_mask() noexcept {
  int count = 0;
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(getpid(), sizeof set, &set) == 0) count = CPU_COUNT(&set);
  else count = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));  // more than 1024
#endif
#ifdef _OPENMP
  count = std::max(count, omp_get_num_procs());
#endif
  return std::max(count, 1);
}

}  // namespace

int cgroup_quota(const char* root) noexcept {
  try {
    return quota_below(root);
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

int processors() noexcept {
  static const int count = smaller(in_affinity_mask(), cgroup_quota(""));
  return count;
}

}  // namespace headlane::internal
