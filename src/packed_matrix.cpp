// PackedMatrix: checks, and the order of its elements.
#include <headlane/packed_matrix.hpp>

#include "check.hpp"
#include "dispatch.hpp"
#include "kernels/table.hpp"
#include "parallel.hpp"
#include "round.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace headlane {
namespace {

using kernels::block_size;
using kernels::panel_columns;

/// Columns that a task packs.
constexpr Index columns_of_task = 128;

}  // namespace

PackedMatrix::PackedMatrix(View<const float, 2> b, int num_threads) {
  check_operand(operand("PackedMatrix", "b", b));
  check_threads("PackedMatrix", num_threads);
  const kernels::KernelTable& kernel = active();
  rows_ = b.shape[0];
  columns_ = b.shape[1];
  if (bytes() == 0) return;
  constexpr std::size_t line = 64;
  data_.reset(static_cast<float*>(std::aligned_alloc(line, bytes())));
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
  return static_cast<std::size_t>(rows_ * round_up(columns_, panel_columns)) * sizeof(float);
}

void PackedMatrix::Free::operator()(float* p) const { std::free(p); }

}  // namespace headlane
