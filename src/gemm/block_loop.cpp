// A part of a product, by one thread: packs what does not lie as the kernel wants it, and runs the kernel block by block.
#include "core/round.hpp"
#include "core/scratch.hpp"
#include "gemm/problem.hpp"

#include <algorithm>
#include <cstdlib>

#include <unistd.h>

namespace headlane::internal {
namespace {

using kernels::block_size;
using kernels::GemmBlock;
using kernels::KernelTable;
using kernels::lanes;
using kernels::panel_columns;
using kernels::row_stride;

/// Columns of b that all rows use before the next ones: packed 512 KiB, half a usual L2. With 512 rows they are 256.
Index columns_in_l2(Index k) {
  constexpr Index columns = 256;
  return k > block_size / 2 ? columns
                            : block_size * columns / std::max<Index>(k, lanes) / panel_columns * panel_columns;
}
/// Rows that all columns of a part use before the next ones, where they stand: 2048 × 2048 × 2048 came from 86 to 88 % of the FMA peak,
/// perhaps because each row of a and of c is on pages of its own and a TLB holds so many of them.
constexpr Index most_rows = 480;
/// Packed (96 × 528 floats, 198 KiB) they stay in the L2 beside the columns.
constexpr Index most_packed_rows = 96;
/// Up to so many rows, b is read where it stands and not packed on the way.
constexpr Index most_direct_rows = 32;
/// Nor is b packed if it spans no more than so many floats, 128 KiB: it comes from the L2 either way.
constexpr Index most_direct_floats = 32768;

/// One block along k: rows first … first+k of b.
struct Step {
  Index first, k;
  float beta;  // of c for this block: 1 from the second one on
  bool last;   // what the product ends with follows
};

/// f(step) for the blocks along k, in order.
template <class F>
void for_each_step(Index k, float beta, const F& f) {
  for (Index first = 0; first < k; first += block_size)
    f(Step{first, std::min(block_size, k - first), first == 0 ? beta : 1.0f, first + block_size >= k});
}

/// Rows and columns of an operand, for packing.
kernels::Source source(const View<const float, 2>& view, Index row, Index rows, Index column, Index columns) {
  return {view.data + row * view.strides[0] + column * view.strides[1], rows, columns, view.strides[0],
          view.strides[1]};
}

/// Lines that a set of the L1 holds.
Index l1_ways() {
#ifdef _SC_LEVEL1_DCACHE_ASSOC
  static const long ways = sysconf(_SC_LEVEL1_DCACHE_ASSOC);
  if (ways > 0) return ways;
#endif
  return 8;
}

/// The kernel reads rows of a where they stand if their elements are neighbours, unless they are a multiple of 4 KiB apart and fall into
/// one set of an L1 that cannot hold the 12 of a strip. With 12 ways they cost 3 % of 512 × 512 × 2048, packing them 5 % (Zen 5);
/// with 8 ways it was not measured.
bool reads_rows(const View<const float, 2>& a) {
  constexpr Index page = 1024, strip = 12;  // in floats, in rows
  if (a.shape[1] == 1) return true;
  return a.strides[1] == 1 && (a.strides[0] % page != 0 || std::min(a.shape[0], strip) <= l1_ways());
}

/// How b comes to the kernel.
enum class Way {
  packed,  // it is packed already
  direct,  // read where it stands
  kept,    // read where it stands by the first rows, which leave it packed for all others
  turned,  // packed first, for its rows are no neighbours
};

Way way_of(const Product& p) {
  if (p.packed) return Way::packed;
  const Index rows = p.c.shape[0], columns = p.c.shape[1], k = p.a.shape[1];
  if (p.b.strides[1] != 1 && columns > 1) return Way::turned;
  // A single row may have any stride, even one without an absolute value.
  const bool near = k == 1 || (k - 1) * std::abs(p.b.strides[0]) < most_direct_floats;
  return rows <= most_direct_rows || near ? Way::direct : Way::kept;
}

/// One block along k of b, as the kernel takes it.
struct Right {
  const float* data;
  Index row_step, panel_step;
  float* keep;  // where the first rows leave it packed, or null
};

Right right_of(const Product& p, const Step& step, Way way, const KernelTable& kernel) {
  const Index n = p.c.shape[1], panel_step = panel_columns * step.k;
  if (way == Way::packed) return {p.packed.panels(step.first, step.k), panel_columns, panel_step, nullptr};
  const Index row_step = p.a.shape[1] > 1 ? p.b.strides[0] : 0;  // of a single row it may be anything
  const Right in_place{p.b.data + step.first * row_step, row_step, panel_columns, nullptr};
  if (way == Way::direct) return in_place;
  float* panels = scratch(Purpose::panels, round_up(n, panel_columns) * step.k);
  if (way == Way::kept) return {in_place.data, in_place.row_step, in_place.panel_step, panels};
  kernel.pack_panels(source(p.b, step.first, step.k, 0, n), panels);
  return {panels, panel_columns, panel_step, nullptr};
}

/// What the elements of c from (row, column) on end with.
kernels::GemmFinish finish_from(const kernels::GemmFinish& finish, Index row, Index column) {
  kernels::GemmFinish result = finish;
  result.bias = moved(finish.bias, column * finish.bias_step);
  result.factor = moved(finish.factor, row * finish.factor_row_step + column);
  result.residual = moved(finish.residual, row * finish.row_step + column * finish.column_step);
  return result;
}

bool finishes(const kernels::GemmFinish& finish) {
  return finish.bias != nullptr || finish.activation != Activation::none || finish.factor != nullptr ||
         finish.residual != nullptr;
}

/// The kernel writes rows of c if their elements are neighbours.
bool writes_rows(const View<float, 2>& c) { return c.strides[1] == 1 || c.shape[1] == 1; }

/// Runs one block of the kernel on c from (row, column) on; without products (k = 0) only what follows them. On a copy if need be.
void block_on_c(const Product& p, const KernelTable& kernel, GemmBlock block, bool last, Index row, Index column) {
  const auto run = block.k > 0 ? kernel.gemm_block : kernel.gemm_finish;
  const kernels::GemmFinish finish = finish_from(p.finish, row, column);
  if (last && finishes(p.finish)) block.finish = &finish;
  float* c = p.c.data + row * p.c.strides[0] + column * p.c.strides[1];
  const Index row_step = p.c.strides[0], column_step = p.c.strides[1];
  if (writes_rows(p.c)) {
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

/// Some rows times one block of b.
void multiply_rows(const Product& p, const KernelTable& kernel, const Step& step, const Right& right, Index row,
                   Index rows) {
  GemmBlock block{};
  block.m = rows;
  block.k = step.k;
  block.a = p.a.data + row * p.a.strides[0] + step.first * p.a.strides[1];
  block.a_row_step = p.a.strides[0];
  if (!reads_rows(p.a)) {
    float* a = scratch(Purpose::rows, rows * row_stride);
    kernel.pack_rows(source(p.a, row, rows, step.first, step.k), 1.0f, a);
    block.a = a;
    block.a_row_step = row_stride;
  }
  block.alpha = p.alpha;
  block.beta = step.beta;
  block.b_row_step = right.row_step;
  block.b_panel_step = right.panel_step;
  const Index at_once = std::min(p.c.shape[1], columns_in_l2(step.k));
  for (Index column = 0; column < p.c.shape[1]; column += at_once) {
    block.n = std::min(at_once, p.c.shape[1] - column);
    block.b = right.data + column / panel_columns * right.panel_step;
    if (right.keep != nullptr) block.keep = right.keep + column * step.k;
    block_on_c(p, kernel, block, step.last, row, column);
  }
}

/// Where there is no product: c = beta · c, and what follows.
void compute_nothing(const Product& p, const KernelTable& kernel) {
  const Index m = p.c.shape[0], n = p.c.shape[1];
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < n; ++j) p.c(i, j) = p.beta == 0.0f ? 0.0f : p.beta * p.c(i, j);
  if (!finishes(p.finish)) return;
  constexpr Index rows_at_once = 16, at_once = 256;
  for (Index row = 0; row < m; row += rows_at_once)
    for (Index column = 0; column < n; column += at_once) {
      GemmBlock block{};
      block.m = std::min(rows_at_once, m - row);
      block.n = std::min(at_once, n - column);
      block.beta = 1;
      block_on_c(p, kernel, block, true, row, column);
    }
}

}  // namespace

Product cut(const Product& p, const Part& part) {
  Product result = p;
  result.a.data = moved(p.a.data, part.row * p.a.strides[0]);
  result.a.shape[0] = result.c.shape[0] = part.rows;
  if (!p.packed) result.b.data = moved(p.b.data, part.column * p.b.strides[1]);
  result.packed.column += part.column;
  result.b.shape[1] = result.c.shape[1] = part.columns;
  result.c.data += part.row * p.c.strides[0] + part.column * p.c.strides[1];
  result.finish = finish_from(p.finish, part.row, part.column);
  return result;
}

void compute(const Product& p, const KernelTable& kernel) {
  const Index m = p.c.shape[0], k = p.a.shape[1];
  if (k == 0 || p.alpha == 0.0f) return compute_nothing(p, kernel);
  const Way way = way_of(p);
  const Index limit = reads_rows(p.a) && writes_rows(p.c) ? most_rows : most_packed_rows;
  const Index rows = m <= limit ? m : ceil_div(m, ceil_div(m, limit));
  for_each_step(k, p.beta, [&](const Step& step) {
    Right right = right_of(p, step, way, kernel);
    for (Index row = 0; row < m; row += rows) {
      multiply_rows(p, kernel, step, right, row, std::min(rows, m - row));
      if (right.keep != nullptr) right = {right.keep, panel_columns, panel_columns * step.k, nullptr};
    }
  });
}

}  // namespace headlane::internal
