// PackedMatrix::joined: columns of packed matrices, panel by panel.
#include "core/call_scope.hpp"
#include "gemm/check.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>

namespace headlane {

using namespace internal;

namespace {

using kernels::panel_columns;

constexpr Caller joined_of("PackedMatrix::joined");

/// Copies the panels of a part to those from `column` on.
void copy_panels(const PackedColumns& from, Index begin, Index end, const PackedColumns& to, Index column) {
  const kernels::PanelUnit unit = kernels::unit_of(from.type);
  auto* const memory = static_cast<std::byte*>(const_cast<void*>(to.data));
  for (Index first = 0; first < from.rows; first += from.block_rows()) {
    const Index bytes = from.panel_items(first) * unit.item_bytes;
    for (Index at = begin; at < end; at += panel_columns)
      std::memcpy(memory + to.offset(first, column + at - begin), bytes_from(from.data, from.offset(first, at)),
                  static_cast<std::size_t>(bytes));
  }
  const Index width = round_up(end - begin, panel_columns);
  if (from.scales != nullptr) std::copy_n(from.scales + begin, width, const_cast<float*>(to.scales) + column);
  if (from.sums != nullptr) std::copy_n(from.sums + begin, width, const_cast<float*>(to.sums) + column);
}

}  // namespace

PackedMatrix PackedMatrix::joined(std::span<const Columns> parts) {
  const CallScope scope;
  joined_of.require(!parts.empty(), "there are no parts");
  const PackedMatrix* const like = parts.front().matrix;
  Index columns = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto& [matrix, begin, end] = parts[i];
    joined_of.require(matrix != nullptr, "parts[", i, "] has no matrix");
    joined_of.require(matrix->rows() == like->rows(), "parts[", i, "] has ", matrix->rows(), " rows, parts[0] has ",
                      like->rows());
    joined_of.require(matrix->type() == like->type(), "parts[", i, "] is of ", name_of(matrix->type()),
                      ", parts[0] of ", name_of(like->type()));
    joined_of.require(begin >= 0 && begin <= end && end <= matrix->columns() && begin % panel_columns == 0, "parts[", i,
                      "] is of columns ", begin, " … ", end, ", of ", matrix->columns(),
                      "; it must begin at a multiple of 32");
    if (__builtin_add_overflow(round_up(columns, panel_columns), end - begin, &columns) ||
        !is_packable(std::max<Index>(like->rows(), 1), columns))
      throw std::bad_alloc();
  }
  PackedMatrix result(like->rows(), columns, like->type());
  if (!result.data_) return result;
  const PackedColumns to = packed_columns(result);
  Index column = 0;
  for (const auto& [matrix, begin, end] : parts) {
    column = round_up(column, panel_columns);
    if (begin < end) copy_panels(packed_columns(*matrix), begin, end, to, column);
    column += end - begin;
  }
  return result;
}

}  // namespace headlane
