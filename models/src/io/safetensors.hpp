// The safetensors format: eight bytes with the length of the header, the header in JSON, the data
// of all tensors back to back.
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
  std::string_view dtype;  // as in the file, but a string literal
  std::vector<Index> shape;
  std::uint64_t offset = 0, size = 0;  // of its data, in bytes, from the start of the file
};

using StoredTensors = std::map<std::string, StoredTensor, std::less<>>;

/// All tensors of a file, in time and memory linear in the length of the header. Accepts what the
/// reference implementation of the format accepts, except for
///   - a name that occurs twice, null as metadata, a header that begins with a blank;
///   - an entry that is a list of the values of its members, and a dtype that is an object;
///   - a size that Index cannot hold, and more than 64 axes, the limit of NumPy and PyTorch;
///   - more than 65,536 values that describe no tensor, nested within 32 levels. The limit of 100
///     MB on the header, as in the reference implementation, would allow 50 million of them,
///     which take seconds and gigabytes.
/// Throws CheckpointError.
StoredTensors read_safetensors(const InputFile& file);

/// The same for a header without its length, before `data_bytes` bytes of data. Throws
/// CheckpointError, which names `path`.
StoredTensors parse_header(std::string_view header, std::uint64_t data_bytes, const std::filesystem::path& path);

}  // namespace headlane::models::internal
