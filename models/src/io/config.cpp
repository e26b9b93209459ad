#include "io/config.hpp"

#include "io/error.hpp"

#include <type_traits>
#include <utility>

namespace headlane::models::internal {
namespace {

constexpr std::size_t max_bytes = std::size_t{16} << 20;
constexpr std::size_t max_shown = 1000;  // characters of a value in a message

std::optional<double> number_of(const Json& value) {
  return std::visit(
      [](const auto& content) -> std::optional<double> {
        using T = std::remove_cvref_t<decltype(content)>;
        if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) return static_cast<double>(content);
        else return std::nullopt;
      },
      value.content);
}

}  // namespace

Config::Config(std::filesystem::path file)
    : file_(std::move(file)), members_(std::make_shared<const Json>(read_json_object(file_, max_bytes))) {}

Config::Config(std::filesystem::path file, std::shared_ptr<const Json> members)
    : file_(std::move(file)), members_(std::move(members)) {}

const Json* Config::find(std::string_view key) const {
  const Json* found = members_->find(key);
  return found == nullptr || found->as<std::nullptr_t>() != nullptr ? nullptr : found;
}

bool Config::contains(std::string_view key) const { return find(key) != nullptr; }

bool Config::is_text(std::string_view key) const {
  const Json* value = find(key);
  return value != nullptr && value->as<std::string>() != nullptr;
}

std::vector<std::string> Config::keys() const {
  std::vector<std::string> result;
  for (const auto& [key, value] : *members_->as<Json::Object>()) result.push_back(key);
  return result;
}

std::optional<Config> Config::object(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->as<Json::Object>() == nullptr) fail_value(key, *value, "an object");
  return Config(file_, {members_, value});  // shares ownership of all members
}

void Config::fail_missing(std::string_view key) const { fail(file_, in_quotes(key), " is missing"); }

void Config::fail_value(std::string_view key, const Json& value, const std::string& wanted) const {
  fail(file_, in_quotes(key), " is ", shown(value.text(max_shown)), ", not ", wanted);
}

Index Config::integer_in(std::string_view key, const Json& value, Index low, Index high) const {
  const auto wanted = [&] { return "an integer from " + std::to_string(low) + " to " + std::to_string(high); };
  const auto* result = value.as<Index>();
  if (result == nullptr || *result < low || *result > high) fail_value(key, value, wanted());
  return *result;
}

std::string Config::text_in(std::string_view key, const Json& value) const {
  const auto* text = value.as<std::string>();
  if (text == nullptr) fail_value(key, value, "a string");
  return *text;
}

Index Config::integer(std::string_view key, Index low, Index high, std::optional<Index> otherwise) const {
  if (const Json* value = find(key)) return integer_in(key, *value, low, high);
  if (!otherwise) fail_missing(key);
  return *otherwise;
}

double Config::number(std::string_view key, double low, double high, std::optional<double> otherwise) const {
  if (const Json* value = find(key)) {
    const std::optional<double> result = number_of(*value);
    if (!result || *result < low || *result > high)
      fail_value(key, *value, "a number from " + Json{low}.text(max_shown) + " to " + Json{high}.text(max_shown));
    return *result;
  }
  if (!otherwise) fail_missing(key);
  return *otherwise;
}

bool Config::flag(std::string_view key, std::optional<bool> otherwise) const {
  if (const Json* value = find(key)) {
    const bool* result = value->as<bool>();
    if (result == nullptr) fail_value(key, *value, "true or false");
    return *result;
  }
  if (!otherwise) fail_missing(key);
  return *otherwise;
}

std::string Config::text(std::string_view key, std::optional<std::string> otherwise) const {
  if (const Json* value = find(key)) return text_in(key, *value);
  if (!otherwise) fail_missing(key);
  return *std::move(otherwise);
}

std::vector<Index> Config::integers(std::string_view key, Index low, Index high) const {
  const Json* value = find(key);
  if (value == nullptr) return {};
  const auto* list = value->as<Json::List>();
  if (list == nullptr) return {integer_in(key, *value, low, high)};
  std::vector<Index> result;
  for (const Json& one : *list) result.push_back(integer_in(key, one, low, high));
  return result;
}

std::vector<std::string> Config::texts(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return {};
  const auto* list = value->as<Json::List>();
  if (list == nullptr) return {text_in(key, *value)};
  std::vector<std::string> result;
  for (const Json& one : *list) result.push_back(text_in(key, one));
  return result;
}

}  // namespace headlane::models::internal
