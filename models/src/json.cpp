#include "json.hpp"

#include "error.hpp"
#include "input_file.hpp"
#include "json_limits.hpp"

#include <nlohmann/json.hpp>

#include <string>

namespace headlane::models {
namespace {

using nlohmann::json;

// The index of a checkpoint of 1.6 T parameters names some 100,000 tensors.
constexpr std::size_t most_values = 1'000'000;

class LimitCheck final : public json::json_sax_t {
 public:
  explicit LimitCheck(const std::filesystem::path& file) : file_(file), limits_(file, most_values) {}

  bool null() override { return value(); }
  bool boolean(bool /*value*/) override { return value(); }
  bool number_integer(number_integer_t /*value*/) override { return value(); }
  bool number_unsigned(number_unsigned_t /*value*/) override { return value(); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return value(); }
  bool string(string_t& /*value*/) override { return value(); }
  bool binary(binary_t& /*value*/) override { return value(); }
  bool start_object(std::size_t /*size*/) override { return value(), limits_.open(), true; }
  bool key(string_t& name) override { return limits_.name(name), true; }
  bool end_object() override { return limits_.close(), true; }
  bool start_array(std::size_t /*size*/) override { return value(), limits_.open(), true; }
  bool end_array() override { return limits_.close(), true; }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/, const json::exception& error) override {
    fail_not_json(file_, error.what());
  }

 private:
  bool value() { return limits_.value(), true; }

  const std::filesystem::path& file_;
  JsonLimits limits_;
};

}  // namespace

// Twice through the text: the parser with a callback, which could check on its way, takes time quadratic in the number of
// objects in an object or array.
json parse_json(std::string_view text, const std::filesystem::path& file) {
  check_no_nul(text, file);
  LimitCheck check(file);
  json::sax_parse(text.begin(), text.end(), &check);
  json result = json::parse(text.begin(), text.end());
  if (!result.is_object()) fail(file, "is not a JSON object but ", result.type_name());
  return result;
}

json read_json(const std::filesystem::path& file, std::size_t limit) {
  return parse_json(read_text(file, limit), file);
}

}  // namespace headlane::models
