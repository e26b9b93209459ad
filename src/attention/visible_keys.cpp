#include "attention/visible_keys.hpp"

#include "core/round.hpp"

#include <limits>

namespace headlane::internal {
namespace {

using kernels::block_size;

Index value_or(const View<const Index, 1>& values, Index i, Index otherwise) { return !values ? otherwise : values(i); }

/// A mask or bias from the first row and a key on; `keys_per_element` keys share an element.
template <class T>
kernels::PerScore<T> per_score(const View<const T, 4>& option, const QueryRows& rows, Index key,
                               Index keys_per_element = 1) {
  if (!option) return {nullptr, 0, 0};
  return {first_row(option, rows) + key / keys_per_element * option.strides[3], row_stride(option, rows),
          option.strides[3]};
}

/// The visible keys of the block from key `first` on, counted from there.
KeyRange visible_of_block(const AttentionProblem& p, const QueryRows& rows, Index row, Index first) {
  const KeyRange all = visible_range(p, rows.position(row), rows.element.keys);
  return {std::clamp<Index>(all.begin - first, 0, block_size), std::clamp<Index>(all.end - first, 0, block_size)};
}

/// The range without masked keys at either end: padding costs nothing.
template <class IsMasked>
KeyRange trimmed(KeyRange keys, const IsMasked& is_masked) {
  while (keys.end > keys.begin && is_masked(keys.end - 1)) --keys.end;
  while (keys.end > keys.begin && is_masked(keys.begin)) ++keys.begin;
  return keys;
}

KeyRange trimmed(const kernels::AttentionBlock& block, Index row, KeyRange keys) {
  constexpr float masked = -std::numeric_limits<float>::infinity();
  if (const auto& m = block.mask; m.data != nullptr)
    keys = trimmed(keys, [&](Index key) { return !m.data[row * m.row_step + key * m.key_step]; });
  if (const auto& m = block.bits; m.data != nullptr)
    keys =
        trimmed(keys, [&](Index key) { return (m.data[row * m.row_step + key / 8 * m.key_step] >> key % 8 & 1) == 0; });
  for (const auto& m : {block.bias, block.relative})
    if (m.data != nullptr)
      keys = trimmed(keys, [&](Index key) { return m.data[row * m.row_step + key * m.key_step] == masked; });
  return keys;
}

/// The relative biases of a block. Within a head they depend on key - row alone: all rows share one
/// line of them, which each reads one element further to the left than the row before.
kernels::PerScore<float> relative_biases(const AttentionProblem& p, const RelativeRuns& bias, const QueryRows& rows,
                                         Index first, float* distances) {
  const View<const float, 2>& table = p.options.relative_bias.table;
  if (!table) return {nullptr, 0, 0};
  const Index keys = std::min(block_size, rows.element.keys - first), back = rows.axis == 2 ? rows.count - 1 : 0;
  const Index heads = rows.axis == 2 ? 1 : rows.count;
  for (Index h = 0; h < heads; ++h)
    bias.fill(table, rows.head + h, first - rows.position(back), back + keys, distances + h * block_size);
  return {distances + back, rows.axis == 2 ? Index{-1} : block_size, 1};
}

}  // namespace

Element element(const AttentionProblem& p, Index number) {
  const AttentionOptions& o = p.options;
  Element e{.number = number,
            .batch = number,
            .first_query = 0,
            .rows = p.q.shape[2],
            .queries = 0,
            .first_key = 0,
            .keys = p.keys.k.shape[2],
            .position = 0};
  if (o.query_starts) {
    e.batch = 0;
    e.first_query = o.query_starts(number);
    e.rows = o.query_starts(number + 1) - e.first_query;
    e.first_key = o.key_starts(number);
    e.keys = o.key_starts(number + 1) - e.first_key;
  }
  if (p.keys.cache != nullptr) e.keys = p.keys.cached(number);
  e.keys = std::min(e.keys, value_or(o.key_lengths, number, e.keys));
  e.queries = std::min(e.rows, value_or(o.query_lengths, number, e.rows));
  e.position = bounded_offset(value_or(o.causal_offsets, number, o.causal_offset));
  if (p.keys.cache != nullptr) e.position += e.keys - e.queries;
  return e;
}

Index longest_of(const View<const Index, 1>& starts, Index otherwise) {
  if (!starts) return otherwise;
  Index longest = 0;
  for (Index i = 0; i + 1 < starts.size(0); ++i) longest = std::max(longest, starts(i + 1) - starts(i));
  return longest;
}

bool find_visible_keys(const AttentionProblem& p, const RelativeRuns& bias, const QueryRows& rows, Index first,
                       float* distances, VisibleKeys& keys, kernels::AttentionBlock& block) {
  block.mask = per_score(p.options.mask, rows, first);
  block.bits = per_score(p.options.mask_bits, rows, first, 8);
  block.bias = per_score(p.options.bias.of<float>(), rows, first);
  block.relative = relative_biases(p, bias, rows, first, distances);
  block.distance = first - rows.position(0);
  block.key_begin = keys.begin;
  block.key_end = keys.end;
  const bool masks = block.mask.data != nullptr || block.bits.data != nullptr || block.bias.data != nullptr ||
                     block.relative.data != nullptr;
  // Neither end decreases from row to row: where the first and the last row agree, all do.
  const KeyRange top = visible_of_block(p, rows, 0, first), bottom = visible_of_block(p, rows, rows.count - 1, first);
  const bool uniform = top.begin == bottom.begin && top.end == bottom.end;
  block.uniform = uniform && !masks;
  bool any = false;
  for (Index i = 0; i < rows.count; ++i) {
    KeyRange row = uniform ? top : visible_of_block(p, rows, i, first);
    if (masks) row = trimmed(block, i, row);
    const bool has_keys = row.begin < row.end;
    keys.begin[i] = row.begin;
    keys.end[i] = has_keys ? row.end : 0;
    any = any || has_keys;
  }
  return any;
}

}  // namespace headlane::internal
