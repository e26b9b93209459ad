// A number that tells the elements of tensors apart: for differences by mistake, not by malice.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace headlane::internal {

/// Four chains side by side, since a multiplication takes longer than a load.
class ElementDigest {
 public:
  void add(const void* data, std::size_t bytes) {
    const auto* at = static_cast<const unsigned char*>(data);
    for (; bytes >= sizeof(words_); at += sizeof(words_), bytes -= sizeof(words_)) add_words(at);
    std::array<unsigned char, sizeof(words_)> rest{};
    if (bytes > 0) std::memcpy(rest.data(), at, bytes);
    rest.back() = static_cast<unsigned char>(bytes);  // fewer than 32
    add_words(rest.data());
  }
  [[nodiscard]] std::uint64_t value() const {
    std::uint64_t all = 0;
    for (const std::uint64_t word : words_) all = mixed(all, word);
    return all;
  }

 private:
  static std::uint64_t mixed(std::uint64_t digest, std::uint64_t word) {
    return std::rotl((digest ^ word) * 0x9e3779b97f4a7c15u, 29);
  }
  void add_words(const unsigned char* from) {
    std::array<std::uint64_t, 4> next{};
    std::memcpy(next.data(), from, sizeof(next));
    for (std::size_t i = 0; i < next.size(); ++i) words_[i] = mixed(words_[i], next[i]);
  }

  std::array<std::uint64_t, 4> words_{1, 2, 3, 4};
};

}  // namespace headlane::internal
