// JSON from files that are not trusted.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace headlane::models {

/// Throws CheckpointError that names `file` unless `text` is a JSON object within JsonLimits.
nlohmann::json parse_json(std::string_view text, const std::filesystem::path& file);

/// The same from a file of at most `limit` bytes.
nlohmann::json read_json(const std::filesystem::path& file, std::size_t limit);

}  // namespace headlane::models
