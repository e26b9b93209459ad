#include "attention/few_keys.hpp"

#include <algorithm>

namespace headlane::internal {
namespace {

/// The least rows and keys: the lowest tile of the kernel.
Index least_of(const AttentionProblem& p) { return (p.kernel.tile_rows + 1) / 2; }

}  // namespace

/// The kernel knows no option but causal and lse: another one that changes a result is named here.
bool may_have_few_keys(const AttentionProblem& p, Index rows, Index keys) {
  const AttentionOptions& o = p.options;
  const bool is_windowed = p.left != unbounded || (p.right != unbounded && p.right != 0);
  const bool masks = is_windowed || o.mask || o.mask_bits;
  const bool changes_scores = o.bias || o.relative_bias.table || o.alibi_slopes || o.softcap != 0.0f;
  const bool is_partial = o.resume || o.sum;
  const bool is_few = rows >= least_of(p) && keys >= least_of(p) && keys <= kernels::max_few_keys;
  return is_few && !masks && !changes_scores && !is_partial && p.keys.k.strides[3] == 1 && p.out.strides[3] == 1 &&
         p.out.shape[3] % kernels::panel_columns == 0;
}

bool has_few_keys(const TaskContext& context, const QueryRows& rows) {
  const Index least = least_of(context.p);
  const bool is_causal = context.p.right != unbounded;
  return context.plan.few_keys && (rows.axis == 2 || !is_causal) && rows.element.keys >= least && rows.count >= least;
}

void attend_to_few_keys(const TaskContext& context, const QueryRows& rows, const ThreadBuffers& buffers,
                        const Prefetches& prefetches) {
  const AttentionProblem& p = context.p;
  const KeyBlocks& blocks = context.plan.blocks;
  const View<const float, 4>& k = p.keys.k;
  const Index keys = keys_of_block(blocks, rows.element, 0), head_dim = k.shape[3];
  const PackedBlock packed = packed_block(blocks, buffers.packed, 0);
  const bool is_first_part = rows.first == 0 && rows.head == rows.kv_head * group_size(p);
  if (is_first_part) pack_values(p, blocks, rows.element, rows.kv_head, 0, packed);
  BlockOfKeys found;
  find_packed(p, blocks, rows, 0, packed, found);
  const kernels::AttentionOutput output = output_of(p, rows, buffers, true);
  kernels::FewKeys x{.q = {first_row(p.q, rows), rows.count, head_dim, row_stride(p.q, rows), p.q.strides[3]},
                     .scale = p.scale,
                     .k = {row_at(k, rows.element, rows.kv_head, 0), keys, head_dim, k.strides[2], 1},
                     .position = p.right == unbounded ? keys : rows.position(0),
                     .v = static_cast<const float*>(found.v[0]),
                     .v_row_step = found.block.v_row_step,
                     .v_panel_step = found.block.v_panel_step,
                     .queries = buffers.queries,
                     .scores = buffers.scores,
                     .output = &output,
                     .prefetch = {}};
  std::copy(prefetches.begin(), prefetches.end(), x.prefetch);
  p.kernel.attention_few_keys(x);
}

}  // namespace headlane::internal
