// JSON from files that are not trusted.
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

/// A value of JSON. Not a nlohmann::json: its destructor allocates, and terminates the process if it cannot.
struct Json {
  struct Member;
  using List = std::vector<Json>;
  using Object = std::vector<Member>;  ///< names in ascending order

  /// Integers are an Index if they are in its range, else std::uint64_t or double.
  std::variant<std::nullptr_t, bool, Index, std::uint64_t, double, std::string, List, Object> content;

  /// Null unless it holds a T.
  template <class T>
  [[nodiscard]] const T* as() const {
    return std::get_if<T>(&content);
  }
  /// Null unless it is an object with such a member.
  [[nodiscard]] const Json* find(std::string_view name) const;
  /// As JSON names it: "array", "object", …
  [[nodiscard]] const char* type() const;
  /// As JSON writes it; all of a value whose text is short, and at least the first `limit` bytes of a longer one.
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

/// The same, and an error unless it is an object.
Json read_json_object(const std::filesystem::path& file, std::size_t limit);

}  // namespace headlane::models::internal
