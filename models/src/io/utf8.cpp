#include "io/utf8.hpp"

#include <cstddef>

namespace headlane::models::internal {

bool is_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  for (std::size_t i = 0; i < text.size();) {
    const unsigned first = byte(i);
    const std::size_t length = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (length == 0 || first > 0xf4 || length > text.size() - i) return false;
    for (std::size_t j = 1; j < length; ++j)
      if ((byte(i + j) & 0xc0u) != 0x80u) return false;
    if (length > 2) {
      const unsigned second = byte(i + 1);
      const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
      const bool beyond = (first == 0xed && second > 0x9f) || (first == 0xf4 && second > 0x8f);
      if (overlong || beyond) return false;
    }
    i += length;
  }
  return true;
}

}  // namespace headlane::models::internal
