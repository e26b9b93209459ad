// The partition of products into tasks, and the parallel loop over them. A task is in
// block_loop.cpp, the arithmetic in kernels/gemm/block.hpp.
#include "core/parallel.hpp"
#include "core/round.hpp"
#include "core/scratch.hpp"
#include "gemm/right_operand.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace headlane::internal {
namespace {

using kernels::KernelTable;
using kernels::panel_columns;

/// Columns of a region: packed with 512 rows they are 2 MiB, in each thread.
constexpr Index max_columns = 1024;

/// The cost of a batch relative to other batches; not 0.
double weight_of(const Batch& batch) {
  const Product& p = batch.first;
  const Work work = work_of(p.c.shape[0], p.c.shape[1], p.a.shape[1]);
  return static_cast<double>(batch.count) * (work.operations + work.elements);
}

/// Columns that a task packs take as long as up to 80 rows of the product, fewer where c is a
/// large part of a row's work. 2 threads then divide columns rather than rows: 2048 × 2048 × 2048
/// and 512 × 512 × 2048 take 0.96 of the time, b transposed 512 × 512 × 512 0.92 (Emerald
/// Rapids). Rows that pack b on the way write little where k is small: by columns 512 × 512 × 64
/// and 128 × 512 × 64 took as long, or 1.25 of it, by where their operands were; × 128 1.1 (Zen
/// 3). Where rows are packed, too, that takes as long as 3 panels: by rows 2048 × 2048 × 2048 and
/// 2048 × 512 × 2048 take 0.95 and 0.92 of the time (Zen 4, whose L1 has 8 ways).
Overhead overhead_of(const Product& p, const KernelTable& kernel) {
  Overhead result;
  if (p.activations == DType::float32 && !reads_rows(p)) result.panels = 3;
  if (!is_packed_by_tasks(p, kernel)) return result;
  const auto k = static_cast<double>(p.a.shape[1]);
  if (is_packed_first(p, kernel)) result.rows = 80 * k / (k + 64);
  else result.rows = std::max(result.rows, 80 * k * k / (k * k + 256 * 256));
  return result;
}

/// A batch and its tasks: partition.count() for each product.
struct Tasks {
  const Batch* batch;
  Partition partition;
  Index end;  // the number of tasks of this batch and all before it
};

Tasks tasks_of(const Batch& batch, double share, int threads, Index before, const KernelTable& kernel) {
  const Product& p = batch.first;
  const Partition partition(p.c.shape[0], p.c.shape[1], p.a.shape[1], batch.count, share, threads,
                            overhead_of(p, kernel));
  return {&batch, partition, before + batch.count * partition.count()};
}

/// Task i of a batch.
void run_task(const Tasks& tasks, Index i, const KernelTable& kernel) {
  const Index regions = tasks.partition.count();
  if (regions == 1) return compute(i == 0 ? tasks.batch->first : (*tasks.batch)[i], kernel);
  compute(restricted((*tasks.batch)[i / regions], tasks.partition.region(i % regions)), kernel);
}

}  // namespace

Work work_of(Index m, Index n, Index k) {
  const auto size = [](Index x, Index y) { return static_cast<double>(x) * static_cast<double>(y); };
  return {2.0 * size(m, n) * static_cast<double>(k), size(m, k) + size(k, n) + size(m, n)};
}

Product Batch::operator[](Index i) const {
  Product p = first;
  p.a.data = offset_by(p.a.data, i * a_step);
  if (!p.packed) p.b.data = offset_by(p.b.data, i * b_step);
  p.c.data += i * c_step;
  p.epilogue.bias = offset_by(p.epilogue.bias, i * bias_step);
  p.epilogue.residual = offset_by(p.epilogue.residual, i * residual_step);
  return p;
}

// Minimises a simple estimate of the time, in units of a row times a panel: the tasks of the
// busiest thread, each with some extra rows and panels, for the operands that it reads and packs
// although other tasks do so as well, and a fixed overhead.
Partition::Partition(Index m, Index n, Index k, Index alike, double share, int threads, const Overhead& overhead)
    : m_(m), n_(n) {
  const Index panels = ceil_div(n, panel_columns);
  column_parts_ = ceil_div(n, max_columns);
  if (threads == 1) return;
  constexpr Index max_rounds = 4;
  const double of_task = 1024.0 / static_cast<double>(k + 1);
  // How far a core of a shared machine may fall behind, in tasks: fewer and longer tasks wait
  // longer for the last one.
  constexpr double delay = 0.15;
  double best = std::numeric_limits<double>::infinity();
  Index best_rows = 1, best_columns = column_parts_;
  for (Index columns = column_parts_; columns < 2 * panels; columns *= 2) {
    const Index column_parts = std::min(columns, panels);
    for (Index round = 1; round <= max_rounds; ++round) {
      const double wanted = static_cast<double>(round * threads) * share / static_cast<double>(alike * column_parts);
      const Index row_parts = std::clamp<Index>(static_cast<Index>(wanted + 1e-6), 1, ceil_div(m, kernels::strip_rows));
      const double rounds = std::max(1.0, static_cast<double>(row_parts * column_parts * alike) / share / threads);
      const double task = (static_cast<double>(ceil_div(m, row_parts)) + overhead.rows) *
                              (static_cast<double>(ceil_div(panels, column_parts)) + overhead.panels) +
                          of_task;
      const double time = task * ((alike > 1 ? rounds : std::ceil(rounds)) + delay);
      if (time < best) {
        best = time;
        best_rows = row_parts;
        best_columns = column_parts;
      }
    }
  }
  row_parts_ = best_rows;
  column_parts_ = best_columns;
}

Region Partition::region(Index i) const {
  if (count() == 1) return {0, m_, 0, n_};
  const Index row_part = i / column_parts_, column_part = i % column_parts_, panels = ceil_div(n_, panel_columns);
  const Index row = row_part * m_ / row_parts_, column = column_part * panels / column_parts_ * panel_columns;
  return {row, (row_part + 1) * m_ / row_parts_ - row, column,
          std::min(n_, (column_part + 1) * panels / column_parts_ * panel_columns) - column};
}

void run_gemm(std::span<const Batch> batches, const KernelTable& kernel, int threads) {
  if (batches.size() == 1) {
    const Tasks tasks = tasks_of(batches[0], 1, threads, 0, kernel);
    return parallel_for(tasks.end, threads, [&](Index i) { run_task(tasks, i, kernel); });
  }
  double all = 0;
  for (const Batch& batch : batches) all += weight_of(batch);
  if (batches.empty()) return;
  const std::span<Tasks> list(scratch_array<Tasks>(Purpose::tasks, std::ssize(batches)), batches.size());
  Index end = 0;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    list[i] = tasks_of(batches[i], weight_of(batches[i]) / all, threads, end, kernel);
    end = list[i].end;
  }
  parallel_for(end, threads, [&](Index i) {
    const auto after = [](Index task, const Tasks& tasks) { return task < tasks.end; };
    const auto found = std::upper_bound(list.begin(), list.end(), i, after);
    run_task(*found, i - (found == list.begin() ? 0 : (found - 1)->end), kernel);
  });
}

}  // namespace headlane::internal
