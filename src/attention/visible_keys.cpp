#include "attention/visible_keys.hpp"

#include "core/round.hpp"

#include <limits>

namespace headlane::internal {
namespace {

using kernels::block_size;

Index value_of(const View<const Index, 1>& values, Index i, Index otherwise) { return !values ? otherwise : values(i); }

/// A mask or bias from the first of the rows and a key on; `per_step` keys share an element.
template <class T>
kernels::PerScore<T> from(const View<const T, 4>& given, const Rows& rows, Index key, Index per_step = 1) {
  if (!given) return {nullptr, 0, 0};
  return {at(given, rows) + key / per_step * given.strides[3], step(given, rows), given.strides[3]};
}

/// What a query at a position may see of the block that begins at key `first`, from there.
Keys keys_of_block(const AttentionProblem& p, Index position, Index keys, Index first) {
  const Keys all = keys_at(p, position, keys);
  return {std::clamp<Index>(all.begin - first, 0, block_size), std::clamp<Index>(all.end - first, 0, block_size)};
}

/// Without the first and the last ones that something hides: padding costs nothing.
template <class Hides>
Keys without_hidden(Keys keys, const Hides& hides) {
  while (keys.end > keys.begin && hides(keys.end - 1)) --keys.end;
  while (keys.end > keys.begin && hides(keys.begin)) ++keys.begin;
  return keys;
}

Keys without_hidden(const kernels::AttentionBlock& block, Index row, Keys keys) {
  constexpr float hides = -std::numeric_limits<float>::infinity();
  if (const auto& m = block.mask; m.data != nullptr)
    keys = without_hidden(keys, [&](Index key) { return !m.data[row * m.row_step + key * m.key_step]; });
  if (const auto& m = block.bits; m.data != nullptr)
    keys = without_hidden(
        keys, [&](Index key) { return (m.data[row * m.row_step + key / 8 * m.key_step] >> key % 8 & 1) == 0; });
  for (const auto& m : {block.bias, block.relative})
    if (m.data != nullptr)
      keys = without_hidden(keys, [&](Index key) { return m.data[row * m.row_step + key * m.key_step] == hides; });
  return keys;
}

/// The relative biases of a block. Along a head they depend on key - row alone: one line, each row a step further to the left.
kernels::PerScore<float> relative_of(const AttentionProblem& p, const RelativeRuns& runs, const Rows& rows, Index first,
                                     float* distances) {
  const View<const float, 2>& table = p.given.relative_bias.table;
  if (!table) return {nullptr, 0, 0};
  const Index keys = std::min(block_size, rows.of.keys - first), back = rows.axis == 2 ? rows.count - 1 : 0;
  const Index heads = rows.axis == 2 ? 1 : rows.count;
  for (Index h = 0; h < heads; ++h)
    runs.fill(table, rows.head + h, first - rows.position(back), back + keys, distances + h * block_size);
  return {distances + back, rows.axis == 2 ? Index{-1} : block_size, 1};
}

}  // namespace

Element element(const AttentionProblem& p, Index number) {
  const AttentionOptions& o = p.given;
  Element e{.number = number,
            .batch = number,
            .first_query = 0,
            .rows = p.q.shape[2],
            .queries = 0,
            .first_key = 0,
            .keys = p.keys.k.shape[2],
            .offset = 0};
  if (o.query_starts) {
    e.batch = 0;
    e.first_query = o.query_starts(number);
    e.rows = o.query_starts(number + 1) - e.first_query;
    e.first_key = o.key_starts(number);
    e.keys = o.key_starts(number + 1) - e.first_key;
  }
  if (p.keys.cache != nullptr) e.keys = p.keys.cached(number);
  e.keys = std::min(e.keys, value_of(o.key_lengths, number, e.keys));
  e.queries = std::min(e.rows, value_of(o.query_lengths, number, e.rows));
  e.offset = bounded_offset(value_of(o.causal_offsets, number, o.causal_offset));
  if (p.keys.cache != nullptr) e.offset += e.keys - e.queries;
  return e;
}

Index longest_of(const View<const Index, 1>& starts, Index otherwise) {
  if (!starts) return otherwise;
  Index longest = 0;
  for (Index i = 0; i + 1 < starts.size(0); ++i) longest = std::max(longest, starts(i + 1) - starts(i));
  return longest;
}

bool look(const AttentionProblem& p, const RelativeRuns& runs, const Rows& rows, Index first, float* distances,
          SeenKeys& keys, kernels::AttentionBlock& block) {
  block.mask = from(p.given.mask, rows, first);
  block.bits = from(p.given.mask_bits, rows, first, 8);
  block.bias = from(p.given.bias, rows, first);
  block.relative = relative_of(p, runs, rows, first, distances);
  block.distance = first - rows.position(0);
  block.hidden = keys.hidden;
  block.seen = keys.seen;
  const bool hides = block.mask.data != nullptr || block.bits.data != nullptr || block.bias.data != nullptr ||
                     block.relative.data != nullptr;
  // Neither end goes back from row to row: where the first and the last row agree, all do.
  const Keys top = keys_of_block(p, rows.position(0), rows.of.keys, first);
  const Keys bottom = keys_of_block(p, rows.position(rows.count - 1), rows.of.keys, first);
  const bool alike = top.begin == bottom.begin && top.end == bottom.end;
  block.alike = alike && !hides;
  bool any = false;
  for (Index i = 0; i < rows.count; ++i) {
    Keys row = alike ? top : keys_of_block(p, rows.position(i), rows.of.keys, first);
    if (hides) row = without_hidden(block, i, row);
    const bool sees = row.begin < row.end;
    keys.hidden[i] = row.begin;
    keys.seen[i] = sees ? row.end : 0;
    any = any || sees;
  }
  return any;
}

}  // namespace headlane::internal
