#include "text/words.hpp"

#include <cstddef>
#include <cstdint>

namespace headlane::models::internal {
namespace {

constexpr char32_t none = 0;  // not a character: separates words

/// The character at `at`, which is advanced past it.
char32_t next(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(at++);
  if (first < 0x80) return first;
  const int more = first >= 0xf0 && first < 0xf8   ? 3
                   : first >= 0xe0 && first < 0xf0 ? 2
                   : first >= 0xc2 && first < 0xe0 ? 1
                                                   : 0;
  if (more == 0) return none;
  char32_t c = first & (0x3fu >> more);
  for (int i = 0; i < more; ++i) {
    if (at == text.size() || (byte(at) & 0xc0u) != 0x80) return none;
    c = (c << 6) | (byte(at++) & 0x3fu);
  }
  return c;
}

void add(std::string& word, char32_t c) {
  const auto tail = [&](int shift) { word += static_cast<char>(0x80u | ((c >> shift) & 0x3fu)); };
  if (c < 0x80) return word += static_cast<char>(c), void();
  if (c < 0x800) return word += static_cast<char>(0xc0u | (c >> 6)), tail(0);
  if (c < 0x10000) return word += static_cast<char>(0xe0u | (c >> 12)), tail(6), tail(0);
  word += static_cast<char>(0xf0u | (c >> 18)), tail(12), tail(6), tail(0);
}

/// Lower-cases Latin letters; others are unchanged.
char32_t lower(char32_t c) {
  if ((c >= U'A' && c <= U'Z') || (c >= 0xc0 && c <= 0xde && c != 0xd7)) return c + 32;
  if (c == 0x178) return 0xff;  // Ÿ
  const bool even_is_upper = (c >= 0x100 && c <= 0x137) || (c >= 0x14a && c <= 0x177);
  const bool odd_is_upper = (c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17e);
  return c + ((even_is_upper && c % 2 == 0) || (odd_is_upper && c % 2 == 1) ? 1 : 0);
}

bool outside(char32_t c, char32_t low, char32_t high) { return c < low || c > high; }

/// Exact for Latin letters. Others count as letters unless they are in common blocks of
/// punctuation, symbols and spaces.
bool is_letter(char32_t c) {
  if (c < 0x80) return (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z');
  if (c < 0xc0) return c == 0xaa || c == 0xb5 || c == 0xba;
  return c != 0xd7 && c != 0xf7 && outside(c, 0x2000, 0x2bff) && outside(c, 0x3000, 0x303f) &&
         outside(c, 0xd800, 0xf8ff) && outside(c, 0xfe00, 0xfe6f) && outside(c, 0xff00, 0xff20) && c != 0xfeff &&
         c != 0xfffd && outside(c, 0x1f000, 0x1ffff);
}

}  // namespace

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  bool inside = false, apostrophe = false;  // in a word; after an apostrophe that may be part of it
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next(text, at);
    if (is_letter(c)) {
      if (!inside) words.emplace_back();
      else if (apostrophe) words.back() += '\'';
      add(words.back(), lower(c));
      inside = true;
      apostrophe = false;
    } else if (inside && !apostrophe && (c == U'\'' || c == 0x2019)) {
      apostrophe = true;
    } else {
      inside = apostrophe = false;
    }
  }
  return words;
}

}  // namespace headlane::models::internal
