// What the ranks of a team compare, so that all of them stop where one would go another way.
#pragma once

#include "core/agreement.hpp"
#include "io/digest.hpp"

#include <headlane/models/model_options.hpp>
#include <headlane/runtime.hpp>
#include <headlane/team.hpp>

#include <array>
#include <charconv>
#include <concepts>
#include <memory>
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

/// Calls describe(), which returns what all ranks must have, or throws if this rank refuses it. If
/// one rank throws, or if texts differ, all throw. A refusal begins with "an error, ".
template <class Describe>
void compare(Team& team, const char* what, const Describe& describe) {
  std::string text;
  headlane::internal::agree_on(
      text, [&](std::string& own) { own = describe(); }, [&](const std::string& own) { team.agree(what, own); });
}

/// Begins a call: check() throws if this rank refuses its arguments; describe() returns what must
/// be the same on all ranks.
template <class Check, class Describe>
void check_together(Team* team, const char* function, const Check& check, const Describe& describe) {
  if (!is_divided(team)) return check();
  compare(*team, function, [&] {
    check();
    return describe();
  });
}

/// Guards the rest of a call, once the ranks have agreed on its arguments.
inline headlane::internal::StepGuard guard_of(Team* team) {
  return headlane::internal::StepGuard(is_divided(team) ? team : nullptr);
}

/// Calls load(), which returns what all ranks must have. If it throws on one rank, all throw.
template <class Load>
void load_together(Team* team, const char* what, const Load& load) {
  if (is_divided(team)) compare(*team, what, [&] { return "headlane " + std::string(version()) + ", " + load(); });
  else load();
}

/// The team of the layers of a model, which compare nothing: the model has.
class ComparedTeam final : public Team {
 public:
  explicit ComparedTeam(Team& team) : team_(team) {}

  [[nodiscard]] int rank() const override { return team_.rank(); }
  [[nodiscard]] int size() const override { return team_.size(); }
  void all_gather(float* buffer, std::span<const Index> begins) override { team_.all_gather(buffer, begins); }
  void agree(std::string_view /*what*/, std::string_view /*mine*/) override {}

 private:
  Team& team_;
};

/// Null for null.
inline std::unique_ptr<Team> compared(Team* team) {
  return team == nullptr ? nullptr : std::make_unique<ComparedTeam>(*team);
}

/// With the team of the layers in place of that of the model.
inline ModelOptions options_of_layers(ModelOptions options, Team* of_layers) {
  options.team = of_layers;
  return options;
}

}  // namespace headlane::models::internal
