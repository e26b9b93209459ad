// FNV-1a, 64 bits, over the bytes of floats in little-endian order: the same on every platform.
#pragma once

#include "support/data.hpp"

namespace headlane::test {

class Hash {
 public:
  /// All NaNs count as one.
  void add(float x) { add_bytes(bits_of(x), 4); }
  void add(std::uint64_t x) { add_bytes(x, 8); }

  template <int Rank>
  void add(const View<float, Rank>& view) {
    for_each(view, [this](float x) { add(x); });
  }

  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  void add_bytes(std::uint64_t x, int bytes) {
    for (int i = 0; i < bytes; ++i) value_ = (value_ ^ ((x >> (8 * i)) & 0xff)) * 0x100000001b3u;
  }

  std::uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace headlane::test
