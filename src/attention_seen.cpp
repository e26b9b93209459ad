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

/// What a row may see of the block that begins at key `first`, from there.
Keys keys_of_block(const AttentionProblem& p, Index row, Index keys, Index first) {
  const Keys all = keys_of_row(p, row, keys);
  return {std::clamp<Index>(all.begin - first, 0, kernels::block_size),
          std::clamp<Index>(all.end - first, 0, kernels::block_size)};
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

void look(const AttentionProblem& p, const Rows& rows, Index keys, Index first, SeenBlock& block) {
  block.mask = from(p.mask, rows, first);
  block.bias = from(p.bias, rows, first);
  block.any = false;
  // Neither end goes back from row to row: where the first and the last row agree, all do.
  const Keys top = keys_of_block(p, rows.first, keys, first);
  const Keys bottom = keys_of_block(p, rows.first + rows.count - 1, keys, first);
  const bool alike = top.begin == bottom.begin && top.end == bottom.end;
  block.alike = alike && p.mask.data == nullptr && p.bias.data == nullptr;
  for (Index i = 0; i < rows.count; ++i) {
    Keys row = alike ? top : keys_of_block(p, rows.first + i, keys, first);
    row = without_hidden(block.mask, i, row, false);
    row = without_hidden(block.bias, i, row, -std::numeric_limits<float>::infinity());
    const bool sees = row.begin < row.end;
    block.hidden[i] = row.begin;
    block.seen[i] = sees ? row.end : 0;
    block.any = block.any || sees;
  }
}

}  // namespace headlane
