// The safetensors format: eight bytes with the length of a header, the header in JSON, the data of all tensors end to end.
#pragma once

#include <headlane/index.hpp>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headlane::models {

struct StoredTensor {
  std::string_view dtype;  // as the file names it; the text is not the file's
  std::vector<Index> shape;
  std::span<const std::byte> bytes;  // within the file, at any alignment
};

using StoredTensors = std::map<std::string, StoredTensor, std::less<>>;

/// All tensors of a file that is in memory. Accepts what the format's reference implementation accepts, but for a name that occurs
/// twice, a header that begins with a blank, an axis that Index cannot hold, and metadata that are null. Throws CheckpointError
/// that names `path`.
StoredTensors parse_safetensors(std::span<const std::byte> file, const std::filesystem::path& path);

}  // namespace headlane::models
