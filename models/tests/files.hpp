// Files for the tests, and checks of error messages.
#pragma once

#include "made_files.hpp"

#include <doctest/doctest.h>
#include <headlane/models/checkpoint_error.hpp>

#include <string>
#include <vector>

namespace headlane::test {

/// The message of the CheckpointError that a call throws; other exceptions propagate.
template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const models::CheckpointError& error) {
    return error.what();
  }
  return "no error";
}

inline void check_says(const std::string& message, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    CHECK_MESSAGE(message.find(word) != std::string::npos, "'", message, "' does not say '", word, "'");
}

}  // namespace headlane::test
