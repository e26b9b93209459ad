#include "io/json.hpp"

#include "io/error.hpp"
#include "io/input_file.hpp"
#include "io/json_limits.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <utility>

namespace headlane::models::internal {
namespace {

using nlohmann::json;

// The index of a checkpoint of 1.6 T parameters names some 100,000 tensors.
constexpr std::size_t max_values = 1'000'000;

class Reader final : public json::json_sax_t {
 public:
  explicit Reader(const std::filesystem::path& file) : file_(file), limits_(file, max_values) {}

  Json result() { return std::move(root_); }

  bool null() override { return put(nullptr), true; }
  bool boolean(bool value) override { return put(value), true; }
  bool number_integer(number_integer_t value) override { return put(Index{value}), true; }
  bool number_unsigned(number_unsigned_t value) override {
    if (std::in_range<Index>(value)) put(static_cast<Index>(value));
    else put(std::uint64_t{value});
    return true;
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return put(value), true; }
  bool string(string_t& value) override { return put(std::move(value)), true; }
  bool binary(binary_t& /*value*/) override { return false; }  // JSON has no binary values
  bool start_object(std::size_t /*size*/) override { return open(Json::Object()), true; }
  bool key(string_t& name) override {
    limits_.name(name);
    std::get<Json::Object>(open_.back()->content).push_back({std::move(name), {}});
    return true;
  }
  bool end_object() override {
    std::ranges::sort(std::get<Json::Object>(open_.back()->content), {}, &Json::Member::name);
    return close(), true;
  }
  bool start_array(std::size_t /*size*/) override { return open(Json::List()), true; }
  bool end_array() override { return close(), true; }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/, const json::exception& error) override {
    fail_not_json(file_, error.what());
  }

 private:
  template <class T>
  Json* put(T value) {
    limits_.value();
    Json* place = &root_;
    if (!open_.empty()) {
      if (auto* list = std::get_if<Json::List>(&open_.back()->content)) place = &list->emplace_back();
      else place = &std::get<Json::Object>(open_.back()->content).back().value;
    }
    place->content = std::move(value);
    return place;
  }

  template <class T>
  void open(T container) {
    Json* const place = put(std::move(container));
    limits_.open();
    open_.push_back(place);
  }

  void close() {
    limits_.close();
    open_.pop_back();
  }

  const std::filesystem::path& file_;
  JsonLimits limits_;
  Json root_;
  std::vector<Json*> open_;  // outermost first; only the last one grows
};

void append_text(const Json& value, std::size_t limit, std::string& text) {
  const auto append_all = [&](const auto& values, char begin, char end, const auto& append_one) {
    text += begin;
    for (const auto& one : values) {
      if (text.size() > limit) return;
      if (&one != values.data()) text += ',';
      append_one(one);
    }
    text += end;
  };
  if (const auto* list = value.as<Json::List>()) {
    append_all(*list, '[', ']', [&](const Json& one) { append_text(one, limit, text); });
  } else if (const auto* object = value.as<Json::Object>()) {
    append_all(*object, '{', '}', [&](const Json::Member& one) {
      text.append(json(one.name).dump()).append(":");
      append_text(one.value, limit, text);
    });
  } else {
    std::visit(
        [&](const auto& scalar) {
          if constexpr (std::is_constructible_v<json, decltype(scalar)>) text += json(scalar).dump();
        },
        value.content);
  }
}

}  // namespace

const Json* Json::find(std::string_view name) const {
  const auto* members = as<Object>();
  if (members == nullptr) return nullptr;
  const auto found = std::ranges::lower_bound(*members, name, std::less(), &Member::name);
  return found == members->end() || found->name != name ? nullptr : &found->value;
}

const char* Json::type() const {
  constexpr std::array<const char*, 8> names{"null",   "boolean", "number", "number",
                                             "number", "string",  "array",  "object"};
  static_assert(names.size() == std::variant_size_v<decltype(content)>);
  return names[content.index()];
}

std::string Json::text(std::size_t limit) const {
  std::string result;
  append_text(*this, limit, result);
  return result;
}

Json parse_json(std::string_view text, const std::filesystem::path& file) {
  check_no_nul(text, file);
  Reader reader(file);
  json::sax_parse(text.begin(), text.end(), &reader);
  return reader.result();
}

Json read_json(const std::filesystem::path& file, std::size_t limit) {
  return parse_json(read_text(file, limit), file);
}

Json read_json_object(const std::filesystem::path& file, std::size_t limit) {
  Json result = read_json(file, limit);
  if (result.as<Json::Object>() == nullptr) fail(file, "is not a JSON object but ", result.type());
  return result;
}

}  // namespace headlane::models::internal
