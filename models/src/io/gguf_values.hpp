// The types of the values of GGUF's metadata.
#pragma once

#include <cstdint>

namespace headlane::models::internal {

enum GgufValueType : std::uint32_t {
  gguf_uint8,
  gguf_int8,
  gguf_uint16,
  gguf_int16,
  gguf_uint32,
  gguf_int32,
  gguf_float32,
  gguf_bool,
  gguf_string,
  gguf_array,
  gguf_uint64,
  gguf_int64,
  gguf_float64,
};

/// The bytes of a value that is no string and no array.
constexpr std::uint64_t width_of_value(std::uint32_t type) {
  constexpr std::uint64_t widths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return widths[type];
}

}  // namespace headlane::models::internal
