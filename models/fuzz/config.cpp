// The input is config.json; every member is read as every type.
#include "io/config.hpp"

#include "fuzz.hpp"

#include <limits>

using namespace headlane;

namespace {

void ask(const models::internal::Config& config, const std::string& key, int depth) {
  constexpr Index low = std::numeric_limits<Index>::min(), high = std::numeric_limits<Index>::max();
  const auto attempt = [](const auto& call) { fuzz::expect_checkpoint_error(call); };
  attempt([&] { (void)config.contains(key); });
  attempt([&] { (void)config.is_text(key); });
  attempt([&] { (void)config.integer(key, low, high); });
  attempt([&] { (void)config.integer(key, 1, 100, 7); });
  attempt([&] { (void)config.number(key, -1e30, 1e30); });
  attempt([&] { (void)config.number(key, 0, 1, 0.5); });
  attempt([&] { (void)config.flag(key); });
  attempt([&] { (void)config.text(key); });
  attempt([&] { (void)config.integers(key, low, high); });
  attempt([&] { (void)config.texts(key); });
  attempt([&] {
    const auto object = config.object(key);
    if (!object || depth == 3) return;
    for (const std::string& inner : object->keys()) ask(*object, inner, depth + 1);
  });
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static fuzz::InputFolder<1> input({"config.json"});
  input.write(fuzz::text_of(data, size));
  fuzz::expect_checkpoint_error([&] {
    const models::internal::Config config(input.path() / "config.json");
    for (const std::string& key : config.keys()) ask(config, key, 0);
    ask(config, "absent", 0);
  });
  return 0;
}
