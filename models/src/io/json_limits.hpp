// Limits on JSON from untrusted files, checked while it is parsed.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace headlane::models::internal {

/// Throws CheckpointError for deep nesting, a name that occurs twice in an object, or more than
/// `max_values` values.
class JsonLimits {
 public:
  JsonLimits(const std::filesystem::path& file, std::size_t max_values) : file_(file), max_values_(max_values) {}

  void value();  ///< of any kind
  void open();   ///< of an object or array, after value()
  void close();
  void name(const std::string& name);

  /// The number of objects and arrays that are open.
  [[nodiscard]] std::size_t depth() const { return names_.size(); }

 private:
  const std::filesystem::path& file_;
  std::size_t max_values_, values_ = 0;
  std::vector<std::unordered_set<std::string>> names_;
};

/// Throws CheckpointError if the text contains a NUL, which the parser would take for the end.
void check_no_nul(std::string_view text, const std::filesystem::path& file);

/// Throws CheckpointError with the parser's message.
[[noreturn]] void fail_not_json(const std::filesystem::path& file, std::string reason);

}  // namespace headlane::models::internal
