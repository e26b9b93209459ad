// Numbers of 16 bits to float32. Every one of them is a float32, so nothing is rounded; the payload of a NaN is kept.
#pragma once

#include <cstddef>
#include <span>

namespace headlane::models::internal {

/// `in` holds two bytes for each element of `out`, at any alignment.
void convert_float16(std::span<const std::byte> in, float* out);
void convert_bfloat16(std::span<const std::byte> in, float* out);

}  // namespace headlane::models::internal
