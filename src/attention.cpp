// Attention: how a checked problem is cut into tasks and blocks of keys. Checks are in attention_check.cpp, the arithmetic in
// kernels/attention_block.hpp.
#include "attention_seen.hpp"
#include "parallel.hpp"
#include "round.hpp"
#include "scratch.hpp"

#include <algorithm>
#include <limits>

namespace headlane {
namespace {

using kernels::AttentionState;
using kernels::block_size;
using kernels::max_tile_rows;
using kernels::panel_columns;
using kernels::row_stride;

/// Packed keys and values in work at a time, unless one kv head alone takes more.
constexpr Index most_packed = Index{32} << 20 >> 2;  // 32 MiB in floats
/// A kv head of at most so much is packed by the task that uses it, into its own L2; a larger one by all threads.
constexpr Index own_packed = Index{1} << 20 >> 2;  // 1 MiB in floats
/// With fewer query rows, values are read where they stand: too few uses pay for no packing.
constexpr Index most_direct_rows = 24;

/// Where the packed keys and values of one kv head lie: block after block of keys, then block after block of values.
struct Layout {
  Index keys;  // that any query sees
  Index blocks;
  Index value_width;             // value_dim, rounded up to whole panels
  Index key_block, value_block;  // floats of a block; value_block is 0 if values are read where they stand

