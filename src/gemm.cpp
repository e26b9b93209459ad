// GEMM: how a product is cut, who packs what, and what runs in parallel. Checks are in gemm_check.cpp, a part of c by one task in
// gemm_part.cpp, the arithmetic in kernels/gemm_block.hpp.
#include "gemm_part.hpp"
#include "kernels/table.hpp"
#include "parallel.hpp"
#include "round.hpp"
#include "scratch.hpp"

#include <algorithm>
#include <cstdlib>

namespace headlane {
namespace {

using kernels::block_size;
using kernels::KernelTable;
using kernels::panel_columns;

/// Columns of b that are packed at a time: with 512 rows 8 MiB, for the L3.
constexpr Index most_columns = 4096;
/// Rows of a task at most: their packed copy (96 × 528 floats, 198 KiB) stays in the L2 beside the columns.
constexpr Index most_rows = 96;
/// Up to so many rows, b is read where it stands if its rows are contiguous: too few uses pay for no packing.
constexpr Index most_direct_rows = 32;
/// Nor is b packed if it spans no more than so many floats, 128 KiB: it comes from the L2 either way. 64 × 64 × 64: 150 to 190 GFLOP/s,
/// 64 × 512 × 64: 194 to 215 of 250 (Zen 5).
constexpr Index most_direct_floats = 32768;

/// Up to so many rows, and from so many columns a thread, each thread packs its own columns.
constexpr Index most_owning_rows = 512, least_owned_columns = 128;

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

}  // namespace

void run_gemm(const Product& p) {
  const Index m = p.c.shape[0], k = p.a.shape[1];
  if (k == 0 || p.options.alpha == 0.0f) return compute_nothing(p);
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
