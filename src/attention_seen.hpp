// Which keys the query rows of a task see: causal, window, lengths, and what masks and biases hide at either end.
#pragma once

#include "attention.hpp"
#include "kernels/table.hpp"

#include <algorithm>

namespace headlane {

/// Query rows that one pass over the keys serves. A block of keys and values (256 KiB at head_dim 64) then stays in the L2 for
/// eight tiles of 12 rows, and their packed queries and results take some 50 KiB more.
inline constexpr Index most_rows = 96;

/// One key and value head of one batch element.
struct KvHead {
  Index batch, head;
};

/// Query rows of one head, at most most_rows.
struct Rows {
  KvHead kv;
  Index head, first, count;
};

template <class T>
T* at(const View<T, 4>& view, Index batch, Index head, Index position) {
  return view.data + batch * view.strides[0] + head * view.strides[1] + position * view.strides[2];
}

/// Keys begin … end-1.
struct Keys {
  Index begin, end;
};

/// Keys that a batch element has.
Index key_length(const AttentionProblem& p, Index batch);

/// Query rows that a batch element has.
Index query_length(const AttentionProblem& p, Index batch);

/// What a row may see of `keys` keys, masks and biases aside. Neither end goes back from row to row.
inline Keys keys_of_row(const AttentionProblem& p, Index row, Index keys) {
  const Index position = row + p.offset;
  return {std::clamp<Index>(position - p.left, 0, keys), std::clamp<Index>(position + p.right + 1, 0, keys)};
}

/// What the rows of a task see of one block of keys, for the kernel.
struct SeenBlock {
  Index hidden[most_rows], seen[most_rows];
  kernels::PerScore<bool> mask;
  kernels::PerScore<float> bias;
  bool alike;  // all rows have the same ends
  bool any;    // some row sees some key
};

/// Of `keys` keys, those of the block that begins at key `first`.
void look(const AttentionProblem& p, const Rows& rows, Index keys, Index first, SeenBlock& block);

}  // namespace headlane
