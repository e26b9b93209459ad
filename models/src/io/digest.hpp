// A number that tells contents apart.
#pragma once

#include <headlane/view.hpp>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace headlane::models::internal {

/// FNV-1a, 64 bits: for differences by mistake, not by malice.
class Digest {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) value_ = (value_ ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3u;
  }
  template <class T>
  void add_all(std::span<const T> values) {
    add(std::as_bytes(values));
  }
  /// Its end counts: "a", "b" is not "ab".
  void add(std::string_view text) {
    add(std::uint64_t{text.size()});
    add_all(std::span(text));
  }
  void add(std::uint64_t number) { add_all(std::span<const std::uint64_t>(&number, 1)); }
  void add(std::span<const Index> numbers) {
    add(static_cast<std::uint64_t>(numbers.size()));
    add_all(numbers);
  }

  [[nodiscard]] std::uint64_t value() const { return value_; }
  /// In hexadecimal.
  [[nodiscard]] std::string text() const {
    std::array<char, 16> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value_, 16);
    return {digits.data(), end.ptr};
  }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace headlane::models::internal
