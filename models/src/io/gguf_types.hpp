// The types of tensors that GGUF files have: blocks of elements.
#pragma once

#include <headlane/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace headlane::models::internal {

struct GgufType {
  std::uint32_t number;  ///< in the file
  std::string_view name;
  std::uint32_t elements, bytes;  ///< of a block
  /// Converts whole blocks to float; null: cannot be loaded.
  void (*dequantise)(std::span<const std::byte> blocks, float* out) = nullptr;
  /// The type of PackedMatrix that holds the same numbers and scales, if there is one.
  std::optional<DType> stored = {};
};

/// Null for a number that stands for no type.
const GgufType* find_gguf_type(std::uint32_t number);

/// The numbers and scales of whole blocks of Q8_0 and Q4_0, 32 numbers for a scale.
void split_blocks(std::span<const std::byte> blocks, DType stored, std::int8_t* numbers, float16* scales);

}  // namespace headlane::models::internal
