#include "attention/key_block.hpp"

#include "attention/kv_pages.hpp"

namespace headlane::internal {
namespace {

using kernels::block_size;
using kernels::panel_columns;

const float* row_at(const View<const float, 4>& view, const Element& e, Index head, Index key) {
  return view.data + e.batch * view.strides[0] + head * view.strides[1] + (e.first_key + key) * view.strides[2];
}

Index keys_of_block(const KeyBlocks& blocks, const Element& e, Index block) {
  return std::clamp<Index>(std::min(blocks.keys, e.keys) - block * block_size, 0, block_size);
}

}  // namespace

void pack_block(const AttentionProblem& p, const KeyBlocks& blocks, const Element& e, Index kv_head, Index block,
                const PackedBlock& to) {
  const View<const float, 4>&k = p.keys.k, &v = p.keys.v;
  const Index first = block * block_size, keys = keys_of_block(blocks, e, block);
  if (keys == 0 || first + block_size <= visible_range(p, e.position, e.keys).begin) return;  // masked for all rows
  // As the right operand of q·kᵀ: head_dim rows, a column for each key.
  p.kernel.pack_panels({row_at(k, e, kv_head, first), k.shape[3], keys, k.strides[3], k.strides[2]}, to.keys);
  if (blocks.value_floats != 0)
    p.kernel.pack_panels({row_at(v, e, kv_head, first), keys, v.shape[3], v.strides[2], v.strides[3]}, to.values);
}

void find_packed(const AttentionProblem& p, const KeyBlocks& blocks, const QueryRows& rows, Index block,
                 const PackedBlock& packed, BlockOfKeys& found) {
  const bool in_place = blocks.value_floats == 0;
  const Index keys = keys_of_block(blocks, rows.element, block);
  found.k[0] = packed.keys;
  found.v[0] = in_place ? row_at(p.keys.v, rows.element, rows.kv_head, block * block_size) : packed.values;
  found.block = {.page = block_size,
                 .k = found.k,
                 .k_row_step = 0,
                 .transposed = nullptr,
                 .v = found.v,
                 .v_row_step = in_place ? p.keys.v.strides[2] : panel_columns,
                 .v_panel_step = in_place ? panel_columns : panel_columns * keys};
}

void find_in_place(const AttentionProblem& p, const QueryRows& rows, Index block, float* transposed,
                   BlockOfKeys& found) {
  const Index first = block * block_size;
  found.block = {.page = block_size,
                 .k = found.k,
                 .k_row_step = p.keys.k.strides[2],
                 .transposed = transposed,
                 .v = found.v,
                 .v_row_step = p.keys.v.strides[2],
                 .v_panel_step = panel_columns};
  if (p.keys.cache == nullptr) {
    found.k[0] = row_at(p.keys.k, rows.element, rows.kv_head, first);
    found.v[0] = row_at(p.keys.v, rows.element, rows.kv_head, first);
    return;
  }
  const KvPages& cache = *p.keys.cache;
  const Index sequence = p.keys.sequences[static_cast<std::size_t>(rows.element.number)];
  const Index size = cache.page_size, page = std::min(size, block_size),
              end = std::min(first + block_size, rows.element.keys);
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
