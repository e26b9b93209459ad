#include "gemm/right_operand.hpp"

#include "core/caches.hpp"
#include "core/round.hpp"
#include "core/scratch.hpp"
#include "gemm/block_sizes.hpp"

#include <cstdlib>

namespace headlane::internal {

using kernels::panel_columns;

namespace {

/// True if b comes from the L2 either way, as it spans fewer floats than 128 KiB; or half of an L2
/// of 2 MiB or more where few rows of a and c are beside it, and its rows do not fall into the same
/// sets of the L1 (128 × 512 × 512 in 0.97 of the time, 512 × 512 × 512 in 1.05; Emerald Rapids).
bool comes_from_l2(const View<const float, 2>& b, Index span, Index rows) {
  constexpr Index few_floats = 32768, few_rows = 256, large_l2 = 2 << 20;
  const Index bytes = cache_sizes().l2_bytes;
  const bool is_half = bytes >= large_l2 && !are_in_one_set(b.strides[0]) && rows <= few_rows;
  return span < (is_half ? bytes / 2 / Index{sizeof(float)} : few_floats);
}

/// True if all rows read b in place. A tile of its own for panels makes packing pay off sooner: by
/// AVX2 16, 24 and 32 × 512 × 512 take 0.77, 0.7 and 0.68 of the time, 512 × 512 × 64 0.75, 512 ×
/// 64 × 512 0.87 (Zen 3).
bool is_read_in_place(const Product& p, const kernels::KernelTable& kernel) {
  const Index rows = p.c.shape[0], depth = p.b.shape[0];
  if (depth == 1) return true;  // any stride, even one without an absolute value
  const Index span = (depth - 1) * std::abs(p.b.strides[0]);
  constexpr Index max_rows = 32, many_rows = 2 * kernels::strip_rows, floats_in_l1 = 8192;
  if (kernel.panel_tile_rows == kernel.tile_rows) return rows <= max_rows || comes_from_l2(p.b, span, rows);
  return rows < kernels::strip_rows || (rows < many_rows ? comes_from_l2(p.b, span, rows) : span < floats_in_l1);
}

/// How the kernel reads b.
enum class Strategy {
  packed,        // it is packed already
  direct,        // in place
  packed_once,   // in place by the first rows, which pack it for all others
  packed_first,  // packed before the first rows, since elements of its rows are not contiguous
  columns        // in place: those of its columns are, and there are few rows
};

Strategy strategy_of(const Product& p, const kernels::KernelTable& kernel) {
  if (p.packed) return Strategy::packed;
  const Index rows = p.c.shape[0], columns = p.c.shape[1];
  if (p.b.strides[1] != 1 && columns > 1) {
    const bool contiguous = p.b.strides[0] == 1 && p.b.strides[1] != 0;
    return contiguous && rows <= kernel.rows_by_columns ? Strategy::columns : Strategy::packed_first;
  }
  return is_read_in_place(p, kernel) ? Strategy::direct : Strategy::packed_once;
}

}  // namespace

bool is_packed_first(const Product& p, const kernels::KernelTable& kernel) {
  return strategy_of(p, kernel) == Strategy::packed_first;
}

bool is_packed_by_tasks(const Product& p, const kernels::KernelTable& kernel) {
  const Strategy strategy = strategy_of(p, kernel);
  return strategy == Strategy::packed_once || strategy == Strategy::packed_first;
}

RightBlock right_of(const Product& p, Index first, Index k, const kernels::KernelTable& kernel) {
  const Strategy strategy = strategy_of(p, kernel);
  const Index n = p.c.shape[1];
  if (strategy == Strategy::packed) {
    const bool widens =
        p.packed.type != DType::float32 && p.c.shape[0] > kernel.tile_rows && p.activations == DType::float32;
    return {.data = p.packed.panels(first),
            .type = p.packed.type,
            .scales = offset_by(p.packed.scales, p.packed.column),
            .sums = offset_by(p.packed.sums, p.packed.column),
            .row_step = kernels::unit_of(p.packed.type).items,
            .panel_step = p.packed.panel_items(first),
            .is_kept = widens};
  }
  if (strategy == Strategy::packed_first) {
    float* packed = scratch(Purpose::panels, round_up(n, panel_columns) * k);
    kernel.pack_panels(source(p.b, first, k, 0, n), packed);
    return packed_right(packed, k);
  }
  if (strategy == Strategy::columns)
    return {.data = p.b.data + first,
            .type = DType::float32,
            .scales = nullptr,
            .sums = nullptr,
            .row_step = 1,
            .panel_step = panel_columns * p.b.strides[1],
            .is_kept = false,
            .column_step = p.b.strides[1]};
  const Index row_step = p.a.shape[1] > 1 ? p.b.strides[0] : 0;  // a single row may have any stride
  return {.data = p.b.data + first * row_step,
          .type = DType::float32,
          .scales = nullptr,
          .sums = nullptr,
          .row_step = row_step,
          .panel_step = panel_columns,
          .is_kept = strategy == Strategy::packed_once};
}

}  // namespace headlane::internal
