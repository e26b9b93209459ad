// How the elements of a PackedMatrix are stored: conversion from float and back.
#pragma once

#include "core/round.hpp"
#include "kernels/table.hpp"

#include <headlane/dtype.hpp>

#include <cstddef>
#include <cstdint>

namespace headlane::internal {

inline const void* bytes_from(const void* data, Index bytes) { return static_cast<const std::byte*>(data) + bytes; }

/// True if each column has a scale, a float. They follow the elements, as many as there are columns
/// in whole panels.
constexpr bool has_scales(DType type) { return type == DType::int8; }

/// The rows of a group that has a scale.
inline constexpr Index group_rows = 32;

/// True if each group of rows of a column has a scale.
constexpr bool has_groups(DType type) { return kernels::unit_of(type).rows == group_rows; }

/// True if the sum of each column is kept, a float: that of its integers for int8, of its elements
/// for groups, added group by group. They follow all else, as many as there are columns in whole
/// panels.
constexpr bool has_sums(DType type) { return has_scales(type) || has_groups(type); }

/// The memory of `width` columns, a multiple of panel_columns, without scales that follow them.
constexpr Index bytes_of_panels(Index rows, Index width, DType type) {
  const kernels::PanelUnit unit = kernels::unit_of(type);
  return width / kernels::panel_columns * unit.items_of(rows) * unit.item_bytes;
}

/// scales[j] = max |column j| / 127, rounded to 16 bits: 127 · scale is then exact, and so are all
/// elements, and packing what was unpacked gives the same numbers. NaN or inf if an element is.
void find_scales(const kernels::Source& source, float* scales);

/// Packs at most block_size rows as `type`, in panels that are panel_items apart; `to` is where the
/// first row begins, `scales` are those of the columns. False if the scale of a group is beyond
/// float16, or NaN.
bool pack_stored(const kernels::Source& source, DType type, const float* scales, void* to, Index panel_items,
                 const kernels::KernelTable& kernel);

/// Row `row` of a unit in a column, an integer.
inline std::int8_t number(const void* unit, DType type, Index row, Index column) {
  switch (type) {
    case DType::int8:
      return static_cast<const kernels::Int8Quad*>(unit)[column].row[row];
    case DType::int8_group32:
      return static_cast<const kernels::Int8Group*>(unit)->numbers[row / 4][column].row[row % 4];
    case DType::int4_group32: {
      const std::uint32_t bits = static_cast<const kernels::Int4Group*>(unit)->numbers[row / 8][column].bits;
      return static_cast<std::int8_t>(static_cast<std::int32_t>(bits << (28 - 4 * (row % 8))) >> 28);
    }
    default:
      return 0;
  }
}

/// The scale of a group in a column.
inline float scale_of_group(const void* unit, DType type, Index column) {
  return static_cast<float>(type == DType::int8_group32 ? static_cast<const kernels::Int8Group*>(unit)->scales[column]
                                                        : static_cast<const kernels::Int4Group*>(unit)->scales[column]);
}

/// Row `row` of a unit in a column as float. `scale`: of integers, that of the column or the group.
template <DType type>
float widened(const void* unit, Index row, Index column, float scale) {
  if constexpr (type == DType::float32) return static_cast<const float*>(unit)[column];
  else if constexpr (type == DType::bfloat16)
    return static_cast<float>(static_cast<const kernels::BfloatPair*>(unit)[column].row[row]);
  else if constexpr (type == DType::float16) return static_cast<float>(static_cast<const float16*>(unit)[column]);
  else return static_cast<float>(number(unit, type, row, column)) * scale;
}

/// Calls f.operator()<type>().
template <class F>
void with_type(DType type, const F& f) {
  switch (type) {
    case DType::float32:
      return f.template operator()<DType::float32>();
    case DType::bfloat16:
      return f.template operator()<DType::bfloat16>();
    case DType::float16:
      return f.template operator()<DType::float16>();
    case DType::int8:
      return f.template operator()<DType::int8>();
    case DType::int8_group32:
      return f.template operator()<DType::int8_group32>();
    case DType::int4_group32:
      return f.template operator()<DType::int4_group32>();
  }
}

}  // namespace headlane::internal
