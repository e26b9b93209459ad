// CheckpointError: thrown if a file of a model cannot be used.
#pragma once

#include <headlane/export.h>

#include <stdexcept>

namespace headlane::models {

/// A file of a model is missing, damaged, or does not hold what was requested. The message names
/// the file, the tensor or key, and the reason.
class HEADLANE_API CheckpointError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace headlane::models
