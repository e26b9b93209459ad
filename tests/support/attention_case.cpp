#include "support/attention_case.hpp"

#include <sstream>
#include <type_traits>

namespace headlane::test {

namespace {

template <class Option>
std::string text_of(const char* name, const Option& option) {
  std::ostringstream text;
  if constexpr (std::is_same_v<Option, View<const Index, 1>>) {
    text << name;
    for (Index i = 0; option && i < option.size(0) && option.size(0) <= 8; ++i) text << " " << option(i);
    if (!option) return {};
  } else if constexpr (requires { option.has_value(); }) {
    if (option) text << name << " " << *option;
  } else if constexpr (requires { option.data(); }) {
    if (!option.empty()) text << name << " " << option.size();
  } else if constexpr (requires { option.data; }) {
    if (option) text << name;
  } else {
    text << name << " " << option;
  }
  return text.str();
}

}  // namespace

std::vector<std::string> option_texts(const AttentionOptions& options) {
  std::vector<std::string> texts;
  for_each_option(options, [&](const char* name, const auto& option) { texts.push_back(text_of(name, option)); });
  return texts;
}

std::string text_of(const AttentionSizes& s, const AttentionOptions& options) {
  std::ostringstream text;
  text << "batch " << s.batch << ", heads " << s.q_heads << "/" << s.kv_heads << ", q " << s.q_length << ", kv "
       << s.kv_length << ", head_dim " << s.head_dim << ", value_dim " << s.value_dim;
  const std::vector<std::string> given = option_texts(options), defaults = option_texts({});
  for (std::size_t i = 0; i < given.size(); ++i)
    if (given[i] != defaults[i]) text << ", " << given[i];
  return text.str();
}

}  // namespace headlane::test
