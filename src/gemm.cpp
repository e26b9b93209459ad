// GEMM: blocking, packing order, and what runs in parallel. Checks are in gemm_check.cpp, the arithmetic in
// kernels/gemm_block.hpp.
#include "gemm.hpp"

#include "kernels/table.hpp"
#include "parallel.hpp"
#include "round.hpp"
#include "scratch.hpp"

#include <algorithm>
#include <cstdlib>

namespace headlane {
namespace {

using kernels::block_size;
using kernels::GemmBlock;
using kernels::KernelTable;
using kernels::lanes;
using kernels::panel_columns;
using kernels::row_stride;

/// Columns of b that are packed at a time: with 512 rows 8 MiB, for the L3.
constexpr Index most_columns = 4096;
/// Columns of packed b that all strips of a task's rows use before the next ones: with 512 rows 512 KiB, half a usual L2.
constexpr Index columns_in_l2 = 256;
/// Rows of a task at most: their packed copy (96 × 528 floats, 198 KiB) stays in the L2 beside the columns.
constexpr Index most_rows = 96;
/// Up to so many rows, b is read where it stands if its rows are contiguous: too few uses pay for no packing.
constexpr Index most_direct_rows = 32;
/// Nor is b packed if it spans no more than so many floats, 128 KiB: it comes from the L2 either way. 64 × 64 × 64: 150 to 190 GFLOP/s,
/// 64 × 512 × 64: 194 to 215 of 250 (Zen 5).
constexpr Index most_direct_floats = 32768;

/// Up to so many rows, and from so many columns a thread, each thread packs its own columns.
constexpr Index most_owning_rows = 512, least_owned_columns = 128;

/// One block along k: rows first … first+k of b.
struct Step {
  Index first, k;
  float beta;  // of c for this block: 1 from the second one on
  bool last;   // what the product ends with follows
};

kernels::Source source(const View<const float, 2>& view, Index row, Index rows, Index column, Index columns) {
  return {view.data + row * view.strides[0] + column * view.strides[1], rows, columns, view.strides[0],
          view.strides[1]};
}

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

/// Rows and columns of c that one task computes.
struct Part {
  Index row, rows, column, columns;
};

/// With b packed: `panels` holds columns `packed_from` … of this step, one panel after the other.
void compute_packed(const Product& p, const Step& step, const Part& part, const float* panels, Index packed_from) {
  float* a = scratch(Purpose::rows, part.rows * row_stride);
  p.kernel.pack_rows(source(p.a, part.row, part.rows, step.first, step.k), 1.0f, a);
  for (Index column = part.column; column < part.column + part.columns; column += columns_in_l2) {
    const Index columns = std::min(columns_in_l2, part.column + part.columns - column);
    block_on_c(p,
               {.m = part.rows,
                .n = columns,
                .k = step.k,
                .a = a,
                .b = panels + (column - packed_from) * step.k,
                .b_row_step = panel_columns,
                .b_panel_step = panel_columns * step.k,
                .c = nullptr,
                .c_row_step = 0,
                .alpha = p.options.alpha,
                .beta = step.beta,
                .finish = nullptr},
               step.last, part.row, column);
  }
}

/// With b where it stands: whole vectors of its rows; what is left of the columns is packed, for a tile reads whole vectors.
void compute_direct(const Product& p, const Step& step, const Part& part) {
  float* a = scratch(Purpose::rows, part.rows * row_stride);
  p.kernel.pack_rows(source(p.a, part.row, part.rows, step.first, step.k), 1.0f, a);
  const Index whole = part.columns / lanes * lanes, rest = part.columns - whole;
  GemmBlock block{.m = part.rows,
                  .n = whole,
                  .k = step.k,
                  .a = a,
                  .b = p.b.data + step.first * p.b.strides[0] + part.column,
                  .b_row_step = p.b.strides[0],
                  .b_panel_step = panel_columns,
                  .c = nullptr,
                  .c_row_step = 0,
                  .alpha = p.options.alpha,
                  .beta = step.beta,
                  .finish = nullptr};
  if (whole > 0) block_on_c(p, block, step.last, part.row, part.column);
  if (rest == 0) return;
  float* panel = scratch(Purpose::last_panel, panel_columns * step.k);
  p.kernel.pack_panels(source(p.b, step.first, step.k, part.column + whole, rest), panel);
  block.n = rest;
  block.b = panel;
  block.b_row_step = panel_columns;
  block_on_c(p, block, step.last, part.row, part.column + whole);
}

/// Cuts m × n into parts of even size: of at most most_rows rows; several for each thread, since cores of a shared machine
/// differ, as long as their rows still make good use of the columns; and of columns where there are fewer rows than threads.
class Grid {
 public:
  Grid(Index m, Index n, int threads) : m_(m), n_(n) {
    constexpr Index enough_rows = 48;
    row_parts_ = ceil_div(m, most_rows);
    if (threads == 1) return;
    row_parts_ = std::max(row_parts_, std::min<Index>(4 * threads, m / enough_rows));
    if (row_parts_ >= threads) row_parts_ = round_up(row_parts_, threads);
    column_parts_ = std::min(ceil_div(threads, row_parts_), ceil_div(n, panel_columns));
  }
  [[nodiscard]] Index parts() const { return row_parts_ * column_parts_; }
  [[nodiscard]] Part part(Index i) const {
    const Index row_part = i / column_parts_, column_part = i % column_parts_, panels = ceil_div(n_, panel_columns);
    const Index row = row_part * m_ / row_parts_, column = column_part * panels / column_parts_ * panel_columns;
    return {row, (row_part + 1) * m_ / row_parts_ - row, column,
            std::min(n_, (column_part + 1) * panels / column_parts_ * panel_columns) - column};
  }

