#include "attention_seen.hpp"

#include <algorithm>
#include <limits>

namespace headlane {
namespace {

Index length_of(const View<const Index, 1>& lengths, Index batch, Index otherwise) {
  return lengths.data == nullptr ? otherwise : lengths.data[batch * lengths.strides[0]];
}

/// A mask or bias from the first of the rows and a key on.
template <class T>
kernels::PerScore<T> from(const View<const T, 4>& given, const Rows& rows, Index key) {
  if (given.data == nullptr) return {nullptr, 0, 0};
  return {at(given, rows.kv.batch, rows.head, rows.first) + key * given.strides[3], given.strides[2], given.strides[3]};
}

/// Without the first and the last ones that a mask or bias hides from a row: padding costs nothing.
template <class T>
Keys without_hidden(const kernels::PerScore<T>& given, Index row, Keys keys, T hides) {
  if (given.data == nullptr) return keys;
  const T* first = given.data + row * given.row_step;
  while (keys.end > keys.begin && first[(keys.end - 1) * given.key_step] == hides) --keys.end;
  while (keys.end > keys.begin && first[keys.begin * given.key_step] == hides) ++keys.begin;
  return keys;
}

}  // namespace

Index key_length(const AttentionProblem& p, Index batch) { return length_of(p.key_lengths, batch, p.k.shape[2]); }

Index query_length(const AttentionProblem& p, Index batch) { return length_of(p.query_lengths, batch, p.q.shape[2]); }

Keys keys_of_row(const AttentionProblem& p, Index row, Index keys) {
  Keys result{0, keys};
  const Index position = row + p.causal_offset;
  if (p.causal) result.end = position + 1;
  if (p.window_right >= 0) result.end = std::min(result.end, position + 1 + p.window_right);
  if (p.window_left >= 0) result.begin = position - p.window_left;
  return {std::clamp<Index>(result.begin, 0, keys), std::clamp<Index>(result.end, 0, keys)};
}

void look(const AttentionProblem& p, const Rows& rows, Index keys, Index first, SeenBlock& block) {
  block.mask = from(p.mask, rows, first);
  block.bias = from(p.bias, rows, first);
  block.any = false;
  for (Index i = 0; i < rows.count; ++i) {
    const Keys all = keys_of_row(p, rows.first + i, keys);
    Keys row{std::clamp<Index>(all.begin - first, 0, kernels::block_size),
             std::clamp<Index>(all.end - first, 0, kernels::block_size)};
    row = without_hidden(block.mask, i, row, false);
    row = without_hidden(block.bias, i, row, -std::numeric_limits<float>::infinity());
    const bool sees = row.begin < row.end;
    block.hidden[i] = sees ? row.begin : 0;
    block.seen[i] = sees ? row.end : 0;
    block.any = block.any || sees;
  }
}

}  // namespace headlane
