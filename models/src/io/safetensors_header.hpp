// The entries of a safetensors header.
#pragma once

#include "io/safetensors.hpp"

namespace headlane::models::internal {

/// What the header says, each tensor checked by itself, with offsets from the start of the data. Stops at the first entry that is
/// wrong, so that a header that is not one of tensors costs nothing. Throws CheckpointError that names `path` and the tensor.
StoredTensors read_entries(std::string_view header, std::uint64_t data_bytes, const std::filesystem::path& path);

}  // namespace headlane::models::internal
