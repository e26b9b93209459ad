// The number of processors that the process may use.
#pragma once

namespace headlane::internal {

/// The CPU quota of the process's control group (cgroup v2 or v1) and of those above it, rounded up
/// to whole processors; 0 if there is none. `root` is a prefix of the paths /proc/self/cgroup and
/// /sys/fs/cgroup, for tests.
int cgroup_quota(const char* root) noexcept;

/// The number of processors in the affinity mask of the process, limited by its quota; at least 1.
/// Determined once.
int processors() noexcept;

}  // namespace headlane::internal
