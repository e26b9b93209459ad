// Conversion of 16-bit floats to float32: exact, and the payload of a NaN is kept.
#pragma once

#include <cstddef>
#include <span>

namespace headlane::models::internal {

/// `in` holds two bytes for each element of `out`, at any alignment.
void convert_float16(std::span<const std::byte> in, float* out);
void convert_bfloat16(std::span<const std::byte> in, float* out);

}  // namespace headlane::models::internal