 private:
  Index m_, n_;
  Index row_parts_, column_parts_ = 1;
};

/// Columns `from` … of one step of b to panels; all threads take some.
void pack_columns(const View<const float, 2>& b, const KernelTable& kernel, int threads, const Step& step, Index from,
                  Index columns, float* panels) {
  const Index share = round_up(std::max<Index>(4 * panel_columns, ceil_div(columns, 4 * threads)), panel_columns);
  parallel_for(ceil_div(columns, share), threads, [&](Index task) {
    const Index first = task * share, here = std::min(share, columns - first);
    kernel.pack_panels(source(b, step.first, step.k, from + first, here), panels + first * step.k);
  });
}

/// b is packed here, as many columns at a time as are good for the caches.
void packing_step(const Product& p, const Step& step) {
  const Index m = p.c.shape[0], n = p.c.shape[1];
  for (Index from = 0; from < n; from += most_columns) {
    const Index columns = std::min(most_columns, n - from);
    float* panels = scratch(Purpose::panels, round_up(columns, panel_columns) * step.k);
    pack_columns(p.b, p.kernel, p.threads, step, from, columns, panels);
    const Grid grid(m, columns, p.threads);
    parallel_for(grid.parts(), p.threads, [&](Index task) {
      Part part = grid.part(task);
      part.column += from;
      compute_packed(p, step, part, panels, from);
    });
  }
}

/// Each thread packs columns of its own and computes all rows of them. What one thread packs and the other ones read is lines that
/// the next call must take back from their caches: on Zen 5, if they are still there, packing 512 × 512 with 2 threads took 70
/// µs instead of 14, in some processes always, in others never. The price: each packs all of a, once for each of its parts.
void owning_step(const Product& p, const Step& step) {
  const Index m = p.c.shape[0], n = p.c.shape[1], panels = ceil_div(n, panel_columns);
  const Index tasks = p.threads * std::clamp<Index>(n / (2 * least_owned_columns * p.threads), 1, 4);
  parallel_for(tasks, p.threads, [&](Index task) {
    const Index first = task * panels / tasks * panel_columns;
    const Index end = std::min(n, (task + 1) * panels / tasks * panel_columns);
    for (Index from = first; from < end; from += most_columns) {
      const Index columns = std::min(most_columns, end - from), parts = ceil_div(m, most_rows);
      float* packed = scratch(Purpose::panels, round_up(columns, panel_columns) * step.k);
      p.kernel.pack_panels(source(p.b, step.first, step.k, from, columns), packed);
      for (Index i = 0; i < parts; ++i)
        compute_packed(p, step, {i * m / parts, (i + 1) * m / parts - i * m / parts, from, columns}, packed, from);
    }
  });
}

/// b is packed already, or read where it stands.
void ready_step(const Product& p, const Step& step) {
  const Grid grid(p.c.shape[0], p.c.shape[1], p.threads);
  const Index width = round_up(p.c.shape[1], panel_columns);
  parallel_for(grid.parts(), p.threads, [&](Index task) {
    if (p.packed == nullptr) compute_direct(p, step, grid.part(task));
    else compute_packed(p, step, grid.part(task), p.packed + step.first * width, 0);
  });
}

/// f(step) for the blocks along k, in order.
template <class F>
void for_each_step(Index k, float beta, const F& f) {
  for (Index first = 0; first < k; first += block_size)
    f(Step{first, std::min(block_size, k - first), first == 0 ? beta : 1.0f, first + block_size >= k});
}

/// Where there is no product.
void only_finish(const Product& p) {
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

}  // namespace

void run_gemm(const Product& p) {
  const Index m = p.c.shape[0], k = p.a.shape[1];
  if (k == 0 || p.options.alpha == 0.0f) return only_finish(p);
  // A single row may have any stride, even one without an absolute value.
  const bool near = k == 1 || (k <= most_direct_floats && std::abs(p.b.strides[0]) <= most_direct_floats / k);
  const bool ready = p.packed != nullptr || ((m <= most_direct_rows || near) && p.b.strides[1] == 1);
  const bool owning = p.threads > 1 && m <= most_owning_rows && p.c.shape[1] >= least_owned_columns * p.threads;
  for_each_step(k, p.options.beta, [&](const Step& step) {
    if (ready) ready_step(p, step);
    else if (owning) owning_step(p, step);
    else packing_step(p, step);
  });
}

void pack_right(const View<const float, 2>& b, const KernelTable& kernel, int threads, float* packed) {
  const Index n = b.shape[1], width = round_up(n, panel_columns);
  for_each_step(b.shape[0], 0.0f,
                [&](const Step& step) { pack_columns(b, kernel, threads, step, 0, n, packed + step.first * width); });
}

}  // namespace headlane
