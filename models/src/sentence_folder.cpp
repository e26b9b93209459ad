#include "sentence_folder.hpp"

#include "config.hpp"
#include "error.hpp"
#include "json.hpp"
#include "mapped_file.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace headlane::models {
namespace {

using nlohmann::json;
using std::filesystem::path;

constexpr std::size_t most_bytes = std::size_t{1} << 20;

/// modules.json holds a list, where other settings are an object.
json modules_of(const path& file) {
  const MappedFile mapped(file);
  const auto bytes = mapped.bytes();
  if (bytes.size() > most_bytes) fail(file, bytes.size(), " bytes, more than ", most_bytes);
  std::string text = R"({"modules":)";
  text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size()).append("}");
  json modules = std::move(parse_json(text, file)["modules"]);
  if (!modules.is_array()) fail(file, "is not a list of modules");
  return modules;
}

/// A member that is text; empty if it is not there.
std::string text_of(const path& file, const json& module, std::size_t number, const char* key) {
  if (!module.is_object()) fail(file, "module ", number, " is not an object");
  const auto found = module.find(key);
  if (found == module.end()) return {};
  if (!found->is_string()) fail(file, "module ", number, ": ", in_quotes(key), " is not a string");
  return found->get<std::string>();
}

/// A folder within the other one.
path inside(const path& file, const std::string& name) {
  const path part(name);
  if (part.is_absolute() || std::find(part.begin(), part.end(), "..") != part.end())
    fail(file, "the path ", in_quotes(name), " is not within the folder");
  return name.empty() ? file.parent_path() : file.parent_path() / part;
}

Pooling pooling_of(const path& folder) {
  const path file = folder / "config.json";
  const Config config(file);
  std::vector<std::string> modes = config.texts("pooling_mode");  // how newer versions write it
  if (modes.empty()) {
    constexpr std::array<std::array<const char*, 2>, 6> flags{{{"pooling_mode_cls_token", "cls"},
                                                               {"pooling_mode_mean_tokens", "mean"},
                                                               {"pooling_mode_max_tokens", "max"},
                                                               {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len"},
                                                               {"pooling_mode_weightedmean_tokens", "weightedmean"},
                                                               {"pooling_mode_lasttoken", "lasttoken"}}};
    for (const auto& [key, mode] : flags)
      if (config.flag(key, false)) modes.emplace_back(mode);
  }
  if (modes.size() != 1)
    fail(file, "'pooling_mode' has ", modes.size(), " kinds of pooling; supported: one of mean, cls");
  if (modes[0] == "mean") return Pooling::mean;
  if (modes[0] == "cls") return Pooling::cls;
  fail(file, "'pooling_mode' is ", in_quotes(modes[0]), "; supported: mean, cls");
}

}  // namespace

SentenceFolder sentence_folder(const path& folder) {
  SentenceFolder result{.transformer = folder};
  const path file = folder / "modules.json";
  if (exists(file)) {
    const json modules = modules_of(file);
    constexpr std::array<std::string_view, 3> kinds{"Transformer", "Pooling", "Normalize"};
    if (modules.empty()) fail(file, "holds no modules");
    for (std::size_t i = 0; i < modules.size(); ++i) {
      const std::string type = text_of(file, modules[i], i, "type");
      const std::string kind = type.substr(type.rfind('.') + 1);  // npos + 1 is 0
      if (i >= kinds.size() || kind != kinds[i])
        fail(file, "module ", i, " has type ", in_quotes(type),
             "; supported: Transformer, Pooling, Normalize, in this order");
      const path where = inside(file, text_of(file, modules[i], i, "path"));
      if (i == 0) result.transformer = where;
      if (i == 1) result.pooling = pooling_of(where);
      if (i == 2) result.normalize = true;
    }
    // Tokens themselves are what such a folder gives.
    if (modules.size() == 1) result.pooling = Pooling::none;
  }
  const path lengths = result.transformer / "sentence_bert_config.json";
  if (exists(lengths)) result.max_seq_length = Config(lengths).integer("max_seq_length", 1, Index{1} << 40, 0);
  return result;
}

}  // namespace headlane::models
