#include "io/json_limits.hpp"

#include "io/error.hpp"

#include <algorithm>

namespace headlane::models::internal {

// The destructor of a value and text() recurse.
constexpr std::size_t max_levels = 32;

void JsonLimits::open() {
  if (names_.size() == max_levels) fail(file_, "JSON is nested too deeply, the maximum is ", max_levels, " levels");
  names_.emplace_back();
}

void JsonLimits::close() { names_.pop_back(); }

void JsonLimits::name(const std::string& name) {
  if (!names_.back().insert(name).second) fail(file_, "the name ", in_quotes(name), " occurs twice");
}

void JsonLimits::value() {
  if (values_++ == max_values_) fail(file_, "JSON has too many values, the maximum is ", max_values_);
}

void check_no_nul(std::string_view text, const std::filesystem::path& file) {
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos)
    fail(file, "is not JSON: a NUL character at byte ", at);
}

void fail_not_json(const std::filesystem::path& file, std::string reason) {
  // The message of the parser quotes what it read, UTF-8 or not.
  std::replace_if(reason.begin(), reason.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
  fail(file, "is not JSON: ", shown(reason));
}

}  // namespace headlane::models::internal
