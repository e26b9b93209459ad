#include "json.hpp"

#include "error.hpp"
#include "mapped_file.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <unordered_set>
#include <vector>

namespace headlane::models {
namespace {

using nlohmann::json;

// nlohmann's parser and destructor do not recurse, but its copies and output do.
constexpr int most_levels = 32;

}  // namespace

json parse_json(std::string_view text, const std::filesystem::path& file) {
  // The parser would take a NUL for the end and ignore what follows.
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos)
    fail(file, "is not JSON: a NUL character at byte ", at);

  std::vector<std::unordered_set<std::string>> names;  // of the objects that are open
  const auto look = [&](int depth, json::parse_event_t event, const json& parsed) {
    using Event = json::parse_event_t;
    if (depth >= most_levels && (event == Event::object_start || event == Event::array_start))
      fail(file, "JSON is nested too deeply: ", most_levels, " levels are the most");
    if (event == Event::object_start) names.emplace_back();
    if (event == Event::object_end) names.pop_back();
    if (event == Event::key) {
      const auto& name = parsed.get_ref<const std::string&>();
      if (!names.back().insert(name).second) fail(file, "the name ", in_quotes(name), " occurs twice");
    }
    return true;
  };

  try {
    json result = json::parse(text.begin(), text.end(), look);
    if (!result.is_object()) fail(file, "is not a JSON object but ", result.type_name());
    return result;
  } catch (const json::exception& error) {
    std::string reason = error.what();  // shows what it read, also where that is not UTF-8
    std::replace_if(reason.begin(), reason.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
    fail(file, "is not JSON: ", shown(reason));
  }
}

json read_json(const std::filesystem::path& file, std::size_t limit) {
  const MappedFile mapped(file);
  const auto bytes = mapped.bytes();
  if (bytes.size() > limit) fail(file, "has ", bytes.size(), " bytes, ", limit, " are the most");
  return parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file);
}

}  // namespace headlane::models
