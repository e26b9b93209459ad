// PackedMatrix: elements back as floats, of the whole matrix or of some columns.
#include "core/call_scope.hpp"
#include "gemm/check.hpp"
#include "gemm/packed_units.hpp"

#include <algorithm>
#include <cstdlib>

namespace headlane {

using namespace internal;

namespace {

using kernels::panel_columns;

/// Rows of a panel that are widened at a time, of whole units: 16 KiB of floats, in the L1.
constexpr Index rows_at_once = 128;

/// A unit of a panel as rows of floats. `scales` are those of its columns, if they have any.
template <DType type>
void widen_unit(const void* unit, const float* scales, Index rows, float* to) {
  float of_columns[panel_columns] = {};
  for (Index j = 0; j < panel_columns; ++j)
    if constexpr (has_groups(type)) of_columns[j] = scale_of_group(unit, type, j);
    else if constexpr (has_scales(type)) of_columns[j] = scales[j];
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < panel_columns; ++j) to[i * panel_columns + j] = widened<type>(unit, i, j, of_columns[j]);
}

/// Rows of the panel that begins at a column, as floats; `buffer` is where they are widened.
const float* widened_rows(const PackedColumns& from, Index row, Index rows, Index column, float* buffer) {
  const void* const units = bytes_from(from.data, from.offset(row, column));
  if (from.type == DType::float32) return static_cast<const float*>(units);
  with_type(from.type, [&]<DType type> {
    constexpr kernels::PanelUnit unit = kernels::unit_of(type);
    for (Index first = 0; first < rows; first += unit.rows)
      widen_unit<type>(bytes_from(units, first / unit.rows * unit.bytes()), offset_by(from.scales, column),
                       std::min(unit.rows, rows - first), buffer + first * panel_columns);
  });
  return buffer;
}

/// Copies rows of panel_columns floats, those that are close together in `to` in the inner loop.
template <class T>
void copy(const float* from, const View<T, 2>& to) {
  const auto [rows, columns] = to.shape;
  const auto [row_step, column_step] = to.strides;
  const auto length = [](Index step, Index count) { return count <= 1 ? 0 : std::abs(step); };
  if (length(row_step, rows) < length(column_step, columns)) {
    for (Index j = 0; j < columns; ++j) {
      T* const column = to.data + j * column_step;
      if (row_step == 1)
        for (Index i = 0; i < rows; ++i) column[i] = T(from[i * panel_columns + j]);
      else
        for (Index i = 0; i < rows; ++i) column[i * row_step] = T(from[i * panel_columns + j]);
    }
    return;
  }
  for (Index i = 0; i < rows; ++i, from += panel_columns) {
    T* const row = to.data + i * row_step;
    if (column_step == 1)
      for (Index j = 0; j < columns; ++j) row[j] = T(from[j]);
    else
      for (Index j = 0; j < columns; ++j) row[j * column_step] = T(from[j]);
  }
}

}  // namespace

template <class T>
void PackedMatrix::unpack_all(const View<T, 2>& out, int num_threads) const {
  constexpr Caller caller("PackedMatrix::unpack");
  const Operand to = caller.operand("out", out);
  check_output(to);
  to.require(out.shape[0] == rows_ && out.shape[1] == columns_, " is ", to, ", the matrix is ", rows_, " x ", columns_);
  check_threads(caller, num_threads);
  if (data_ == nullptr) return;
  const CallScope scope;  // its rounding
  const PackedColumns all = packed_columns(*this);
  constexpr Index rows_of_task = kernels::block_size;
  const Index blocks = ceil_div(rows_, rows_of_task);
  parallel_for(all.width / panel_columns * blocks, threads_for(*this, num_threads), [&](Index task) {
    const Index column = task / blocks * panel_columns, first = task % blocks * rows_of_task;
    const Index columns = std::min<Index>(panel_columns, columns_ - column),
                end = std::min<Index>(rows_, first + rows_of_task);
    alignas(64) float buffer[rows_at_once * panel_columns];
    for (Index row = first; row < end; row += rows_at_once) {
      const Index rows = std::min(rows_at_once, end - row);
      copy(widened_rows(all, row, rows, column, buffer), View<T, 2>(&out(row, column), {rows, columns}, out.strides));
    }
  });
}

template <class T>
void PackedMatrix::unpack_some(const View<const Index, 1>& columns, const View<T, 2>& out, int num_threads) const {
  constexpr Caller caller("PackedMatrix::unpack_columns");
  const Operand from = caller.operand("columns", columns), to = caller.operand("out", out);
  check_operand(from);
  check_output(to);
  to.require(out.shape[0] == columns.shape[0] && out.shape[1] == rows_, " is ", to, ", it must be ", columns.shape[0],
             " x ", rows_, ": a row for each of the columns");
  check_no_overlap(to, from);
  check_threads(caller, num_threads);
  const Index count = columns.shape[0];
  for (Index i = 0; i < count; ++i)
    from.require(columns(i) >= 0 && columns(i) < columns_, "[", i, "] is ", columns(i), ", the matrix has ", columns_,
                 " columns");
  if (count == 0 || data_ == nullptr) return;
  const CallScope scope;  // its rounding
  const PackedColumns all = packed_columns(*this);
  const int threads = useful_threads(0, static_cast<double>(count) * static_cast<double>(rows_), num_threads);
  parallel_parts(count, 1, threads, [&](Index first, Index end) {
    for (Index i = first; i < end; ++i) for_column(all, columns(i), [&](Index row, float x) { out(i, row) = T(x); });
  });
}

void PackedMatrix::unpack(View<float, 2> out, int num_threads) const { unpack_all(out, num_threads); }
void PackedMatrix::unpack(View<bfloat16, 2> out, int num_threads) const { unpack_all(out, num_threads); }
void PackedMatrix::unpack(View<float16, 2> out, int num_threads) const { unpack_all(out, num_threads); }

void PackedMatrix::unpack_columns(View<const Index, 1> columns, View<float, 2> out, int num_threads) const {
  unpack_some(columns, out, num_threads);
}
void PackedMatrix::unpack_columns(View<const Index, 1> columns, View<bfloat16, 2> out, int num_threads) const {
  unpack_some(columns, out, num_threads);
}
void PackedMatrix::unpack_columns(View<const Index, 1> columns, View<float16, 2> out, int num_threads) const {
  unpack_some(columns, out, num_threads);
}

}  // namespace headlane
