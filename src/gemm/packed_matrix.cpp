// PackedMatrix: packing, and the order of its elements.
#include <headlane/packed_matrix.hpp>

#include "core/call_scope.hpp"
#include "core/dispatch.hpp"
#include "core/huge_pages.hpp"
#include "gemm/check.hpp"
#include "gemm/packed_units.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <new>

namespace headlane {

using namespace internal;

namespace {

using kernels::block_size;
using kernels::panel_columns;

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

/// Sets the columns behind the last one, which pack_panels may leave as they are, to 0: bytes that
/// a caller writes to a file are those of the matrix alone.
void clear_rest(const PackedColumns& to, Index columns) {
  const Index within = columns % panel_columns;
  if (to.type != DType::float32 || within == 0) return;
  for (Index row = 0; row < to.rows; ++row) {
    auto* const unit =
        const_cast<float*>(static_cast<const float*>(bytes_from(to.data, to.offset(row, to.width - panel_columns))));
    std::fill(unit + within, unit + panel_columns, 0.0f);
  }
}

}  // namespace

PackedMatrix::PackedMatrix(Index rows, Index columns, DType type) : rows_(rows), columns_(columns), type_(type) {
  const std::size_t bytes = bytes_of_matrix(rows, columns, type);
  if (bytes == 0) return;
  const Index sums = has_sums(type) ? round_up(columns, panel_columns) : 0;
  data_.reset(allocate_block(bytes + static_cast<std::size_t>(sums) * sizeof(float)));
  if (!data_) throw std::bad_alloc();
}

PackedMatrix::PackedMatrix(View<const float, 2> b, const PackOptions& options) {
  const CallScope scope;
  constexpr Caller caller("PackedMatrix");
  const Operand of_b = caller.operand("b", b);
  check_packable(of_b);
  check_type(caller, options.type);
  check_threads(caller, options.num_threads);
  const kernels::KernelTable& kernel = active();
  *this = PackedMatrix(b.shape[0], b.shape[1], options.type);
  if (!data_) return;

  const int threads = threads_for(*this, options.num_threads);
  const PackedColumns to = packed_columns(*this);
  clear_rest(to, columns_);
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
  set_sums(*this, options.num_threads);
}

std::size_t PackedMatrix::bytes() const { return data_ == nullptr ? 0 : bytes_of_matrix(rows_, columns_, type_); }

void PackedMatrix::Free::operator()(void* p) const { free_block(p); }

}  // namespace headlane
