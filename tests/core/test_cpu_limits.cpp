// cgroup_quota: the CPU quota of control groups, read from a copy of /proc and /sys.
#include "core/cpu_limits.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace headlane::test {

using namespace internal;
namespace {

/// A temporary folder of files.
class Files {
 public:
  Files() : root_(std::filesystem::temp_directory_path() / ("headlane-" + std::to_string(getpid()))) {}
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  ~Files() { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  [[nodiscard]] std::string root() const { return root_.string(); }

 private:
  std::filesystem::path root_;
};

struct Group {
  const char* what;
  const char* self;  ///< /proc/self/cgroup
  std::vector<std::pair<const char*, const char*>> files;
  int quota;
};

TEST_CASE("the CPU quota of the control group, version 1 and 2") {
  const std::vector<Group> groups{
      {"none", "", {}, 0},
      {"no file", "0::/\n", {}, 0},
      {"no limit", "0::/\n", {{"sys/fs/cgroup/cpu.max", "max 100000\n"}}, 0},
      {"of a container", "0::/\n", {{"sys/fs/cgroup/cpu.max", "300000 100000\n"}}, 3},
      {"half a processor", "0::/\n", {{"sys/fs/cgroup/cpu.max", "50000 100000\n"}}, 1},
      {"two and a half", "0::/\n", {{"sys/fs/cgroup/cpu.max", "250000 100000\n"}}, 3},
      {"of a group", "0::/a/b\n", {{"sys/fs/cgroup/a/b/cpu.max", "400000 100000\n"}}, 4},
      {"of the group above",
       "0::/a/b\n",
       {{"sys/fs/cgroup/a/b/cpu.max", "max 100000\n"}, {"sys/fs/cgroup/a/cpu.max", "200000 100000\n"}},
       2},
      {"the least of both",
       "0::/a/b\n",
       {{"sys/fs/cgroup/a/b/cpu.max", "100000 100000\n"}, {"sys/fs/cgroup/a/cpu.max", "200000 100000\n"}},
       1},
      {"version 1",
       "3:cpuset:/x\n2:cpu,cpuacct:/x\n1:name=systemd:/x\n0::/\n",
       {{"sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "500000\n"},
        {"sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n"}},
       5},
      {"version 1, mounted as cpu",
       "2:cpu,cpuacct:/docker/1\n",
       {{"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n"}, {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}},
       2},
      {"version 1, no limit",
       "2:cpu:/\n",
       {{"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"}, {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}},
       0},
      {"a period of 0", "0::/\n", {{"sys/fs/cgroup/cpu.max", "300000 0\n"}}, 0},
      {"not a number", "0::/\n", {{"sys/fs/cgroup/cpu.max", "many\n"}}, 0},
      {"damaged", "::::\n0:\n\n0::nowhere\n", {{"sys/fs/cgroup/cpu.max", "700000 100000\n"}}, 7},
      {"beyond all numbers", "0::/\n", {{"sys/fs/cgroup/cpu.max", "1e300 1\n"}}, 1 << 20}};
  for (const Group& group : groups) {
    const Files files;
    files.write("proc/self/cgroup", group.self);
    for (const auto& [path, text] : group.files) files.write(path, text);
    CHECK_MESSAGE(cgroup_quota(files.root().c_str()) == group.quota, group.what);
  }
}

}  // namespace
}  // namespace headlane::test
