// Settings of a Hugging Face folder: config.json, generation_config.json and their like.
#pragma once

#include "io/json.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headlane::models::internal {

/// A JSON object, asked for its members by type. A member that is not there, or null, takes the default; without a default that
/// is an error. So is another type, or a number out of its range. Errors are CheckpointError and name the file and the key.
class Config {
 public:
  explicit Config(std::filesystem::path file);

  /// It is there and not null.
  [[nodiscard]] bool contains(std::string_view key) const;
  [[nodiscard]] bool is_text(std::string_view key) const;
  /// Of all members, in ascending order.
  [[nodiscard]] std::vector<std::string> keys() const;
  /// A member that is an object, if it is there.
  [[nodiscard]] std::optional<Config> object(std::string_view key) const;

  /// low … high, both included.
  [[nodiscard]] Index integer(std::string_view key, Index low, Index high, std::optional<Index> otherwise = {}) const;
  [[nodiscard]] double number(std::string_view key, double low, double high,
                              std::optional<double> otherwise = {}) const;
  [[nodiscard]] bool flag(std::string_view key, std::optional<bool> otherwise = {}) const;
  [[nodiscard]] std::string text(std::string_view key, std::optional<std::string> otherwise = {}) const;

  /// A list, or a single value in place of a list of one; empty if it is not there.
  [[nodiscard]] std::vector<Index> integers(std::string_view key, Index low, Index high) const;
  [[nodiscard]] std::vector<std::string> texts(std::string_view key) const;
  /// A list of lists of integers, such as bad_words_ids; empty if it is not there.
  [[nodiscard]] std::vector<std::vector<Index>> integer_lists(std::string_view key, Index low, Index high) const;

 private:
  Config(std::filesystem::path file, std::shared_ptr<const Json> members);

  [[nodiscard]] const Json* find(std::string_view key) const;
  [[noreturn]] void fail_missing(std::string_view key) const;
  [[noreturn]] void fail_value(std::string_view key, const Json& value, const std::string& wanted) const;
  [[nodiscard]] Index integer_in(std::string_view key, const Json& value, Index low, Index high) const;
  [[nodiscard]] std::vector<Index> integers_in(std::string_view key, const Json& value, Index low, Index high) const;
  [[nodiscard]] std::string text_in(std::string_view key, const Json& value) const;

  std::filesystem::path file_;
  std::shared_ptr<const Json> members_;
};

}  // namespace headlane::models::internal
