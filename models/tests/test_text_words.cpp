// The words of a text, and where they end.
#include "text_words.hpp"

#include <doctest/doctest.h>

using headlane::models::words_of;
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
