// What the ranks of a team compare before they compute: a rank that throws alone would leave the
// others waiting.
#pragma once

#include "core/agreement.hpp"
#include "core/call_scope.hpp"
#include "core/check.hpp"
#include "core/scratch.hpp"
#include "layers/description.hpp"

#include <headlane/team.hpp>

#include <string>

namespace headlane::internal {

/// While it lives, the layers that this thread makes or calls compare nothing: the one that they
/// belong to has, or will. An exception that leaves it abandons the call of the team, if one is
/// given.
class ComparedScope {
 public:
  explicit ComparedScope(Team* team = nullptr) noexcept;
  ComparedScope(const ComparedScope&) = delete;
  ComparedScope& operator=(const ComparedScope&) = delete;
  ~ComparedScope();

 private:
  bool outer_;
  StepGuard guard_;
};

/// True if the ranks of the team compare a call that this thread begins.
bool compares(const Team* team);

/// Calls describe(text), which tells what must be the same on all ranks, or throws if this rank
/// refuses it. If one rank throws, or if texts differ, all throw. Collective.
template <class Describe>
void compare(Team& team, const char* what, std::string& text, const Describe& describe) {
  agree_on(text, describe, [&](const std::string& own) { team.agree(what, own); });
}

/// The text that a thread keeps, so that a call allocates nothing once warm.
struct CallText {
  std::string text;
};

/// Begins a call: check() throws if this rank refuses its arguments, describe(description) tells
/// what must be the same everywhere.
template <class Check, class Describe>
void check_together(Team* team, Caller caller, const Check& check, const Describe& describe) {
  if (!compares(team)) return check();
  compare(*team, caller.function(), kept_object<CallText>().text, [&](std::string& text) {
    check();
    Description description(text);
    describe(description);
  });
}

void add_version(Description& description);

/// Makes a layer: make() throws if this rank refuses its arguments, describe(description) tells
/// what must be the same everywhere.
template <class Make, class Describe>
void make_together(Team* team, const char* layer, const Make& make, const Describe& describe) {
  const CallScope scope;
  if (!compares(team)) return make();
  std::string own;
  compare(*team, layer, own, [&](std::string& text) {
    const ComparedScope parts;
    make();
    Description description(text);
    add_version(description);
    describe(description);
  });
}

}  // namespace headlane::internal
