// A task of GEMM: packs rows that the kernel cannot read in place, and runs the kernel block by
// block.
#include "core/caches.hpp"
#include "core/round.hpp"
#include "core/scratch.hpp"
#include "gemm/block_sizes.hpp"
#include "gemm/quantised_rows.hpp"
#include "gemm/right_operand.hpp"

#include <algorithm>

namespace headlane::internal {
namespace {

using kernels::block_size;
using kernels::GemmBlock;
using kernels::KernelTable;
using kernels::packed_row_stride;
using kernels::panel_columns;

/// One block along k: rows first … first + k - 1 of b.
struct DepthBlock {
  Index first, k;
  float beta;  // the factor of c: 1 from the second block on
  bool last;   // the epilogue follows
};

/// Calls f(depth) for the blocks along k, in order.
template <class F>
void for_each_depth_block(Index k, float beta, const F& f) {
  for (Index first = 0; first < k; first += block_size)
    f(DepthBlock{first, std::min(block_size, k - first), first == 0 ? beta : 1.0f, first + block_size >= k});
}

/// True if few rows of a prefetch the next columns of packed floats while they use the present
/// ones. What the L2 has already costs 2 to 8 %, so not where all of b is likely to stay in it.
/// Less than 4 rows read several panels side by side, streams that the hardware prefetches; rows
/// that pack b prefetch it themselves.
bool prefetches_columns(const Product& p, const RightBlock& right, Index rows) {
  constexpr Index min_rows = 4, min_floats = Index{256} << 10 >> 2;  // 256 KiB
  const bool packed = right.type == DType::float32 && right.row_step == panel_columns && !right.is_kept;
  return packed && p.activations == DType::float32 && rows >= min_rows && rows < 2 * kernels::strip_rows &&
         p.a.shape[1] * p.c.shape[1] >= min_floats;
}

/// The epilogue of the elements of c from (row, column) on.
kernels::GemmEpilogue epilogue_from(const kernels::GemmEpilogue& epilogue, Index row, Index column) {
  kernels::GemmEpilogue result = epilogue;
  result.bias = offset_by(epilogue.bias, column * epilogue.bias_step);
  result.factor = offset_by(epilogue.factor, row * epilogue.factor_row_step + column);
  result.residual = offset_by(epilogue.residual, row * epilogue.row_step + column * epilogue.column_step);
  return result;
}

bool has_effect(const kernels::GemmEpilogue& epilogue) {
  return epilogue.bias != nullptr || epilogue.activation != Activation::none || epilogue.factor != nullptr ||
         epilogue.residual != nullptr;
}

/// True if the kernel writes rows of c in place: their elements are contiguous.
bool writes_rows(const View<float, 2>& c) { return c.strides[1] == 1 || c.shape[1] == 1; }

/// Runs one block of the kernel on c from (row, column) on, by way of a copy if need be. With k = 0
/// only the epilogue.
void block_on_c(const Product& p, const KernelTable& kernel, GemmBlock block, bool last, Index row, Index column) {
  const auto run = block.k == 0                       ? kernel.gemm_epilogue
                   : p.activations == DType::int8     ? kernel.gemm_int8
                   : p.activations == DType::bfloat16 ? kernel.gemm_bfloat16
                                                      : kernel.gemm_block;
  kernels::GemmEpilogue epilogue;
  if (last && has_effect(p.epilogue)) {
    epilogue = epilogue_from(p.epilogue, row, column);
    block.epilogue = &epilogue;
  }
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

/// Some rows times at most `width` columns of b from `column` on; a, k and beta are not set.
GemmBlock block_of(const Product& p, const RightBlock& right, Index rows, Index column, Index width) {
  GemmBlock block{};
  block.m = rows;
  block.n = std::min(width, p.c.shape[1] - column);
  block.b = bytes_from(right.data, column / panel_columns * right.panel_step * kernels::unit_of(right.type).item_bytes);
  block.b_type = right.type;
  block.b_scales = offset_by(right.scales, column);
  block.b_sums = offset_by(right.sums, column);
  block.b_row_step = right.row_step;
  block.b_panel_step = right.panel_step;
  block.b_column_step = right.column_step;
  block.alpha = p.alpha;
  return block;
}

/// The rows of a from `next` on are what a block prefetches: those of the next strip, or those that
/// are packed next. While packing waited for its rows, 512 × 512 × 2048 reached 93 instead of 95 %
/// of the FMA peak (Zen 4; with 2 threads 90 instead of 94).
void set_rows_ahead(const Product& p, const DepthBlock& depth, Index next, GemmBlock& block) {
  block.ahead = block.a;
  if (next >= p.a.shape[0] || p.a.strides[1] != 1 || p.activations == DType::bfloat16) return;
  block.ahead = p.a.data + next * p.a.strides[0] + depth.first;
  block.ahead_row_step = p.a.strides[0];
  block.ahead_rows = p.a.shape[0] - next;
}

/// Columns of b that some rows multiply by before the next ones; half as many if as many that come
/// next are to stay in the L2, too: packed, or as they are before few rows pack them (48 × 512 ×
/// 512 in 0.94 of the time, 128 × 512 × 512 in 0.97; Emerald Rapids).
Index columns_at_once(const Product& p, const RightBlock& right, Index rows, Index k) {
  constexpr Index few_rows = 192;
  const Index in_l2 = p.activations == DType::bfloat16 ? 2 * columns_in_l2(k) : columns_in_l2(k);
  const bool is_half = prefetches_columns(p, right, rows) || (right.is_kept && rows <= few_rows);
  return std::min(p.c.shape[1], is_half ? in_l2 / 2 / panel_columns * panel_columns : in_l2);
}

/// Multiplies some rows by one block of b, and packs it at `keep` if that is not null.
void multiply_rows(const Product& p, const KernelTable& kernel, const DepthBlock& depth, const RightBlock& right,
                   float* keep, Index row, Index rows) {
  const float* a = p.a.data + row * p.a.strides[0] + depth.first * p.a.strides[1];
  Index a_row_step = p.a.strides[0];
  const bool in_place = reads_rows(p);
  if (!in_place) {
    float* packed = scratch(Purpose::rows, rows * packed_row_stride);
    const kernels::Source from = source(p.a, row, rows, depth.first, depth.k);
    if (p.activations == DType::bfloat16) kernel.round_rows(from, packed);
    else kernel.pack_rows(from, 1.0f, packed);
    a = packed;
    a_row_step = packed_row_stride;
  }
  const Index at_once = columns_at_once(p, right, rows, depth.k);
  for (Index column = 0; column < p.c.shape[1]; column += at_once) {
    GemmBlock block = block_of(p, right, rows, column, at_once);
    block.k = depth.k;
    block.a = a;
    block.a_row_step = a_row_step;
    set_rows_ahead(p, depth, in_place ? row + kernels::strip_rows : row + rows, block);
    block.prefetches = prefetches_columns(p, right, rows);
    block.keep = rows == p.c.shape[0] ? keep : offset_by(keep, column * depth.k);
    block.beta = depth.beta;
    block_on_c(p, kernel, block, depth.last, row, column);
  }
}

/// Some rows of a product of integers, by a block along k; rows and columns have a quarter of the
/// L2 each.
void multiply_integers(const Product& p, const KernelTable& kernel, const DepthBlock& depth,
                       kernels::QuantisedRows quantised, Index row, Index rows) {
  const Index n = p.c.shape[1];
  const Index width = std::min(n, std::max<Index>(1, bytes_in_l2() / 2 / depth.k / panel_columns) * panel_columns);
  const RightBlock right = right_of(p, depth.first, depth.k, kernel);
  quantised.numbers += depth.first;
  quantised.first = depth.first;
  for (Index column = 0; column < n; column += width) {
    GemmBlock block = block_of(p, right, rows, column, width);
    block.k = depth.k;
    block.quantised = &quantised;
    block.beta = depth.beta;
    block_on_c(p, kernel, block, depth.last, row, column);
  }
}

/// A product of integers, by all of k at a time if the columns of b have one scale each.
void compute_int8(const Product& p, const KernelTable& kernel) {
  const Index m = p.c.shape[0], k = p.a.shape[1];
  const Index height = std::min(m, std::max(kernels::strip_rows, bytes_in_l2() / 2 / quantised_row_bytes(k, kernel)));
  for (Index row = 0; row < m; row += height) {
    const Index rows = std::min(height, m - row);
    const kernels::QuantisedRows quantised = quantise(p.a, row, rows, kernel);
    const auto multiply = [&](const DepthBlock& depth) { multiply_integers(p, kernel, depth, quantised, row, rows); };
    if (has_scales(p.packed.type)) multiply({0, k, p.beta, true});
    else for_each_depth_block(k, p.beta, multiply);
  }
}

/// k = 0 or alpha = 0: c = beta · c, and the epilogue.
void compute_without_product(const Product& p, const KernelTable& kernel) {
  const Index m = p.c.shape[0], n = p.c.shape[1];
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < n; ++j) p.c(i, j) = p.beta == 0.0f ? 0.0f : p.beta * p.c(i, j);
  if (!has_effect(p.epilogue)) return;
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

/// A product of floats.
void compute_floats(const Product& p, const KernelTable& kernel) {
  const Index m = p.c.shape[0];
  const Index limit = reads_rows(p) && writes_rows(p.c) ? max_rows_in_place() : max_rows_packed;
  const Index rows = m <= limit ? m : ceil_div(m, ceil_div(m, limit));
  for_each_depth_block(p.a.shape[1], p.beta, [&](const DepthBlock& depth) {
    RightBlock right = right_of(p, depth.first, depth.k, kernel);
    // Where no rows come after these, packed columns take the place of those before.
    const Index kept_columns = rows < m ? p.c.shape[1] : columns_at_once(p, right, rows, depth.k);
    float* keep = right.is_kept ? scratch(Purpose::panels, round_up(kept_columns, panel_columns) * depth.k) : nullptr;
    for (Index row = 0; row < m; row += rows) {
      multiply_rows(p, kernel, depth, right, keep, row, std::min(rows, m - row));
      if (right.is_kept) right = packed_right(keep, depth.k);
      keep = nullptr;
    }
  });
}

/// True if few columns are computed as few rows of the transposed product, whose columns, the rows
/// of a, the kernel transposes in registers: 512 × 1, 2 and 3 × 512 take 22, 29 and 36 µs, padded
/// columns 46 and four of them as long either way (Zen 4). With AVX2 they are always padded.
bool computes_transposed(const Product& p, const KernelTable& kernel) {
  const auto [m, n] = p.c.shape;
  return n <= max_transposed_columns && n <= kernel.rows_by_columns && m >= min_transposed_rows && !p.packed &&
         p.activations == DType::float32 && p.a.strides[1] == 1 && p.a.strides[0] != 0 && p.epilogue.bias == nullptr &&
         p.epilogue.factor == nullptr;
}

}  // namespace

/// They are read in place if they are not rounded, their elements are contiguous, and they are not
/// in one set of an L1 that cannot hold those of a strip. With 12 ways such rows cost 3 % of 512 ×
/// 512 × 2048, packing them 5 % (Zen 5); with 8 ways 4 % of it, and up to 15 % of 2048 × 2048 ×
/// 2048 (Zen 4).
bool reads_rows(const Product& p) {
  const View<const float, 2>& a = p.a;
  if (p.activations == DType::bfloat16) return false;
  if (a.shape[1] == 1) return true;
  return a.strides[1] == 1 &&
         (!are_in_one_set(a.strides[0]) || std::min(a.shape[0], kernels::strip_rows) <= cache_sizes().l1_ways);
}

Product restricted(const Product& p, const Region& region) {
  Product result = p;
  result.a.data = offset_by(p.a.data, region.row * p.a.strides[0]);
  result.a.shape[0] = result.c.shape[0] = region.rows;
  if (!p.packed) result.b.data = offset_by(p.b.data, region.column * p.b.strides[1]);
  result.packed.column += region.column;
  result.b.shape[1] = result.c.shape[1] = region.columns;
  result.c.data += region.row * p.c.strides[0] + region.column * p.c.strides[1];
  result.epilogue = epilogue_from(p.epilogue, region.row, region.column);
  return result;
}

void compute(const Product& p, const KernelTable& kernel) {
  const Index m = p.c.shape[0], n = p.c.shape[1];
  if (p.a.shape[1] == 0 || p.alpha == 0.0f) return compute_without_product(p, kernel);
  if (p.activations == DType::int8) return compute_int8(p, kernel);
  if (computes_transposed(p, kernel)) return compute_floats(transposed(p), kernel);
  // Few rows pack 64 columns at a time: these are still in the L2 when they are multiplied.
  constexpr Index few_rows = 32, few_columns = 2 * panel_columns;
  if (m > few_rows || n <= few_columns || !is_packed_first(p, kernel)) return compute_floats(p, kernel);
  for (Index column = 0; column < n; column += few_columns)
    compute_floats(restricted(p, {0, m, column, std::min(few_columns, n - column)}), kernel);
}

}  // namespace headlane::internal
