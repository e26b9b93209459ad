#include "gemm/stored.hpp"

#include "core/round.hpp"
#include "core/scratch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace headlane::internal {
namespace {

using kernels::panel_columns;

template <class T>
void convert(std::span<const float> from, void* to) {
  auto* elements = static_cast<T*>(to);
  for (std::size_t i = 0; i < from.size(); ++i) elements[i] = T(from[i]);
}

/// To nearest, ties to even. A denormal number stays: it may have no 16 bits.
float rounded_to_16_bits(float x) {
  const auto word = std::bit_cast<std::uint32_t>(x);
  const bool is_normal = word >= 0x00800000u && word < 0x7f800000u;
  return is_normal ? std::bit_cast<float>((word + 0x7fu + (word >> 8 & 1u)) & ~0xffu) : x;
}

/// rint(x / scale), at most 127 in magnitude: a denormal scale has few bits, and x / scale may be
/// far from the quotient of the numbers that they were rounded from.
std::int8_t quantised(float x, float scale) {
  return static_cast<std::int8_t>(scale == 0.0f ? 0.0f : std::clamp(std::nearbyint(x / scale), -127.0f, 127.0f));
}

/// Panels of `rows` rows, whose columns have these scales.
void quantise(std::span<const float> panels, Index rows, const float* scales, void* to) {
  auto* elements = static_cast<std::int8_t*>(to);
  const Index panel = rows * panel_columns;
  for (Index i = 0; i < std::ssize(panels); ++i)
    elements[i] = quantised(panels[static_cast<std::size_t>(i)], scales[i / panel * panel_columns + i % panel_columns]);
}

}  // namespace

void find_scales(const kernels::Source& source, float* scales) {
  std::fill_n(scales, source.columns, 0.0f);
  for (Index i = 0; i < source.rows; ++i)
    for (Index j = 0; j < source.columns; ++j) {
      const float size = std::abs(source.data[i * source.row_step + j * source.column_step]);
      if (!(size <= scales[j])) scales[j] = size;  // NaN stays
    }
  for (Index j = 0; j < source.columns; ++j) scales[j] = rounded_to_16_bits(scales[j] / 127.0f);
}

void pack_stored(const kernels::Source& source, DType type, const float* scales, void* to,
                 const kernels::KernelTable& kernel) {
  if (type == DType::float32) return kernel.pack_panels(source, static_cast<float*>(to));
  const Index size = source.rows * round_up(source.columns, panel_columns);
  const std::span<float> panels(scratch(Purpose::panels, size), static_cast<std::size_t>(size));
  std::ranges::fill(panels, 0.0f);  // pack_panels leaves columns that no tile reads
  kernel.pack_panels(source, panels.data());
  if (type == DType::bfloat16) return convert<bfloat16>(panels, to);
  if (type == DType::float16) return convert<float16>(panels, to);
  quantise(panels, source.rows, scales, to);
}

float widened(const void* data, DType type, Index i) {
  if (type == DType::bfloat16) return static_cast<float>(static_cast<const bfloat16*>(data)[i]);
  if (type == DType::float16) return static_cast<float>(static_cast<const float16*>(data)[i]);
  if (type == DType::int8) return static_cast<float>(static_cast<const std::int8_t*>(data)[i]);
  return static_cast<const float*>(data)[i];
}

}  // namespace headlane::internal
