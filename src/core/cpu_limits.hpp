// How many processors the process may use.
#pragma once

namespace headlane::internal {

/// The CPU quota of the process's control group (cgroup v2 or v1) and of those above it, rounded up to whole
/// processors; 0 if there is none. `root` stands before the paths /proc/self/cgroup and /sys/fs/cgroup.
int cgroup_quota(const char* root) noexcept;

/// The processors in the affinity mask of the process, at most its quota; at least 1. Found out once.
int processors() noexcept;

}  // namespace headlane::internal
