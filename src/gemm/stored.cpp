#include "gemm/stored.hpp"

#include "core/quantise.hpp"
#include "core/round.hpp"
#include "core/scratch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace headlane::internal {
namespace {

using kernels::panel_columns;

/// A denormal scale stays: it may have no 16 bits.
float scale_of(float max) {
  const float scale = max / 127.0f;
  return std::isnormal(scale) ? rounded_to_16_bits(scale) : scale;
}

/// x / scale rounded to an integer, ties to even, at most 127 in magnitude: a denormal scale has
/// few bits, and x / scale may be far from the quotient of the numbers that they were rounded from.
std::int8_t quantised(float x, float scale) {
  return nearest_integer(scale == 0.0f ? 0.0f : std::clamp(x / scale, -127.0f, 127.0f));
}

/// Elements of a column of a panel.
struct ColumnOfRows {
  const float* data;
  Index rows;
  /// Zero from the last row on.
  float operator[](Index i) const { return i < rows ? data[i * panel_columns] : 0.0f; }
};

/// The element of the largest magnitude; NaN if one is.
float largest_of(const ColumnOfRows& x) {
  float largest = 0;
  for (Index i = 0; i < x.rows && !std::isnan(largest); ++i)
    if (!(std::abs(x[i]) <= std::abs(largest))) largest = x[i];
  return largest;
}

/// Sets the scale of a group. Returns its inverse, 0 if the scale is stored as 0, or NaN if it is
/// beyond float16.
float set_scale(float scale, float16& stored) {
  stored = float16(scale);
  if (!std::isfinite(static_cast<float>(stored))) return std::numeric_limits<float>::quiet_NaN();
  return static_cast<float>(stored) == 0.0f ? 0.0f : 1.0f / scale;
}

/// As Q8_0 of GGUF: rounded to nearest, away from 0 where two are.
bool store_group(const ColumnOfRows& x, Index column, kernels::Int8Group& group) {
  const float inverse = set_scale(std::abs(largest_of(x)) / 127.0f, group.scales[column]);
  if (std::isnan(inverse)) return false;
  for (Index i = 0; i < group_rows; ++i) {
    const double q = std::clamp(x[i] * inverse, -127.0f, 127.0f);
    group.numbers[i / 4][column].row[i % 4] = static_cast<std::int8_t>(q + std::copysign(0.5, q));
  }
  return true;
}

/// As Q4_0 of GGUF: the largest element is -8 times the scale. In double, so that a sum is rounded
/// once.
bool store_group(const ColumnOfRows& x, Index column, kernels::Int4Group& group) {
  const float inverse = set_scale(largest_of(x) / -8.0f, group.scales[column]);
  if (std::isnan(inverse)) return false;
  for (Index w = 0; w < group_rows / 8; ++w) {
    std::uint32_t bits = 0;
    for (Index i = 0; i < 8; ++i) {
      const double shifted = std::clamp(double{x[8 * w + i]} * double{inverse} + 8.5, 0.0, 15.0);
      bits |= (static_cast<std::uint32_t>(shifted) ^ 8u) << (4 * i);
    }
    group.numbers[w][column].bits = bits;
  }
  return true;
}

/// Stores an element of each column as the rows of a unit; f(x, column) converts it.
template <class T, class F>
void store_rows(const float* from, Index rows, Index unit_rows, T* to, const F& f) {
  for (Index i = 0; i < unit_rows; ++i)
    for (Index j = 0; j < panel_columns; ++j)
      to[j * unit_rows + i] = i < rows ? f(from[i * panel_columns + j], j) : T();
}

/// Stores the unit of a panel that begins with `from`; `scales` are those of its columns.
bool store_unit(const float* from, Index rows, DType type, const float* scales, void* to) {
  const auto store_groups = [&](auto& group) {
    bool fits = true;
    for (Index j = 0; j < panel_columns; ++j) fits = store_group({from + j, rows}, j, group) && fits;
    return fits;
  };
  if (type == DType::int8_group32) return store_groups(*static_cast<kernels::Int8Group*>(to));
  if (type == DType::int4_group32) return store_groups(*static_cast<kernels::Int4Group*>(to));
  if (type == DType::bfloat16)
    store_rows(from, rows, 2, static_cast<bfloat16*>(to), [](float x, Index) { return bfloat16(x); });
  else if (type == DType::float16)
    store_rows(from, rows, 1, static_cast<float16*>(to), [](float x, Index) { return float16(x); });
  else
    store_rows(from, rows, 4, static_cast<std::int8_t*>(to), [&](float x, Index j) { return quantised(x, scales[j]); });
  return true;
}

/// Calls f(i, j) for all rows and columns, those whose elements are close together in the inner
/// loop.
template <class F>
void for_each_element(const kernels::Source& source, const F& f) {
  if (std::abs(source.row_step) < std::abs(source.column_step)) {
    for (Index j = 0; j < source.columns; ++j)
      for (Index i = 0; i < source.rows; ++i) f(i, j);
  } else {
    for (Index i = 0; i < source.rows; ++i)
      for (Index j = 0; j < source.columns; ++j) f(i, j);
  }
}

}  // namespace

void find_scales(const kernels::Source& source, float* scales) {
  std::fill_n(scales, source.columns, 0.0f);
  for_each_element(source, [&](Index i, Index j) {
    const float size = std::abs(source.data[i * source.row_step + j * source.column_step]);
    if (size > scales[j] || std::isnan(size)) scales[j] = size;  // NaN stays: no size is greater
  });
  for (Index j = 0; j < source.columns; ++j) scales[j] = scale_of(scales[j]);
}

bool pack_stored(const kernels::Source& source, DType type, const float* scales, void* to, Index panel_items,
                 const kernels::KernelTable& kernel) {
  if (type == DType::float32) {
    kernel.pack_panels(source, static_cast<float*>(to));
    return true;
  }
  const kernels::PanelUnit unit = kernels::unit_of(type);
  const Index panels = ceil_div(source.columns, panel_columns), panel = source.rows * panel_columns;
  float* packed = scratch(Purpose::panels, panels * panel);
  std::fill_n(packed, panels * panel, 0.0f);  // pack_panels leaves columns that no tile reads
  kernel.pack_panels(source, packed);
  bool fits = true;
  for (Index i = 0; i < panels; ++i) {
    auto* at = static_cast<std::byte*>(to) + i * panel_items * unit.item_bytes;
    for (Index row = 0; row < source.rows; row += unit.rows, at += unit.bytes())
      fits = store_unit(packed + i * panel + row * panel_columns, std::min(unit.rows, source.rows - row), type,
                        scales == nullptr ? nullptr : scales + i * panel_columns, at) &&
             fits;
  }
  return fits;
}

}  // namespace headlane::internal
