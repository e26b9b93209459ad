// for_each_option: every option once, in the order of AttentionOptions.
#include <doctest/doctest.h>
#include <headlane/attention_options.hpp>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace headlane::test {
namespace {

TEST_CASE("for_each_option names every option once, in the order of their members") {
  AttentionOptions options;
  std::vector<std::string> names;
  std::vector<const void*> members;
  for_each_option(options, [&](const char* name, auto& member) {
    names.emplace_back(name);
    members.push_back(&member);
  });
  CHECK(names.size() == 24);
  CHECK(std::ranges::is_sorted(members, std::less<>()));
  CHECK(std::ranges::adjacent_find(members) == members.end());
  std::ranges::sort(names);
  CHECK(std::ranges::adjacent_find(names) == names.end());
}

TEST_CASE("for_each_option passes the members themselves") {
  AttentionOptions options;
  for_each_option(options, [](const std::string& name, auto& member) {
    if constexpr (requires { member = 7; })
      if (name == "causal_offset" || name == "relative_bias.max_distance" || name == "num_threads") member = 7;
  });
  CHECK(options.causal_offset == 7);
  CHECK(options.relative_bias.max_distance == 7);
  CHECK(options.num_threads == 7);
  CHECK(options.window_left == -1);
}

}  // namespace
}  // namespace headlane::test
