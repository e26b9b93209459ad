// A part of a product: packs its rows of a, runs the kernel on its part of c, through a copy where c is strided.
#include "gemm_part.hpp"

#include "scratch.hpp"

#include <algorithm>

namespace headlane {
namespace {

using kernels::GemmBlock;
using kernels::lanes;
using kernels::panel_columns;
using kernels::row_stride;

/// Columns of packed b that all strips of a task's rows use before the next ones: with 512 rows 512 KiB, half a usual L2.
constexpr Index columns_in_l2 = 256;

/// c = beta · c, where a and b are not read.
void scale(const View<float, 2>& c, float beta) {
  for (Index i = 0; i < c.shape[0]; ++i)
    for (Index j = 0; j < c.shape[1]; ++j) c(i, j) = beta == 0.0f ? 0.0f : beta * c(i, j);
}

/// What the elements of c from (row, column) on end with; null data where nothing is wanted.
kernels::GemmFinish finish_from(const Product& p, Index row, Index column) {
  const auto& bias = p.options.bias;
  const auto& residual = p.options.residual;
  return {bias.data == nullptr ? nullptr : bias.data + column * bias.strides[0],
          bias.strides[0],
          p.options.activation,
          residual.data == nullptr ? nullptr : residual.data + row * residual.strides[0] + column * residual.strides[1],
          residual.strides[0],
          residual.strides[1]};
}

bool finishes(const GemmOptions& options) {
  return options.bias.data != nullptr || options.activation != Activation::none || options.residual.data != nullptr;
}

/// Runs one block of the kernel on c; without products (k = 0) only what follows them. If the columns of c are not contiguous, on a copy.
void block_on_c(const Product& p, GemmBlock block, bool last, Index row, Index column) {
  const auto run = block.k > 0 ? p.kernel.gemm_block : p.kernel.gemm_finish;
  const kernels::GemmFinish finish = finish_from(p, row, column);
  if (last && finishes(p.options)) block.finish = &finish;
  float* c = p.c.data + row * p.c.strides[0] + column * p.c.strides[1];
  const Index row_step = p.c.strides[0], column_step = p.c.strides[1];
  if (column_step == 1 || block.n == 1) {
    block.c = c;
    block.c_row_step = row_step;
    return run(block);
  }
  block.c = scratch(Purpose::block, block.m * block.n);
  block.c_row_step = block.n;
  for (Index i = 0; block.beta != 0.0f && i < block.m; ++i)
    for (Index j = 0; j < block.n; ++j) block.c[i * block.n + j] = c[i * row_step + j * column_step];
  run(block);
  for (Index i = 0; i < block.m; ++i)
    for (Index j = 0; j < block.n; ++j) c[i * row_step + j * column_step] = block.c[i * block.n + j];
}

/// The part with its rows of a packed; b, its columns and c are to be filled in.
GemmBlock block_of(const Product& p, const Step& step, const Part& part) {
  float* a = scratch(Purpose::rows, part.rows * row_stride);
  p.kernel.pack_rows(source(p.a, part.row, part.rows, step.first, step.k), 1.0f, a);
  GemmBlock block{};
  block.m = part.rows;
  block.k = step.k;
  block.a = a;
  block.alpha = p.options.alpha;
  block.beta = step.beta;
  return block;
}

}  // namespace

void compute_packed(const Product& p, const Step& step, const Part& part, const float* panels, Index packed_from) {
  GemmBlock block = block_of(p, step, part);
  block.b_row_step = panel_columns;
  block.b_panel_step = panel_columns * step.k;
  const Index end = part.column + part.columns;
  for (Index column = part.column; column < end; column += columns_in_l2) {
    block.n = std::min(columns_in_l2, end - column);
    block.b = panels + (column - packed_from) * step.k;
    block_on_c(p, block, step.last, part.row, column);
  }
}

void compute_direct(const Product& p, const Step& step, const Part& part) {
  GemmBlock block = block_of(p, step, part);
  const Index whole = part.columns / lanes * lanes, rest = part.columns - whole;
  block.n = whole;
  block.b = p.b.data + step.first * p.b.strides[0] + part.column;
  block.b_row_step = p.b.strides[0];
  block.b_panel_step = panel_columns;
  if (whole > 0) block_on_c(p, block, step.last, part.row, part.column);
  if (rest == 0) return;
  float* panel = scratch(Purpose::last_panel, panel_columns * step.k);
  p.kernel.pack_panels(source(p.b, step.first, step.k, part.column + whole, rest), panel);
  block.n = rest;
  block.b = panel;
  block.b_row_step = panel_columns;
  block_on_c(p, block, step.last, part.row, part.column + whole);
}

void compute_nothing(const Product& p) {
  const Index m = p.c.shape[0], n = p.c.shape[1];
  scale(p.c, p.options.beta);
  if (!finishes(p.options)) return;
  constexpr Index rows_at_once = 16, columns_at_once = 256;
  for (Index row = 0; row < m; row += rows_at_once)
    for (Index column = 0; column < n; column += columns_at_once) {
      GemmBlock block{};
      block.m = std::min(rows_at_once, m - row);
      block.n = std::min(columns_at_once, n - column);
      block.beta = 1;
      block_on_c(p, block, true, row, column);
    }
}

}  // namespace headlane
