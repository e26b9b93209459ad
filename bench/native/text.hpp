// Text output: columns, numbers of three digits, and a status line.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include <unistd.h>

namespace bench {

/// Display width of a UTF-8 text; sufficient for the characters used here.
inline int width(std::string_view text) {
  int columns = 0;
  for (const char c : text) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return columns;
}

inline std::string pad_left(const std::string& text, int columns) {
  const int missing = columns - width(text);
  return missing > 0 ? std::string(static_cast<std::size_t>(missing), ' ') + text : text;
}

inline std::string pad_right(const std::string& text, int columns) {
  const int missing = columns - width(text);
  return missing > 0 ? text + std::string(static_cast<std::size_t>(missing), ' ') : text;
}

/// `value` with this number of decimals.
inline std::string fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

/// Three digits: 0.123, 1.23, 12.3, 123.
inline std::string number(double value) {
  return fixed(value, value >= 99.95 ? 0 : value >= 9.995 ? 1 : value >= 0.9995 ? 2 : 3);
}

inline std::string percent(double share) { return fixed(100 * share, 0) + "%"; }

/// "softmax/512x64" as softmax/512×64.
inline std::string with_times(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool times = c == 'x' && !result.empty() && result.back() >= '0' && result.back() <= '9';
    result += times ? std::string("×") : std::string(1, c);
  }
  return result;
}

inline std::string plural(int count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

/// The current step, overwritten by the next; only on a terminal.
inline void status(std::string_view text) {
  static const bool watched = isatty(STDERR_FILENO) != 0;
  if (watched) std::fprintf(stderr, "\r\033[K%.*s", static_cast<int>(text.size()), text.data());
}

}  // namespace bench