  Layout(const AttentionProblem& p, Index keys_seen) : keys(keys_seen), blocks(ceil_div(keys, block_size)) {
    const Index width = panel_columns, longest = std::min(block_size, round_up(keys, width));
    const Index rows = p.q.shape[2] * (p.q.shape[1] / p.k.shape[1]);
    value_width = round_up(p.v.shape[3], width);
    const bool direct = rows <= most_direct_rows && p.v.strides[3] == 1 && p.v.shape[3] % kernels::lanes == 0;
    key_block = longest * p.q.shape[3];
    value_block = direct ? 0 : longest * value_width;
  }
  [[nodiscard]] Index floats() const { return blocks * (key_block + value_block); }
};

/// Where a block is packed.
struct Packed {
  float *keys, *values;  // values: not used if they are read where they stand
};

Packed packed_block(const Layout& layout, float* all, Index block) {
  return {all + block * layout.key_block, all + layout.blocks * layout.key_block + block * layout.value_block};
}

/// Keys of a block that are there.
Index keys_of(const AttentionProblem& p, const Layout& layout, Index batch, Index block) {
  return std::clamp<Index>(std::min(layout.keys, key_length(p, batch)) - block * block_size, 0, block_size);
}

void pack_block(const AttentionProblem& p, const Layout& layout, const KvHead& kv, Index block, const Packed& to) {
  const Index first = block * block_size, keys = keys_of(p, layout, kv.batch, block);
  if (keys == 0 || first + block_size <= keys_of_row(p, 0, layout.keys).begin) return;  // no row sees it
  // As the right operand of q·kᵀ: head_dim rows, a column for each key.
  p.kernel.pack_panels({at(p.k, kv.batch, kv.head, first), p.k.shape[3], keys, p.k.strides[3], p.k.strides[2]},
                       to.keys);
  if (layout.value_block != 0)
    p.kernel.pack_panels({at(p.v, kv.batch, kv.head, first), keys, p.v.shape[3], p.v.strides[2], p.v.strides[3]},
                         to.values);
}

AttentionState state_of(const Layout& layout) {
  float* state = scratch(Purpose::state, most_rows * (layout.value_width + 2));
  return {state + 2 * most_rows, layout.value_width, state, state + most_rows};
}

void clear(const AttentionState& state, Index rows) {
  std::fill_n(state.out, rows * state.out_step, 0.0f);
  std::fill_n(state.max, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(state.sum, rows, 0.0f);
}

constexpr float no_sink = -std::numeric_limits<float>::infinity();

float per_head(const View<const float, 1>& values, Index head, float otherwise) {
  return values.data == nullptr ? otherwise : values.data[head * values.strides[0]];
}

void finish(const AttentionProblem& p, const Rows& rows, const AttentionState& state, float sink) {
  const View<float, 3>& lse = p.lse;
  p.kernel.attention_finish(
      state, {.rows = rows.count,
              .value_dim = p.v.shape[3],
              .out = at(p.out, rows.kv.batch, rows.head, rows.first),
              .row_step = p.out.strides[2],
              .column_step = p.out.strides[3],
              .lse = lse.data == nullptr ? nullptr
                                         : lse.data + rows.kv.batch * lse.strides[0] + rows.head * lse.strides[1] +
                                               rows.first * lse.strides[2],
              .lse_step = lse.strides[2],
              .sink = sink});
}

/// `get(block)` says where the block is packed; it is called at most once for each, in order.
template <class Get>
void attend(const AttentionProblem& p, const Layout& layout, const Rows& rows, const Get& get) {
  float* q = scratch(Purpose::rows, rows.count * row_stride);
  p.kernel.pack_rows(
      {at(p.q, rows.kv.batch, rows.head, rows.first), rows.count, p.q.shape[3], p.q.strides[2], p.q.strides[3]},
      p.scale, q);
  const AttentionState state = state_of(layout);
  const Index keys = std::min(layout.keys, key_length(p, rows.kv.batch));
  const Index begin = keys_of_row(p, rows.first, keys).begin;
  const Index end = keys_of_row(p, rows.first + rows.count - 1, keys).end;
  bool fresh = true;
  SeenBlock seen;
  for (Index block = begin / block_size; block * block_size < end; ++block) {
    const Index first = block * block_size, here = keys_of(p, layout, rows.kv.batch, block);
    look(p, rows, keys, first, seen);
    if (!seen.any) continue;
    const bool direct = layout.value_block == 0;
    const Packed packed = get(block);
    const Index width = panel_columns;
    p.kernel.attention_block({.rows = rows.count,
                              .head_dim = p.q.shape[3],
                              .value_dim = p.v.shape[3],
                              .q = q,
                              .k = packed.keys,
                              .v = direct ? at(p.v, rows.kv.batch, rows.kv.head, first) : packed.values,
                              .v_row_step = direct ? p.v.strides[2] : width,
                              .v_panel_step = direct ? width : width * here,
                              .hidden = seen.hidden,
                              .seen = seen.seen,
                              .alike = seen.alike,
                              .mask = seen.mask,
                              .bias = seen.bias,
                              .softcap = p.softcap,
                              .slope = per_head(p.alibi_slopes, rows.head, 0.0f),
                              .distance = first - rows.first - p.offset,
                              .scores = scratch(Purpose::block, max_tile_rows * row_stride),
                              .fresh = fresh,
                              .state = state});
    fresh = false;
  }
  if (fresh) clear(state, rows.count);
  finish(p, rows, state, per_head(p.sinks, rows.head, no_sink));
}

/// The same, of rows that may be padding in part: those give zeros and are not read.
template <class Get>
void attend_or_clear(const AttentionProblem& p, const Layout& layout, const Rows& rows, const Get& get) {
  const Index there = std::clamp<Index>(query_length(p, rows.kv.batch) - rows.first, 0, rows.count);
  if (there > 0) attend(p, layout, {rows.kv, rows.head, rows.first, there}, get);
  if (there == rows.count) return;
  const AttentionState state = state_of(layout);
  clear(state, rows.count - there);
  finish(p, {rows.kv, rows.head, rows.first + there, rows.count - there}, state, no_sink);
}

KvHead kv_head(const AttentionProblem& p, Index pair) { return {pair / p.k.shape[1], pair % p.k.shape[1]}; }

/// A task is a kv head with all its queries: packs for itself. If one pass serves them all, as in decoding, each block is packed
/// when its turn comes, into the same memory, and read from the L2.
void by_head(const AttentionProblem& p, const Layout& layout, Index pairs) {
  const Index length = p.q.shape[2], group = p.q.shape[1] / p.k.shape[1];
  const bool one_pass = group == 1 && length <= most_rows;
  parallel_for(pairs, p.threads, [&](Index pair) {
    const KvHead kv = kv_head(p, pair);
    if (one_pass) {
      float* packed = scratch(Purpose::panels, layout.key_block + layout.value_block);
      const Packed here{packed, packed + layout.key_block};
      return attend_or_clear(p, layout, {kv, kv.head, 0, length}, [&](Index block) {
        pack_block(p, layout, kv, block, here);
        return here;
      });
    }
    float* packed = scratch(Purpose::panels, layout.floats());
    const auto get = [&](Index block) { return packed_block(layout, packed, block); };
    for (Index block = 0; block < layout.blocks; ++block) pack_block(p, layout, kv, block, get(block));
    for (Index head = kv.head * group; head < (kv.head + 1) * group; ++head)
      for (Index first = 0; first < length; first += most_rows)
        attend_or_clear(p, layout, {kv, head, first, std::min(most_rows, length - first)}, get);
  });
}

/// Some kv heads at a time: all threads pack them, then share their query rows.
void by_rows(const AttentionProblem& p, const Layout& layout, Index pairs) {
  const Index length = p.q.shape[2], group = p.q.shape[1] / p.k.shape[1], floats = layout.floats();
  const Index at_once = std::clamp<Index>(most_packed / std::max<Index>(floats, 1), 1, pairs);
  const Index all_rows = at_once * group * length;
  const Index share = std::min(most_rows, round_up(ceil_div(all_rows, Index{4} * p.threads), p.kernel.tile_rows));
  const Index parts = ceil_div(length, share);
  float* packed = scratch(Purpose::panels, at_once * floats);
  for (Index from = 0; from < pairs; from += at_once) {
    const Index here = std::min(at_once, pairs - from);
    parallel_for(here * layout.blocks, p.threads, [&](Index task) {
      const Index pair = task / layout.blocks;
      const Index block = task % layout.blocks;
      pack_block(p, layout, kv_head(p, from + pair), block, packed_block(layout, packed + pair * floats, block));
    });
    parallel_for(here * group * parts, p.threads, [&](Index task) {
      const Index pair = task / (group * parts), part = parts - 1 - task % parts;  // causal: the longest rows first
      const KvHead kv = kv_head(p, from + pair);
      attend_or_clear(
          p, layout, {kv, kv.head * group + task / parts % group, part * share, std::min(share, length - part * share)},
          [&](Index block) { return packed_block(layout, packed + pair * floats, block); });
    });
  }
}

}  // namespace

void run_attention(const AttentionProblem& p) {
  const Index pairs = p.k.shape[0] * p.k.shape[1];
  const Layout layout(p, keys_of_row(p, p.q.shape[2] - 1, p.k.shape[2]).end);
  const bool balanced = p.threads == 1 || pairs % p.threads == 0 || pairs >= 4 * p.threads;
  if (p.threads == 1 || (balanced && layout.floats() <= own_packed)) by_head(p, layout, pairs);
  else by_rows(p, layout, pairs);
}

}  // namespace headlane
