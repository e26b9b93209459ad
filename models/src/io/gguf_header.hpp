// The header of a GGUF file: keys and values, then where each tensor is.
#pragma once

#include "io/gguf_types.hpp"
#include "io/input_file.hpp"

#include <headlane/models/gguf.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace headlane::models::internal {

/// A value of the metadata, checked but not decoded.
struct GgufField {
  std::uint32_t type;  ///< of the elements, if it is an array
  bool is_array;
  std::uint64_t count;   ///< of elements; 1 if it is no array
  std::size_t position;  ///< of the first element in the header
};

struct GgufTensor {
  const GgufType* type;
  std::vector<Index> shape;            ///< the outermost axis first
  std::uint64_t offset = 0, size = 0;  ///< of its data, in bytes, from the start of the file
};

struct GgufHeader {
  std::string bytes;
  std::map<std::string, GgufField, std::less<>> fields;
  std::map<std::string, GgufTensor, std::less<>> tensors;
};

/// Throws CheckpointError.
GgufHeader read_gguf(const InputFile& file);

/// Decodes a field. Throws CheckpointError, which names `path` and the key, if an integer is beyond
/// std::int64_t.
GgufValue value_of(const GgufHeader& header, const GgufField& field, const std::filesystem::path& path,
                   std::string_view key);

}  // namespace headlane::models::internal
