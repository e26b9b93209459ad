// How ranks agree on arguments: a rank that threw alone would leave the others waiting.
// Header-only, since headlane::models and headlane::mpi use it as well.
#pragma once

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

}  // namespace headlane::internal
