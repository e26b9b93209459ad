// How ranks agree on arguments, as a rank that threw alone would leave the others waiting; and how
// a call is abandoned in which a rank throws later.
// Header-only, since headlane::models and headlane::mpi use it as well.
#pragma once

#include <headlane/team.hpp>

#include <exception>
#include <string>

namespace headlane::internal {

/// The text of a rank that refuses something.
inline void set_refusal(std::string& text, const std::exception& error) noexcept {
  try {
    text.assign("an error, ").append(error.what());
  } catch (const std::exception&) {
    text.assign("an error");  // fits without memory
  }
}

/// Calls describe(text), which writes what must be the same on all ranks, or throws if this rank
/// refuses it. Then calls agree(text), which throws if one rank has a refusal, or if texts differ.
template <class Describe, class Agree>
void agree_on(std::string& text, const Describe& describe, const Agree& agree) {
  std::exception_ptr refused;
  try {
    text.clear();
    describe(text);
  } catch (const std::exception& error) {
    refused = std::current_exception();
    set_refusal(text, error);
  }
  agree(text);
  if (refused) std::rethrow_exception(refused);
}

/// Abandons the call of a team if an exception leaves the scope, which begins once the ranks have
/// agreed.
class StepGuard {
 public:
  /// team: null for one process.
  explicit StepGuard(Team* team) noexcept
      : team_(team), exceptions_(team == nullptr ? 0 : std::uncaught_exceptions()) {}
  ~StepGuard() {
    if (team_ != nullptr && std::uncaught_exceptions() > exceptions_) team_->abandoned();
  }
  StepGuard(const StepGuard&) = delete;
  StepGuard& operator=(const StepGuard&) = delete;

  /// Calls f(), whose exception all ranks throw: they stay in step.
  template <class F>
  void together(const F& f) {
    try {
      f();
    } catch (...) {
      team_ = nullptr;
      throw;
    }
  }

 private:
  Team* team_;
  int exceptions_;
};

}  // namespace headlane::internal
