#include "io/json_limits.hpp"

#include "io/error.hpp"

#include <algorithm>

namespace headlane::models::internal {

// A value's destructor and its text recurse.
constexpr std::size_t most_levels = 32;

void JsonLimits::open() {
  if (names_.size() == most_levels) fail(file_, "JSON is nested too deeply: ", most_levels, " levels are the most");
  names_.emplace_back();
}

void JsonLimits::close() { names_.pop_back(); }

void JsonLimits::name(const std::string& name) {
  if (!names_.back().insert(name).second) fail(file_, "the name ", in_quotes(name), " occurs twice");
}

void JsonLimits::value() {
  if (values_++ == most_values_) fail(file_, "JSON has too many values: ", most_values_, " are the most");
}

void check_no_nul(std::string_view text, const std::filesystem::path& file) {
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos)
    fail(file, "is not JSON: a NUL character at byte ", at);
}

void fail_not_json(const std::filesystem::path& file, std::string reason) {
  // The parser shows what it read, also where that is not UTF-8.
  std::replace_if(reason.begin(), reason.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
  fail(file, "is not JSON: ", shown(reason));
}

}  // namespace headlane::models::internal
