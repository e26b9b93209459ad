// PackedMatrix: packing, and the order of its elements.
#include <headlane/packed_matrix.hpp>

#include "core/call_scope.hpp"
#include "core/dispatch.hpp"
#include "core/parallel.hpp"
#include "gemm/check.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace headlane {

using namespace internal;

namespace {

using kernels::block_size;
using kernels::panel_columns;

/// The memory of a matrix: elements, and scales if it has any.
Index bytes_of(Index rows, Index columns, DType type) {
  const Index width = round_up(columns, panel_columns);
  const Index scales = has_scales(type) ? width * static_cast<Index>(sizeof(float)) : 0;
  return bytes_of_panels(rows, width, type) + scales;
}

/// Columns that one task packs.
constexpr Index columns_of_task = 128;

/// The scales of all columns. Throws std::invalid_argument for one that is not finite.
void set_scales(const Operand& of_b, const View<const float, 2>& b, int threads, float* scales) {
  const Index columns = b.shape[1];
  parallel_for(ceil_div(columns, columns_of_task), threads, [&](Index task) {
    const Index column = task * columns_of_task;
    find_scales(source(b, 0, b.shape[0], column, std::min(columns_of_task, columns - column)), scales + column);
  });
  const float* found = std::find_if_not(scales, scales + columns, [](float x) { return std::isfinite(x); });
  of_b.require(found == scales + columns, " has an element that is not finite in column ", found - scales,
               "; int8 has none");
  std::fill(scales + columns, scales + round_up(columns, panel_columns), 0.0f);
}

}  // namespace

PackedMatrix::PackedMatrix(Index rows, Index columns, DType type) : rows_(rows), columns_(columns), type_(type) {
  if (rows == 0 || columns == 0) return;
  constexpr Index line = 64;
  data_.reset(std::aligned_alloc(line, static_cast<std::size_t>(round_up(bytes_of(rows, columns, type), line))));
  if (!data_) throw std::bad_alloc();
}

PackedMatrix::PackedMatrix(View<const float, 2> b, const PackOptions& options) {
  const CallScope scope;
  constexpr Caller caller("PackedMatrix");
  const Operand of_b = caller.operand("b", b);
  check_packable(of_b);
  caller.require(options.type <= DType::int4_group32, "type is ", static_cast<Index>(options.type),
                 ", which is none of float32 … int4_group32");
  check_threads(caller, options.num_threads);
  const kernels::KernelTable& kernel = active();
  *this = PackedMatrix(b.shape[0], b.shape[1], options.type);
  if (!data_) return;

  const int threads =
      useful_threads(0, static_cast<double>(rows_) * static_cast<double>(columns_), options.num_threads);
  PackedColumns to = packed_columns(*this);
  auto* scales = const_cast<float*>(to.scales);  // of this matrix, which is not const
  if (scales != nullptr) set_scales(of_b, b, threads, scales);
  std::atomic<bool> fits = true;
  parallel_for(ceil_div(columns_, columns_of_task), threads, [&](Index task) {
    const Index column = task * columns_of_task, columns = std::min(columns_of_task, columns_ - column);
    for (Index first = 0; first < rows_; first += block_size)
      if (!pack_stored(source(b, first, std::min(block_size, rows_ - first), column, columns), type_,
                       offset_by(scales, column), static_cast<std::byte*>(data_.get()) + to.offset(first, column),
                       to.panel_items(first), kernel))
        fits = false;
  });
  of_b.require(fits, " has an element that is not finite, or too large for a scale of float16");
}

std::size_t PackedMatrix::bytes() const {
  return data_ == nullptr ? 0 : static_cast<std::size_t>(bytes_of(rows_, columns_, type_));
}

void PackedMatrix::unpack(View<float, 2> out) const {
  const Operand to = Caller("PackedMatrix::unpack").operand("out", out);
  check_output(to);
  to.require(out.shape[0] == rows_ && out.shape[1] == columns_, " is ", to, ", the matrix is ", rows_, " x ", columns_);
  if (data_ == nullptr) return;
  const CallScope scope;  // its rounding
  const PackedColumns all = packed_columns(*this);
  for (Index j = 0; j < columns_; ++j) for_column(all, j, [&](Index i, float x) { out(i, j) = x; });
}

void PackedMatrix::Free::operator()(void* p) const { std::free(p); }

}  // namespace headlane
