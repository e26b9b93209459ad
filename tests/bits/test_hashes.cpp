// Hashes of outputs against checked-in ones: a change of any bit fails on any machine.
// HEADLANE_PRINT_HASHES=1 prints the table anew; a change belongs in CHANGELOG.md.
#include "bits/hash_cases.hpp"
#include "bits/hashes.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>

namespace headlane::test {
namespace {

TEST_CASE("outputs have the checked-in hashes") {
  const bool print = std::getenv("HEADLANE_PRINT_HASHES") != nullptr;
  const std::vector<HashCase> cases = hash_cases();
  for (const HashCase& one : cases) {
    const std::uint64_t actual = one.run();
    if (print) {
      std::printf("    {\"%s\", 0x%016llxu},\n", one.name.c_str(), static_cast<unsigned long long>(actual));
      continue;
    }
    std::uint64_t expected = 0;
    for (const CheckedHash& checked : checked_hashes) {
      if (one.name == checked.name) expected = checked.hash;
    }
    char hex[32];
    std::snprintf(hex, sizeof hex, "0x%016llx", static_cast<unsigned long long>(actual));
    CHECK_MESSAGE(actual == expected, one.name, ", isa ", isa(), " has the hash ", hex,
                  "; HEADLANE_PRINT_HASHES=1 prints the table of hashes.hpp");
  }
  if (!print) CHECK(std::size(checked_hashes) == cases.size());
}

TEST_CASE("the hash itself: FNV-1a of known bytes, all NaNs alike") {
  Hash nothing, zero, other, same;
  CHECK(nothing.value() == 0xcbf29ce484222325u);
  zero.add(0.0f);
  CHECK(zero.value() == 0x4d25767f9dce13f5u);  // of four zero bytes
  other.add(nan);
  same.add(-nan);
  CHECK(other.value() == same.value());
  CHECK(other.value() != zero.value());
}

}  // namespace
}  // namespace headlane::test
