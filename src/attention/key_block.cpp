#include "attention/key_block.hpp"

#include "attention/half.hpp"
#include "attention/kv_pages.hpp"
#include "attention/next_keys.hpp"
#include "core/round.hpp"

namespace headlane::internal {

using kernels::block_size;
using kernels::panel_columns;

Index keys_of_block(const KeyBlocks& blocks, const Element& e, Index block) {
  return std::clamp<Index>(std::min(blocks.keys, e.keys) - block * block_size, 0, block_size);
}

void pack_values(const AttentionProblem& p, const KeyBlocks& blocks, const Element& e, Index kv_head, Index block,
                 const PackedBlock& to) {
  const View<const float, 4>& v = p.keys.v;
  if (blocks.value_floats == 0) return;
  p.kernel.pack_panels({row_at(v, e, kv_head, block * block_size), keys_of_block(blocks, e, block), v.shape[3],
                        v.strides[2], v.strides[3]},
                       to.values);
}

void pack_block(const AttentionProblem& p, const KeyBlocks& blocks, const Element& e, Index kv_head, Index block,
                const PackedBlock& to) {
  const View<const float, 4>& k = p.keys.k;
  const Index first = block * block_size, keys = keys_of_block(blocks, e, block);
  if (keys == 0 || first + block_size <= visible_range(p, e.position, e.keys).begin) return;  // masked for all rows
  // As the right operand of q·kᵀ: head_dim rows, a column for each key.
  p.kernel.pack_panels({row_at(k, e, kv_head, first), k.shape[3], keys, k.strides[3], k.strides[2]}, to.keys);
  pack_values(p, blocks, e, kv_head, block, to);
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

namespace {

bool rows_are_adjacent(const View<const float, 4>& x) { return x.strides[2] == x.shape[3]; }

/// Finds a block in the pages of a cache.
void find_in_cache(const AttentionProblem& p, const TaskPlan& plan, const QueryRows& rows, Index block,
                   BlockOfKeys& found) {
  const KvPages& cache = *p.keys.cache;
  const Index sequence = p.keys.sequences[static_cast<std::size_t>(rows.element.number)];
  const Index size = cache.page_size, page = std::min(size, block_size), first = block * block_size,
              end = std::min(first + block_size, rows.element.keys);
  const Index value_width = round_up(cache.value_dim, panel_columns);
  const bool scaled = has_token_scales(cache.type), is_float = cache.type == DType::float32;
  const bool prefetches = is_float && prefetches_keys(p, rows);
  Index k_columns = 0;
  for (Index key = first; key < end; key += page) {
    const Index within = key % size, i = (key - first) / page;  // in a page longer than a block
    const HeadOfPage head = cache.head(sequence, rows.kv_head, key / size);
    k_columns = head.key_columns();
    found.k[i] = head.keys() + head.key_at(within) * size_of(cache.type);
    found.v[i] = head.values() + head.value_at(within, 0) * size_of(cache.type);
    found.k_scales[i] = scaled ? head.key_scales() + within : nullptr;
    found.v_scales[i] = scaled ? head.value_scales() + within : nullptr;
    if (is_float && !prefetches) continue;
    const CachedKeys next = next_cached_keys(p, plan, rows, key);
    found.next[i] = next.keys != nullptr ? next.keys : found.k[i];
    found.next_scales[i] = next.keys != nullptr ? next.scales : found.k_scales[i];
  }
  found.block = {.page = page,
                 .k = found.k,
                 .k_row_step = 0,
                 .transposed = nullptr,
                 .v = found.v,
                 .v_row_step = is_float ? panel_columns : value_width,
                 .v_panel_step = is_float ? panel_columns * size : panel_columns,
                 .type = cache.type,
                 .k_columns = k_columns,
                 .k_scales = found.k_scales,
                 .v_scales = found.v_scales,
                 .next = found.next,
                 .next_scales = found.next_scales,
                 .prefetches = prefetches};
}

/// Replaces a block of `keys` keys by a copy in float: one page.
void widen(const AttentionProblem& p, Index keys, float* to, BlockOfKeys& found) {
  const kernels::KeyBlock& block = found.block;
  const Index head_dim = p.keys.k.shape[3], value_dim = p.keys.v.shape[3], size = size_of(block.type);
  const Index longest = round_up(keys, panel_columns), width = block.k_columns;
  float* const values = to + longest * head_dim;
  for (Index key = 0; key < keys; key += panel_columns) {
    const Index page = key / block.page, within = key % block.page;
    const Index at = within / width * width * head_dim + within % width;
    const float* const scales = found.k_scales[page];
    p.kernel.widen_rows({.data = static_cast<const std::byte*>(found.k[page]) + at * size,
                         .type = block.type,
                         .rows = head_dim,
                         .row_step = width,
                         .column_scales = scales == nullptr ? nullptr : scales + within,
                         .row_scales = nullptr,
                         .to = to + key * head_dim});
  }
  for (Index column = 0; column < value_dim; column += panel_columns)
    for (Index first = 0; first < keys; first += block.page) {
      const Index page = first / block.page;
      p.kernel.widen_rows({.data = static_cast<const std::byte*>(found.v[page]) + column * size,
                           .type = block.type,
                           .rows = std::min(block.page, keys - first),
                           .row_step = block.v_row_step,
                           .column_scales = nullptr,
                           .row_scales = found.v_scales[page],
                           .to = values + column * longest + first * panel_columns});
    }
  found.k[0] = to;
  found.v[0] = values;
  found.block = {.page = block_size,
                 .k = found.k,
                 .k_row_step = 0,
                 .transposed = nullptr,
                 .v = found.v,
                 .v_row_step = panel_columns,
                 .v_panel_step = panel_columns * longest};
}

/// Whether tasks of so many rows widen whole blocks of a cache before the kernel reads them.
bool widens_blocks(const AttentionProblem& p, Index rows) {
  return p.keys.cache != nullptr && p.keys.cache->type != DType::float32 && rows > kernels::max_widening_rows;
}

/// Floats of a float copy of a block of tensors of 16 bits.
Index floats_of_copy(const AttentionProblem& p) {
  return std::min(block_size, p.keys.k.shape[2]) * (p.keys.k.shape[3] + p.keys.v.shape[3]);
}

/// Finds a block of tensors, in rows of these strides.
void find_rows(const float* k, Index k_row_step, const float* v, Index v_row_step, float* transposed,
               BlockOfKeys& found) {
  found.k[0] = found.next[0] = k;
  found.v[0] = v;
  found.block = {.page = block_size,
                 .k = found.k,
                 .k_row_step = k_row_step,
                 .transposed = transposed,
                 .v = found.v,
                 .v_row_step = v_row_step,
                 .v_panel_step = panel_columns,
                 .next = found.next};
}

/// Finds a block of tensors of 16 bits in a float copy, which is made. What comes from memory is
/// prefetched: decoding 8 × 1024 keys takes 0.75 to 0.9 of the time, 4096 keys 0.9 to 0.98 (Zen 4).
void find_in_halves(const AttentionProblem& p, const QueryRows& rows, Index first, float* unpacked,
                    BlockOfKeys& found) {
  constexpr Index keys_ahead = 32, line = 64 / sizeof(std::uint16_t);
  const HalfTensors& x = *p.keys.halves;
  const Index keys = std::min(block_size, rows.element.keys - first), dim = x.k.shape[3], value_dim = x.v.shape[3];
  const auto widen_to = [&](float* to, const View<const std::uint16_t, 4>& from) {
    const std::uint16_t* row = row_at(from, rows.element, rows.kv_head, first);
    const Index width = from.shape[3], step = from.strides[2];
    const Index at_once = step == width ? 8 : 1;  // keys without gaps between them
    for (Index key = 0; key < keys; key += at_once) {
      const Index later = std::min(key + keys_ahead, keys - 1), prefetched = std::min(at_once, keys - later) * width;
      for (Index i = 0; i < prefetched; i += line) __builtin_prefetch(row + later * step + i);
      p.kernel.widen(row + key * step, x.type, to + key * width, std::min(at_once, keys - key) * width);
    }
  };
  float *const k = unpacked + kernels::transposed_keys * dim, *const v = k + keys * dim;
  widen_to(k, x.k);
  widen_to(v, x.v);
  find_rows(k, dim, v, value_dim, unpacked, found);
}

}  // namespace

void find_in_place(const AttentionProblem& p, const TaskPlan& plan, const QueryRows& rows, Index block, float* unpacked,
                   BlockOfKeys& found) {
  const Index first = block * block_size;
  if (p.keys.cache != nullptr) {
    find_in_cache(p, plan, rows, block, found);
    if (widens_blocks(p, rows.count)) widen(p, std::min(block_size, rows.element.keys - first), unpacked, found);
    return;
  }
  if (p.keys.halves != nullptr) return find_in_halves(p, rows, first, unpacked, found);
  const View<const float, 4>&k = p.keys.k, &v = p.keys.v;
  find_rows(row_at(k, rows.element, rows.kv_head, first), k.strides[2], row_at(v, rows.element, rows.kv_head, first),
            v.strides[2], unpacked, found);
  // Panels prefetch what follows in memory, columns one row with each row.
  const bool follows = rows_are_adjacent(k) && rows_are_adjacent(v),
             by_rows = k.strides[2] == v.strides[2] && rows.count <= p.kernel.rows_by_columns;
  found.block.prefetches = prefetches_keys(p, rows) && (follows || by_rows);
  if (!found.block.prefetches) return;
  if (const float* const next = next_keys(p, plan, rows, first)) found.next[0] = next;
}

Index unpacked_floats(const AttentionProblem& p, Index rows) {
  const Index head_dim = p.keys.k.shape[3], value_width = round_up(p.keys.v.shape[3], panel_columns);
  if (p.keys.cache == nullptr)
    return kernels::transposed_keys * head_dim + (p.keys.halves == nullptr ? 0 : floats_of_copy(p));
  return widens_blocks(p, rows) ? packed_blocks(p.keys.k.shape[2], head_dim, value_width).block_floats() : 0;
}

}  // namespace headlane::internal
