// The threads and the memory of this process, from /proc/self.
#pragma once

#include <headlane/view.hpp>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace headlane::test {

inline Index threads_of_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

/// A line of /proc/self/status that has a size, such as "VmRSS"; 0 if there is none.
inline std::size_t bytes_of_process(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    std::size_t kib = 0;
    if (word == key + ":" && file >> kib) return kib * 1024;
  }
  return 0;
}

inline double mib_of_process(const std::string& key) { return static_cast<double>(bytes_of_process(key)) / (1 << 20); }

}  // namespace headlane::test
