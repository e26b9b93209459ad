#include "attention/key_block.hpp"

#include "attention/kv_pages.hpp"

namespace headlane::internal {
namespace {

using kernels::block_size;
using kernels::panel_columns;

const float* at(const View<const float, 4>& view, const Element& e, Index head, Index key) {
  return view.data + e.batch * view.strides[0] + head * view.strides[1] + (e.first_key + key) * view.strides[2];
}

Index keys_of_block(const AttentionCut& cut, const Element& e, Index block) {
  return std::clamp<Index>(std::min(cut.longest, e.keys) - block * block_size, 0, block_size);
}

}  // namespace

void pack_block(const AttentionProblem& p, const AttentionCut& cut, const Element& e, Index kv_head, Index block,
                const PackedBlock& to) {
  const View<const float, 4>&k = p.keys.k, &v = p.keys.v;
  const Index first = block * block_size, keys = keys_of_block(cut, e, block);
  if (keys == 0 || first + block_size <= keys_at(p, e.offset, e.keys).begin) return;  // no row sees it
  // As the right operand of q·kᵀ: head_dim rows, a column for each key.
  p.kernel.pack_panels({at(k, e, kv_head, first), k.shape[3], keys, k.strides[3], k.strides[2]}, to.keys);
  if (cut.value_block != 0)
    p.kernel.pack_panels({at(v, e, kv_head, first), keys, v.shape[3], v.strides[2], v.strides[3]}, to.values);
}

void find_packed(const AttentionProblem& p, const AttentionCut& cut, const Rows& rows, Index block,
                 const PackedBlock& packed, BlockOfKeys& found) {
  const bool direct = cut.value_block == 0;
  const Index keys = keys_of_block(cut, rows.of, block);
  found.k[0] = packed.keys;
  found.v[0] = direct ? at(p.keys.v, rows.of, rows.kv_head, block * block_size) : packed.values;
  found.block = {.page = block_size,
                 .k = found.k,
                 .k_row_step = 0,
                 .turned = nullptr,
                 .v = found.v,
                 .v_row_step = direct ? p.keys.v.strides[2] : panel_columns,
                 .v_panel_step = direct ? panel_columns : panel_columns * keys};
}

void find_in_place(const AttentionProblem& p, const Rows& rows, Index block, float* turned, BlockOfKeys& found) {
  const Index first = block * block_size;
  found.block = {.page = block_size,
                 .k = found.k,
                 .k_row_step = p.keys.k.strides[2],
                 .turned = turned,
                 .v = found.v,
                 .v_row_step = p.keys.v.strides[2],
                 .v_panel_step = panel_columns};
  if (p.keys.cache == nullptr) {
    found.k[0] = at(p.keys.k, rows.of, rows.kv_head, first);
    found.v[0] = at(p.keys.v, rows.of, rows.kv_head, first);
    return;
  }
  const KvPages& cache = *p.keys.cache;
  const Index sequence = p.keys.sequences[static_cast<std::size_t>(rows.of.number)];
  const Index size = cache.page_size, page = std::min(size, block_size),
              end = std::min(first + block_size, rows.of.keys);
  for (Index key = first; key < end; key += page) {
    const Index within = key % size, i = (key - first) / page;  // in a page longer than a block
    found.k[i] = cache.keys(sequence, rows.kv_head, key / size) + within * cache.head_dim;
    found.v[i] = cache.values(sequence, rows.kv_head, key / size) + within * panel_columns;
  }
  found.block.page = page;
  found.block.k_row_step = 0;
  found.block.v_row_step = panel_columns;
  found.block.v_panel_step = panel_columns * size;
}

}  // namespace headlane::internal
