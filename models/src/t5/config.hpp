// Reads the settings of a T5.
#pragma once

#include <headlane/models/t5.hpp>

#include <filesystem>

namespace headlane::models::internal {

/// Reads config.json and, if it exists, generation_config.json of a folder. Sizes and token ids are
/// checked.
T5Config read_t5_config(const std::filesystem::path& folder);

}  // namespace headlane::models::internal
