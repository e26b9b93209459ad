// JSON from untrusted files.
#pragma once

#include <headlane/index.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace headlane::models::internal {

/// A JSON value. Not a nlohmann::json, whose destructor allocates, and terminates the process if it
/// cannot.
struct Json {
  struct Member;
  using List = std::vector<Json>;
  using Object = std::vector<Member>;  ///< names in ascending order

  /// An integer is an Index if it fits, otherwise a std::uint64_t or double.
  std::variant<std::nullptr_t, bool, Index, std::uint64_t, double, std::string, List, Object> content;

  /// Null unless the value is a T.
  template <class T>
  [[nodiscard]] const T* as() const {
    return std::get_if<T>(&content);
  }
  /// Null unless the value is an object with such a member.
  [[nodiscard]] const Json* find(std::string_view name) const;
  /// The name of the type in JSON: "array", "object", …
  [[nodiscard]] const char* type() const;
  /// The value as JSON text; of a longer text, at least the first `limit` bytes.
  [[nodiscard]] std::string text(std::size_t limit) const;
};

struct Json::Member {
  std::string name;
  Json value;
};

/// Throws CheckpointError that names `file` unless `text` is JSON within JsonLimits.
Json parse_json(std::string_view text, const std::filesystem::path& file);

/// The same from a file of at most `limit` bytes.
Json read_json(const std::filesystem::path& file, std::size_t limit);

/// The same; an error unless it is an object.
Json read_json_object(const std::filesystem::path& file, std::size_t limit);

}  // namespace headlane::models::internal
