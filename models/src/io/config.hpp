// Settings of a Hugging Face folder: config.json, generation_config.json and similar files.
#pragma once

#include "io/json.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headlane::models::internal {

/// A JSON object with typed access to its members. A member that is missing or null has the
/// default; without a default it is an error, as is another type or a number out of range. Throws
/// CheckpointError, which names the file and the key.
class Config {
 public:
  explicit Config(std::filesystem::path file);

  /// The member exists and is not null.
  [[nodiscard]] bool contains(std::string_view key) const;
  [[nodiscard]] bool is_text(std::string_view key) const;
  /// The names of all members, in ascending order.
  [[nodiscard]] std::vector<std::string> keys() const;
  /// A member that is an object, if it exists.
  [[nodiscard]] std::optional<Config> object(std::string_view key) const;

  /// From low to high, inclusive.
  [[nodiscard]] Index integer(std::string_view key, Index low, Index high, std::optional<Index> otherwise = {}) const;
  [[nodiscard]] double number(std::string_view key, double low, double high,
                              std::optional<double> otherwise = {}) const;
  [[nodiscard]] bool flag(std::string_view key, std::optional<bool> otherwise = {}) const;
  [[nodiscard]] std::string text(std::string_view key, std::optional<std::string> otherwise = {}) const;

  /// A list, or a single value instead of a list of one; empty if missing.
  [[nodiscard]] std::vector<Index> integers(std::string_view key, Index low, Index high) const;
  [[nodiscard]] std::vector<std::string> texts(std::string_view key) const;

 private:
  Config(std::filesystem::path file, std::shared_ptr<const Json> members);

  [[nodiscard]] const Json* find(std::string_view key) const;
  [[noreturn]] void fail_missing(std::string_view key) const;
  [[noreturn]] void fail_value(std::string_view key, const Json& value, const std::string& wanted) const;
  [[nodiscard]] Index integer_in(std::string_view key, const Json& value, Index low, Index high) const;
  [[nodiscard]] std::string text_in(std::string_view key, const Json& value) const;

  std::filesystem::path file_;
  std::shared_ptr<const Json> members_;
};

}  // namespace headlane::models::internal
