// PackedMatrix: packing, and the order of its elements.
#include <headlane/packed_matrix.hpp>

#include "core/call_scope.hpp"
#include "core/check.hpp"
#include "core/dispatch.hpp"
#include "core/parallel.hpp"
#include "core/round.hpp"
#include "kernels/table.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>

namespace headlane {

using namespace internal;

namespace {

using kernels::block_size;
using kernels::panel_columns;

/// Elements of a packed matrix. Throws std::invalid_argument if they cannot be addressed.
Index packed_size(const Operand& b) {
  constexpr Index max = std::numeric_limits<Index>::max() / static_cast<Index>(sizeof(float)) / 2;
  Index size = 0;
  const bool fits =
      b.shape[1] <= max && !__builtin_mul_overflow(b.shape[0], round_up(b.shape[1], panel_columns), &size);
  b.require(is_empty(b) || (fits && size <= max), " of shape ", b, " does not fit into memory: at most ", max,
            " elements can be addressed, columns in whole panels of ", panel_columns);
  return is_empty(b) ? 0 : size;
}

/// Columns that one task packs.
constexpr Index columns_of_task = 128;

}  // namespace

PackedMatrix::PackedMatrix(View<const float, 2> b, int num_threads) {
  const CallScope scope;
  constexpr Caller caller("PackedMatrix");
  const Operand of_b = caller.operand("b", b);
  check_operand(of_b);
  const Index size = packed_size(of_b);
  check_threads(caller, num_threads);
  const kernels::KernelTable& kernel = active();
  rows_ = b.shape[0];
  columns_ = b.shape[1];
  if (size == 0) return;
  constexpr std::size_t line = 64;
  data_.reset(static_cast<float*>(std::aligned_alloc(line, static_cast<std::size_t>(size) * sizeof(float))));
  if (!data_) throw std::bad_alloc();

  const Index width = round_up(columns_, panel_columns), tasks = ceil_div(columns_, columns_of_task);
  const int threads = useful_threads(0, static_cast<double>(rows_) * static_cast<double>(columns_), num_threads);
  parallel_for(tasks, threads, [&](Index task) {
    const Index column = task * columns_of_task, columns = std::min(columns_of_task, columns_ - column);
    for (Index first = 0; first < rows_; first += block_size) {
      const Index k = std::min(block_size, rows_ - first);
      const float* from = b.data + first * b.strides[0] + column * b.strides[1];
      kernel.pack_panels({from, k, columns, b.strides[0], b.strides[1]}, data_.get() + first * width + column * k);
    }
  });
}

std::size_t PackedMatrix::bytes() const {
  return data_ == nullptr ? 0 : static_cast<std::size_t>(rows_ * round_up(columns_, panel_columns)) * sizeof(float);
}

void PackedMatrix::unpack(View<float, 2> out) const {
  const Operand to = Caller("PackedMatrix::unpack").operand("out", out);
  check_output(to);
  to.require(out.shape[0] == rows_ && out.shape[1] == columns_, " is ", to, ", the matrix is ", rows_, " x ", columns_);
  if (data_ == nullptr) return;
  const Index width = round_up(columns_, panel_columns);
  for (Index i = 0; i < rows_; ++i) {
    const Index first = i / block_size * block_size, k = std::min(block_size, rows_ - first);
    const float* row = data_.get() + first * width + (i - first) * panel_columns;
    for (Index j = 0; j < columns_; ++j) out(i, j) = row[j / panel_columns * panel_columns * k + j % panel_columns];
  }
}

void PackedMatrix::Free::operator()(float* p) const { std::free(p); }

}  // namespace headlane
