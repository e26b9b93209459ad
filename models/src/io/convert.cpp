#include "io/convert.hpp"

#include <bit>
#include <cstdint>
#include <cstring>

namespace headlane::models::internal {
namespace {

std::uint16_t half_at(const std::byte* in, std::size_t i) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, in + sizeof bits * i, sizeof bits);
  return bits;
}

}  // namespace

// Masks instead of conditions, so that the compiler vectorizes the loop. No operand or result is
// denormal, since the thread may flush those to 0.
void convert_float16(std::span<const std::byte> in, float* out) {
  constexpr std::int32_t rebias = (127 - 15) << 23, least_normal = 1 << 23, infinite = 31 << 23;
  const std::byte* const from = in.data();
  const std::size_t n = in.size() / sizeof(std::uint16_t);
  for (std::size_t i = 0; i < n; ++i) {
    const auto bits = static_cast<std::int32_t>(half_at(from, i));
    const std::int32_t magnitude = (bits & 0x7fff) << 13;
    const std::int32_t is_small = (magnitude - least_normal) >> 31, is_finite = (magnitude - infinite) >> 31;
    const std::int32_t normal = magnitude + rebias + (rebias & ~is_finite);
    // 2^-14 · 1.m - 2^-14 = 2^-14 · 0.m
    const float difference = std::bit_cast<float>(magnitude + rebias + least_normal) - 0x1p-14f;
    const std::int32_t small = std::bit_cast<std::int32_t>(difference) & 0x7fffffff;  // rounding downward, 0 has a sign
    const std::int32_t result = (small & is_small) | (normal & ~is_small) | (bits & 0x8000) << 16;
    out[i] = std::bit_cast<float>(result);
  }
}

void convert_bfloat16(std::span<const std::byte> in, float* out) {
  const std::byte* const from = in.data();
  const std::size_t n = in.size() / sizeof(std::uint16_t);
  for (std::size_t i = 0; i < n; ++i) out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(half_at(from, i)) << 16);
}

}  // namespace headlane::models::internal
