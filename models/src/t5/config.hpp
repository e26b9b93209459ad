// Reads T5's settings.
#pragma once

#include <headlane/models/t5.hpp>

#include <filesystem>

namespace headlane::models::internal {

/// config.json and, if it is there, generation_config.json of a folder; checked, so that sizes are sound and ids are of the vocabulary.
T5Config read_t5_config(const std::filesystem::path& folder);

}  // namespace headlane::models::internal
