// Settings are read by type; errors name the file and the key.
#include "files.hpp"
#include "io/config.hpp"

#include <doctest/doctest.h>

#include <limits>

namespace headlane::test {
namespace {

using models::internal::Config;

constexpr Index most = std::numeric_limits<Index>::max(), least = std::numeric_limits<Index>::min();

TEST_CASE("Settings by type") {
  const Folder folder;
  folder.write(
      "config.json",
      "\xef\xbb\xbf{ \"d_model\": 512, \"low\": -9223372036854775808, \"high\": 9223372036854775807, \"rate\": 1e-05,"
      R"("whole": 3, "yes": true, "no": false, "name": "ü\n", "nothing": null, "eos": [2, 0], "architectures":)"
      R"(["A", "B"]})");
  const Config config(folder.path() / "config.json");
  CHECK(config.contains("d_model"));
  CHECK_FALSE(config.contains("d"));
  CHECK_FALSE(config.contains("nothing"));
  CHECK(config.integer("d_model", 512, 512) == 512);
  CHECK(config.integer("low", least, 0) == least);
  CHECK(config.integer("high", 0, most) == most);
  CHECK(config.integer("absent", 1, 2, 7) == 7);
  CHECK(config.integer("nothing", 1, 2, 7) == 7);
  CHECK(config.number("rate", 0, 1) == 1e-05);
  CHECK(config.number("whole", 3, 3) == 3);
  CHECK(config.number("absent", 0, 1, 0.5) == 0.5);
  CHECK(config.flag("yes"));
  CHECK_FALSE(config.flag("no", true));
  CHECK(config.flag("absent", true));
  CHECK(config.text("name") == "ü\n");
  CHECK(config.text("nothing", "x") == "x");
  CHECK(config.integers("eos", 0, 2) == std::vector<Index>{2, 0});
  CHECK(config.integers("d_model", 0, most) == std::vector<Index>{512});
  CHECK(config.integers("absent", 0, 2).empty());
  CHECK(config.texts("architectures") == std::vector<std::string>{"A", "B"});
  CHECK(config.texts("name") == std::vector<std::string>{"ü\n"});
  CHECK(config.texts("absent").empty());
}

TEST_CASE("Settings that are wrong") {
  const Folder folder;
  folder.write(
      "config.json",
      R"({"i": 512, "f": 512.0, "big": 9223372036854775808, "huge": 18446744073709551616, "s": "512", "b": true,)"
      R"("list": [1, "x"], "n": null})");
  const Config config(folder.path() / "config.json");
  const auto check = [&](const auto& get, const std::vector<std::string>& words) {
    const std::string message = message_of(get);
    check_says(message, words);
    check_says(message, {(folder.path() / "config.json").string() + ": "});
  };
  check([&] { (void)config.integer("x", 0, 1); }, {"'x' is missing"});
  check([&] { (void)config.number("n", 0, 1); }, {"'n' is missing"});
  check([&] { (void)config.flag("x"); }, {"'x' is missing"});
  check([&] { (void)config.text("x"); }, {"'x' is missing"});
  check([&] { (void)config.integer("i", 1, 511); }, {"'i' is 512, not an integer from 1 to 511"});
  check([&] { (void)config.integer("i", 513, 600, 513); }, {"'i' is 512, not an integer from 513 to 600"});
  check([&] { (void)config.integer("f", 0, most); }, {"'f' is 512.0, not an integer from 0"});
  check([&] { (void)config.integer("big", least, most); }, {"'big' is 9223372036854775808, not an integer"});
  check([&] { (void)config.integer("huge", least, most); }, {"'huge' is 1.8446744073709552e+19, not an integer"});
  check([&] { (void)config.integer("s", 0, most); }, {"'s' is \"512\", not an integer"});
  check([&] { (void)config.integer("b", 0, most); }, {"'b' is true, not an integer"});
  check([&] { (void)config.number("s", 0, 1000); }, {"'s' is \"512\", not a number from 0.0 to 1000.0"});
  check([&] { (void)config.number("f", 0, 511.5); }, {"'f' is 512.0, not a number from 0.0 to 511.5"});
  check([&] { (void)config.number("f", 512.5, 600); }, {"'f' is 512.0, not a number from 512.5"});
  check([&] { (void)config.flag("i"); }, {"'i' is 512, not true or false"});
  check([&] { (void)config.text("i"); }, {"'i' is 512, not a string"});
  check([&] { (void)config.integers("list", 0, 1); }, {"'list' is \"x\", not an integer"});
  check([&] { (void)config.integers("list", 2, 3); }, {"'list' is 1, not an integer from 2 to 3"});
  check([&] { (void)config.texts("list"); }, {"'list' is 1, not a string"});
}

TEST_CASE("Files that are wrong") {
  const Folder folder;
  const auto reading = [&](const std::string& text) {
    folder.write("config.json", text);
    return message_of([&] { const Config config(folder.path() / "config.json"); });
  };
  check_says(message_of([&] { const Config config(folder.path() / "none.json"); }),
             {"none.json: cannot be opened: No such file"});
  check_says(reading(""), {"config.json: is empty"});
  check_says(reading("[1]"), {"config.json: is not a JSON object but array"});
  check_says(reading("{} {}"), {"is not JSON"});
  check_says(reading("{\"a\": NaN}"), {"is not JSON"});
  check_says(reading(R"({"a": 1, "a": 1})"), {"the name 'a' occurs twice"});
  check_says(reading(R"({"a": )" + std::string(32, '[') + std::string(32, ']') + "}"), {"nested too deeply"});
  CHECK(reading(R"({"a": )" + std::string(31, '[') + std::string(31, ']') + "}") == "no error");
  const std::size_t limit = std::size_t{16} << 20;
  CHECK(reading("{}" + std::string(limit - 2, ' ')) == "no error");
  check_says(reading("{}" + std::string(limit - 1, ' ')), {"has 16777217 bytes, the maximum is 16777216"});
}

}  // namespace
}  // namespace headlane::test
