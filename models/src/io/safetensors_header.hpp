// The entries of a safetensors header.
#pragma once

#include "io/safetensors.hpp"

namespace headlane::models::internal {

/// The entries of the header, each checked by itself, with offsets from the start of the data.
/// Stops at the first error, so a header of something else costs nothing. Throws CheckpointError,
/// which names `path` and the tensor.
StoredTensors read_entries(std::string_view header, std::uint64_t data_bytes, const std::filesystem::path& path);

}  // namespace headlane::models::internal
