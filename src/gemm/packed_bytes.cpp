// PackedMatrix::from_bytes: elements that are packed already.
#include "core/call_scope.hpp"
#include "gemm/check.hpp"
#include "gemm/packed_units.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace headlane {

using namespace internal;

namespace {

using kernels::panel_columns;

constexpr Caller from_bytes_of("PackedMatrix::from_bytes");

/// True if one of the integers is -128, which int8 does not have.
template <class Word, Index words>
bool has_minus_128(const Word (&numbers)[words][panel_columns]) {
  const auto* const all = reinterpret_cast<const std::int8_t*>(numbers);
  signed char least = 0;
  for (Index i = 0; i < static_cast<Index>(sizeof numbers); ++i) least = std::min<signed char>(least, all[i]);
  return least == -128;
}

bool are_finite(const float16 (&scales)[panel_columns]) {
  bool finite = true;
  for (const float16 scale : scales) finite &= (scale.bits & 0x7c00) != 0x7c00;
  return finite;
}

/// False if kernels may not read the unit.
bool is_valid(const std::byte* unit, DType type) {
  switch (type) {
    case DType::int8:
      return !has_minus_128(*reinterpret_cast<const kernels::Int8Quad(*)[1][panel_columns]>(unit));
    case DType::int8_group32: {
      const auto& group = *reinterpret_cast<const kernels::Int8Group*>(unit);
      return are_finite(group.scales) && !has_minus_128(group.numbers);
    }
    case DType::int4_group32:
      return are_finite(reinterpret_cast<const kernels::Int4Group*>(unit)->scales);
    default:
      return true;
  }
}

/// Throws std::invalid_argument for the first element of a unit that is not valid.
void explain(const std::byte* unit, DType type, const Part& part) {
  for (Index j = 0; j < panel_columns; ++j) {
    const Index column = part.column + j;
    if (has_groups(type)) {
      const float scale = scale_of_group(unit, type, j);
      from_bytes_of.require(std::isfinite(scale), "the scale [", part.row / group_rows, ", ", column, "] is ",
                            text_of(scale), "; a scale must be finite");
    }
    for (Index i = 0; i < kernels::unit_of(type).rows; ++i)
      from_bytes_of.require(number(unit, type, i, j) != -128, "the number [", part.row + i, ", ", column, "] is -128; ",
                            name_of(type), " has -127 … 127");
  }
}

/// Products may read the rows that fill up a unit.
void check_rest(const std::byte* unit, DType type, const Part& part) {
  for (Index i = part.rows; i < kernels::unit_of(type).rows; ++i)
    for (Index j = 0; j < panel_columns; ++j) {
      const bool is_zero = type == DType::bfloat16
                               ? reinterpret_cast<const kernels::BfloatPair*>(unit)[j].row[i].bits == 0
                               : number(unit, type, i, j) == 0;
      from_bytes_of.require(is_zero, "the element [", part.row + i, ", ", part.column + j,
                            "] is not 0, and behind the last row");
    }
}

void check_elements(const PackedMatrix& matrix) {
  const PackedColumns all = packed_columns(matrix);
  for (Index j = 0; all.scales != nullptr && j < all.width; ++j)
    from_bytes_of.require(std::isfinite(127.0f * all.scales[j]), "the scale [", j, "] is ", text_of(all.scales[j]),
                          "; 127 times a scale must be finite");
  if (all.type == DType::float32 || all.type == DType::float16) return;
  for_each_unit(all, matrix.columns(), 1, [&](const std::byte* unit, const Part& part) {
    if (!is_valid(unit, all.type)) explain(unit, all.type, part);
    check_rest(unit, all.type, part);
  });
}

}  // namespace

PackedMatrix PackedMatrix::from_bytes(std::span<const std::byte> bytes, Index rows, Index columns, DType type) {
  const CallScope scope;
  check_type(from_bytes_of, type);
  from_bytes_of.require(rows >= 0, "rows is ", rows, ", the minimum is 0");
  from_bytes_of.require(columns >= 0, "columns is ", columns, ", the minimum is 0");
  from_bytes_of.require(is_packable(rows, columns), "a matrix of ", rows, " x ", columns, " does not fit into memory");
  const std::size_t size = bytes_of_matrix(rows, columns, type);
  from_bytes_of.require(bytes.size() == size, "bytes has ", bytes.size(), " bytes, a matrix of ", rows, " x ", columns,
                        " of ", name_of(type), " has ", size);
  if (size == 0) return {rows, columns, type};
  from_bytes_of.require(bytes.data() != nullptr, "bytes has no data (null)");
  PackedMatrix result(rows, columns, type);
  std::memcpy(result.data_.get(), bytes.data(), size);
  check_elements(result);
  set_sums(result, 1);
  return result;
}

}  // namespace headlane
