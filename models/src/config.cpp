#include "config.hpp"

#include "error.hpp"
#include "json.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <limits>
#include <utility>

namespace headlane::models {
namespace {

using nlohmann::json;

constexpr std::size_t most_bytes = std::size_t{16} << 20;

}  // namespace

Config::Config(std::filesystem::path file)
    : file_(std::move(file)), members_(std::make_shared<const json>(read_json(file_, most_bytes))) {}

Config::Config(std::filesystem::path file, std::shared_ptr<const json> members)
    : file_(std::move(file)), members_(std::move(members)) {}

const json* Config::find(std::string_view key) const {
  const auto found = members_->find(std::string(key));
  return found == members_->end() || found->is_null() ? nullptr : &*found;
}

bool Config::contains(std::string_view key) const { return find(key) != nullptr; }

bool Config::is_text(std::string_view key) const {
  const json* value = find(key);
  return value != nullptr && value->is_string();
}

std::vector<std::string> Config::keys() const {
  std::vector<std::string> result;
  for (const auto& [key, value] : members_->items()) result.push_back(key);
  return result;
}

std::optional<Config> Config::object(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) fail_value(key, *value, "an object");
  return Config(file_, {members_, value});  // lives as long as all members
}

void Config::fail_missing(std::string_view key) const { fail(file_, in_quotes(key), " is missing"); }

void Config::fail_value(std::string_view key, const json& value, const std::string& wanted) const {
  fail(file_, in_quotes(key), " is ", shown(value.dump()), ", not ", wanted);
}

Index Config::integer_in(std::string_view key, const json& value, Index low, Index high) const {
  const auto wanted = [&] { return "an integer from " + std::to_string(low) + " to " + std::to_string(high); };
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<Index>::max());
  if (!value.is_number_integer()) fail_value(key, value, wanted());
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > most) fail_value(key, value, wanted());
  const auto result = value.get<Index>();
  if (result < low || result > high) fail_value(key, value, wanted());
  return result;
}

std::vector<Index> Config::integers_in(std::string_view key, const json& value, Index low, Index high) const {
  if (!value.is_array()) return {integer_in(key, value, low, high)};
  std::vector<Index> result;
  for (const json& one : value) result.push_back(integer_in(key, one, low, high));
  return result;
}

std::string Config::text_in(std::string_view key, const json& value) const {
  if (!value.is_string()) fail_value(key, value, "a string");
  return value.get<std::string>();
}

Index Config::integer(std::string_view key, Index low, Index high, std::optional<Index> otherwise) const {
  if (const json* value = find(key)) return integer_in(key, *value, low, high);
  if (!otherwise) fail_missing(key);
  return *otherwise;
}

double Config::number(std::string_view key, double low, double high, std::optional<double> otherwise) const {
  if (const json* value = find(key)) {
    const double result = value->is_number() ? value->get<double>() : 0;
    if (!value->is_number() || result < low || result > high)
      fail_value(key, *value, "a number from " + json(low).dump() + " to " + json(high).dump());
    return result;
  }
  if (!otherwise) fail_missing(key);
  return *otherwise;
}

bool Config::flag(std::string_view key, std::optional<bool> otherwise) const {
  if (const json* value = find(key)) {
    if (!value->is_boolean()) fail_value(key, *value, "true or false");
    return value->get<bool>();
  }
  if (!otherwise) fail_missing(key);
  return *otherwise;
}

std::string Config::text(std::string_view key, std::optional<std::string> otherwise) const {
  if (const json* value = find(key)) return text_in(key, *value);
  if (!otherwise) fail_missing(key);
  return *std::move(otherwise);
}

std::vector<Index> Config::integers(std::string_view key, Index low, Index high) const {
  const json* value = find(key);
  return value == nullptr ? std::vector<Index>{} : integers_in(key, *value, low, high);
}

std::vector<std::string> Config::texts(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) return {text_in(key, *value)};
  std::vector<std::string> result;
  for (const json& one : *value) result.push_back(text_in(key, one));
  return result;
}

std::vector<std::vector<Index>> Config::integer_lists(std::string_view key, Index low, Index high) const {
  const json* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) fail_value(key, *value, "a list of lists");
  std::vector<std::vector<Index>> result;
  for (const json& list : *value) {
    if (!list.is_array()) fail_value(key, list, "a list of integers");
    result.push_back(integers_in(key, list, low, high));
  }
  return result;
}

}  // namespace headlane::models
