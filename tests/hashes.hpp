// Printed by HEADLANE_PRINT_HASHES=1 test_hashes.
#pragma once

#include <cstdint>

namespace headlane::test {

struct CheckedHash {
  const char* name;
  std::uint64_t hash;
};

inline constexpr CheckedHash checked_hashes[] = {
    {"", 0},
};

}  // namespace headlane::test
