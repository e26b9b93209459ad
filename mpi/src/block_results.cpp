#include "block_results.hpp"

#include "grid.hpp"

#include <headlane/attention.hpp>

#include <algorithm>

namespace headlane::mpi::internal {
namespace {

/// [1, a, b, keys] as [count, a, b, size]: adjacent blocks of keys as batch elements.
template <class V>
void as_blocks(V& view, Index count, Index size) {
  if (!view) return;
  view.shape[0] = count;
  view.shape[3] = size;
  view.strides[0] = size * view.strides[3];
}

/// The keys [1, heads, count · 512, dim] as [count, heads, 512, dim].
View<const float, 4> key_blocks(View<const float, 4> x, Index count) {
  x.shape[0] = count;
  x.shape[2] = grid;
  x.strides[0] = grid * x.strides[2];
  return x;
}

}  // namespace

Index blocks_of(const SequencePiece& piece) { return ceil_div(piece.size(), grid); }

BlockOptions::BlockOptions(const AttentionOptions& of_keys, Index count, Index size) : options(of_keys) {
  AttentionOptions& o = options;
  const Index offset = o.causal_offsets ? o.causal_offsets(0) : o.causal_offset;
  for (Index b = 0; b < count; ++b) offsets_.push_back(offset - b * size);
  o.causal_offset = 0;
  o.causal_offsets = {offsets_.data(), {count}};
  if (o.key_lengths) {
    const Index length = o.key_lengths(0);
    for (Index b = 0; b < count; ++b) key_lengths_.push_back(std::clamp<Index>(length - b * size, 0, size));
    o.key_lengths = {key_lengths_.data(), {count}};
  }
  if (o.query_lengths) o.query_lengths = {o.query_lengths.data, {count}, {0}};
  as_blocks(o.mask, count, size);
  as_blocks(o.bias, count, size);
  as_blocks(o.mask_bits, count, ceil_div(size, 8));
}

void compute_blocks(const View<const float, 4>& q, const View<const float, 4>& k, const View<const float, 4>& v,
                    const AttentionOptions& options, const Rows& rows, const SequencePiece& piece,
                    const PartialResult& to) {
  const Index whole = piece.size() / grid, middle = whole * grid;
  const auto run = [&](Index first, Index count, const Keys& keys, const auto& key_view) {
    if (count == 0 || keys.count() == 0) return;
    const PartOptions part(options, rows, {piece.begin + keys.first, piece.begin + keys.end});
    BlockOptions blocks(part.options, count, keys.count() / count);
    blocks.options.lse = to.max().slice(0, first, first + count);
    blocks.options.sum = to.sum().slice(0, first, first + count);
    View<const float, 4> queries = q;
    queries.shape[0] = count;
    queries.strides[0] = 0;
    headlane::attention(queries, key_view(k.slice(2, keys.first, keys.end)), key_view(v.slice(2, keys.first, keys.end)),
                        to.out().slice(0, first, first + count), blocks.options);
  };
  run(0, whole, {0, middle}, [&](const View<const float, 4>& x) { return key_blocks(x, whole); });
  run(whole, 1, {middle, piece.size()}, [](const View<const float, 4>& x) { return x; });
}

}  // namespace headlane::mpi::internal
