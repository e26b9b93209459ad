// Messages of CheckpointError: the file, then the joined parts.
#pragma once

#include "core/message.hpp"

#include <headlane/index.hpp>
#include <headlane/models/checkpoint_error.hpp>

#include <cstddef>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace headlane::models::internal {

/// Replaces control characters in text from a file: they could control a terminal.
inline std::string without_controls(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

/// Text from a file as a message shows it, truncated.
inline std::string shown(std::string_view text) {
  constexpr std::size_t max_length = 200;
  std::size_t length = text.size();
  if (length > max_length)  // not within a UTF-8 character
    for (length = max_length; length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0u) == 0x80u;) --length;
  const std::string result = without_controls(std::string(text.substr(0, length)));
  return length < text.size() ? result + "…" : result;
}

inline std::string in_quotes(std::string_view text) { return std::string("'").append(shown(text)).append("'"); }

/// The beginning of a message about a tensor.
inline std::string subject_of(std::string_view tensor) { return "tensor " + in_quotes(tensor) + ": "; }

inline std::string listed(std::span<const Index> shape) {
  std::string result = "[";
  for (const Index size : shape) {
    if (result.size() > 200) return result + ", …]";
    result.append(result.size() > 1 ? ", " : "").append(std::to_string(size));
  }
  return result + "]";
}

template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail(const std::filesystem::path& file, const Parts&... parts) {
  headlane::internal::fail<CheckpointError>(without_controls(file.string()), ": ", parts...);
}

/// Dereferences a pointer that is null only if its owner was moved from; then throws
/// std::invalid_argument.
template <class Pointer>
auto& unmoved(const Pointer& pointer, const char* function, const char* object) {
  if (!pointer) throw std::invalid_argument(std::string(function) + ": the " + object + " was moved from");
  return *pointer;
}

}  // namespace headlane::models::internal
