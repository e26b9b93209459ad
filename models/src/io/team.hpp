// What the ranks of a team compare, so that all of them stop where one would go another way.
#pragma once

#include "io/digest.hpp"

#include <headlane/runtime.hpp>
#include <headlane/team.hpp>

#include <array>
#include <charconv>
#include <concepts>
#include <exception>
#include <span>
#include <string>
#include <string_view>

namespace headlane::models::internal {

/// A text of names and values: "d_model 24, layers 2", after what it describes, if that is given:
/// "T5 of d_model 24, layers 2".
class Description {
 public:
  Description() = default;
  explicit Description(std::string_view what) : text_(std::string(what) + " of ") {}

  Description& add(std::string_view name, std::string_view value) {
    text_.append(first_ ? "" : ", ").append(name).append(" ").append(value);
    first_ = false;
    return *this;
  }
  Description& add(std::string_view name, const char* value) { return add(name, std::string_view(value)); }
  Description& add(std::string_view name, std::integral auto value) {
    return add_number(name, static_cast<Index>(value));
  }
  /// With all its digits.
  Description& add(std::string_view name, std::floating_point auto value) { return add_number(name, value); }
  Description& add(std::string_view name, std::span<const Index> values) {
    std::string list;
    for (const Index value : values) list.append(list.empty() ? "" : " ").append(std::to_string(value));
    return add(name, "[" + list + "]");
  }
  Description& add(std::string_view name, const Digest& digest) { return add(name, digest.text()); }

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  template <class Number>
  Description& add_number(std::string_view name, Number value) {
    std::array<char, 40> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value);
    return add(name, std::string_view(digits.data(), end.ptr));
  }

  std::string text_;
  bool first_ = true;
};

/// True if there is more than one rank.
inline bool is_divided(const Team* team) { return team != nullptr && team->size() > 1; }

/// All ranks make the same call: describe() returns the same text. Before anything is checked,
/// since a rank that throws alone leaves the others waiting.
template <class Describe>
void agree_on_call(Team* team, const char* function, const Describe& describe) {
  if (is_divided(team)) team->agree(function, describe());
}

/// Calls load(), which returns what all ranks must have. If it throws on one rank, all throw.
template <class Load>
void load_together(Team* team, const char* what, const Load& load) {
  if (!is_divided(team)) {
    load();
    return;
  }
  std::string mine;
  std::exception_ptr error;
  try {
    mine = "headlane " + std::string(version()) + ", " + load();
  } catch (const std::exception& failure) {
    error = std::current_exception();
    mine = std::string("failed: ") + failure.what();
  }
  team->agree(what, mine);
  if (error) std::rethrow_exception(error);
}

}  // namespace headlane::models::internal
