// The safetensors format: eight bytes with the length of a header, the header in JSON, the data of all tensors end to end.
#pragma once

#include "io/input_file.hpp"

#include <headlane/index.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace headlane::models::internal {

struct StoredTensor {
  std::string_view dtype;  // as the file names it; the text is not the file's
  std::vector<Index> shape;
  std::uint64_t offset = 0, size = 0;  // of its data, in bytes, from the start of the file
};

using StoredTensors = std::map<std::string, StoredTensor, std::less<>>;

/// All tensors of a file, in time and memory linear in the length of the header. Accepts what the format's reference
/// implementation accepts, except for
///   - a name that occurs twice, metadata that are null, a header that begins with a blank;
///   - an entry that is a list of its members' values, and a dtype that is an object;
///   - an axis that Index cannot hold, and more than 64 axes, the limit of NumPy and PyTorch;
///   - more than 65,536 values that describe no tensor, nested within 32 levels: the header's limit of 100 MB, which is the
///     reference implementation's, would allow for 50 million of them, which take seconds and gigabytes.
/// Throws CheckpointError.
StoredTensors read_safetensors(const InputFile& file);

/// The same of a header without its length, in front of so many bytes of data. Throws CheckpointError that names `path`.
StoredTensors parse_header(std::string_view header, std::uint64_t data_bytes, const std::filesystem::path& path);

}  // namespace headlane::models::internal
