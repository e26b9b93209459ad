// The words of a text, and where they end.
#include "text/words.hpp"

#include <doctest/doctest.h>

#include <utility>

using headlane::models::internal::words_of;
using Words = std::vector<std::string>;

TEST_CASE("words in lower case, split at what is no letter") {
  CHECK(words_of("The CAT, the dog-house; 2 cats!") == Words{"the", "cat", "the", "dog", "house", "cats"});
  CHECK(words_of("") == Words{});
  CHECK(words_of(" \t.,'") == Words{});
}

TEST_CASE("apostrophes inside words stay") {
  CHECK(words_of("It isn't 'quoted' o''clock rock 'n' roll dogs'") ==
        Words{"it", "isn't", "quoted", "o", "clock", "rock", "n", "roll", "dogs"});
  CHECK(words_of("l\xe2\x80\x99\xc3\x89t\xc3\xa9") == Words{"l'\xc3\xa9t\xc3\xa9"});
}

TEST_CASE("letters beyond ASCII") {
  CHECK(words_of("\xc3\x80\xc3\x89\xc3\x9f\xc3\x97\xc5\x92uvre \xc5\xb8 \xc4\xb9") ==
        Words{"\xc3\xa0\xc3\xa9\xc3\x9f", "\xc5\x93uvre", "\xc3\xbf", "\xc4\xba"});
  CHECK(words_of("\xd0\xbc\xd0\xb8\xd1\x80\xe2\x80\x94\xe2\x82\xac") == Words{"\xd0\xbc\xd0\xb8\xd1\x80"});
  CHECK(words_of("\xe6\x97\xa5\xe6\x9c\xac\xe3\x80\x82\xf0\x9f\x98\x80x") == Words{"\xe6\x97\xa5\xe6\x9c\xac", "x"});
}

TEST_CASE("each capital letter of Latin-1 has a small one; the multiplication sign is none") {
  for (int second = 0x80; second <= 0x9e; ++second) {
    const std::string capital{'\xc3', static_cast<char>(second)}, small{'\xc3', static_cast<char>(second + 0x20)};
    CHECK(words_of("x" + capital + "y") == (second == 0x97 ? Words{"x", "y"} : Words{"x" + small + "y"}));
  }
}

TEST_CASE("bytes that are no UTF-8 separate words, wherever they stand") {
  CHECK(words_of("a\xff"
                 "b\x80"
                 "c\xe2\x80") == Words{"a", "b", "c"});
  for (int first = 0x80; first < 0x100; ++first)
    for (int second = 0; second < 0x100; second += 5)
      for (const std::size_t length : {1u, 2u, 3u, 4u}) {
        std::string text{'x', static_cast<char>(first), static_cast<char>(second), 'y'};
        static_cast<void>(words_of(text.substr(0, length)));
      }
}

namespace {

std::string utf8(char32_t c) {
  const auto byte = [](char32_t x) { return static_cast<char>(static_cast<unsigned char>(x)); };
  if (c < 0x80) return {byte(c)};
  if (c < 0x800) return {byte(0xc0 | c >> 6), byte(0x80 | (c & 0x3f))};
  if (c < 0x10000) return {byte(0xe0 | c >> 12), byte(0x80 | (c >> 6 & 0x3f)), byte(0x80 | (c & 0x3f))};
  return {byte(0xf0 | c >> 18), byte(0x80 | (c >> 12 & 0x3f)), byte(0x80 | (c >> 6 & 0x3f)), byte(0x80 | (c & 0x3f))};
}

}  // namespace

TEST_CASE("letters and what is none, at both ends of each block") {
  for (const char32_t c : {U'a',
                           U'z',
                           char32_t{0xaa},
                           char32_t{0xb5},
                           char32_t{0xba},
                           char32_t{0xdf},
                           char32_t{0xf6},
                           char32_t{0xf8},
                           char32_t{0x1fff},
                           char32_t{0x2c30},
                           char32_t{0x2fff},
                           char32_t{0x3040},
                           char32_t{0xd7ff},
                           char32_t{0xf900},
                           char32_t{0xfdff},
                           char32_t{0xfe70},
                           char32_t{0xfefe},
                           char32_t{0xff21},
                           char32_t{0xfffc},
                           char32_t{0x10000},
                           char32_t{0x1efff},
                           char32_t{0x20000}}) {
    INFO(static_cast<unsigned>(c));
    CHECK(words_of(utf8(c)) == Words{utf8(c)});
  }
  for (const char32_t c : {U'`',
                           U'{',
                           U'@',
                           U'[',
                           char32_t{0x80},
                           char32_t{0xa9},
                           char32_t{0xab},
                           char32_t{0xb4},
                           char32_t{0xb6},
                           char32_t{0xb9},
                           char32_t{0xbb},
                           char32_t{0xbf},
                           char32_t{0xd7},
                           char32_t{0xf7},
                           char32_t{0x2000},
                           char32_t{0x2bff},
                           char32_t{0x3000},
                           char32_t{0x303f},
                           char32_t{0xd800},
                           char32_t{0xf8ff},
                           char32_t{0xfe00},
                           char32_t{0xfe6f},
                           char32_t{0xfeff},
                           char32_t{0xff00},
                           char32_t{0xff20},
                           char32_t{0xfffd},
                           char32_t{0x1f000},
                           char32_t{0x1ffff}}) {
    INFO(static_cast<unsigned>(c));
    CHECK(words_of(std::string("a").append(utf8(c)).append("b")) == Words{"a", "b"});
  }
}

TEST_CASE("capital letters of all of Latin, at both ends of each block") {
  const std::pair<char32_t, char32_t> pairs[]{
      {U'A', U'a'},   {U'Z', U'z'},   {0xc0, 0xe0},   {0xd6, 0xf6},   {0xd8, 0xf8},   {0xde, 0xfe},  {0x100, 0x101},
      {0x136, 0x137}, {0x139, 0x13a}, {0x147, 0x148}, {0x14a, 0x14b}, {0x176, 0x177}, {0x178, 0xff}, {0x179, 0x17a},
      {0x17d, 0x17e}, {0xdf, 0xdf},   {0x138, 0x138}, {0x149, 0x149}, {0x17f, 0x17f}, {0x180, 0x180}};
  for (const auto& [upper, lower] : pairs) {
    INFO(static_cast<unsigned>(upper));
    CHECK(words_of(utf8(upper)) == Words{utf8(lower)});
    CHECK(words_of(utf8(lower)) == Words{utf8(lower)});
  }
}

TEST_CASE("bytes that begin no character, and those that begin one of two to four") {
  for (int first = 0x80; first < 0x100; ++first) {
    const int more = first < 0xc2 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : first < 0xf8 ? 3 : 0;
    // Followed by as many bytes as belong to it, 0xb0: letters, but for some; then one more,
    // which is none.
    std::string text{'a', static_cast<char>(first)};
    text.append(static_cast<std::size_t>(more), '\xb0');
    const auto words = words_of(text.append("\xb0").append("b"));
    INFO(first);
    CHECK(words.back() == "b");
    CHECK(words.front().starts_with("a"));
    CHECK(words.size() == 2);
    if (more > 0) continue;
    CHECK(words.front() == "a");
    CHECK(words_of(std::string{'a', static_cast<char>(first), 'b'}) == Words{"a", "b"});  // 0xa7 is no apostrophe
  }
}
