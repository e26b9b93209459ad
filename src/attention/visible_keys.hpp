// Which keys the query rows of a task see: causal, window, lengths, and what masks and biases hide at either end.
#pragma once

#include "attention/kv_pages.hpp"
#include "attention/problem.hpp"
#include "attention/relative_bias.hpp"
#include "kernels/table.hpp"

#include <algorithm>

namespace headlane::internal {

/// Query rows that one pass over the keys serves. A block of keys and values (256 KiB at head_dim 64) then stays in the L2 for
/// eight tiles of 12 rows, and their packed queries and results take some 50 KiB more.
inline constexpr Index most_rows = 96;

/// Up to most_rows query rows that share a kv head: neighbours in one head, or one row of neighbouring heads.
struct Rows {
  Element of;
  Index kv_head;
  Index head, first;  // of the first row
  Index count;
  int axis;  // of q and out: 2 along a head, 1 from head to head

  [[nodiscard]] Index position(Index row) const { return of.offset + first + (axis == 2 ? row : 0); }
};

/// Where the first of the rows stands in something that is [batch, q_heads, q_length, …].
template <class T, int Rank>
T* at(const View<T, Rank>& view, const Rows& rows) {
  return view.data + rows.of.batch * view.strides[0] + rows.head * view.strides[1] +
         (rows.of.first_query + rows.first) * view.strides[2];
}

/// From row to row.
template <class T, int Rank>
Index step(const View<T, Rank>& view, const Rows& rows) {
  return view.strides[static_cast<std::size_t>(rows.axis)];
}

/// A causal offset. Beyond these it hides or shows everything; so bounded, sums of positions cannot overflow.
inline Index bounded_offset(Index offset) {
  constexpr Index far = Index{1} << 40;
  return std::clamp(offset, -far, far);
}

/// Keys begin … end-1.
struct Keys {
  Index begin, end;
};

/// What a query at a position may see of the keys of its element, masks and biases aside. Neither end goes back from row to row.
inline Keys keys_at(const AttentionProblem& p, Index position, Index keys) {
  return {std::clamp<Index>(position - p.left, 0, keys), std::clamp<Index>(position + p.right + 1, 0, keys)};
}

/// What some row sees; between them lies what none does.
inline Keys keys_of(const AttentionProblem& p, const Rows& rows) {
  return {keys_at(p, rows.position(0), rows.of.keys).begin,
          keys_at(p, rows.position(rows.count - 1), rows.of.keys).end};
}

/// What each row of a task sees of one block of keys, for the kernel to point to.
struct SeenKeys {
  Index hidden[most_rows], seen[most_rows];
};

/// Puts into `block` what the rows see of the block that begins at key `first`, and what is added to their scores; gives false if no row
/// sees a key. `distances`: scratch of relative_floats() for the relative bias.
bool look(const AttentionProblem& p, const RelativeRuns& runs, const Rows& rows, Index first, float* distances,
          SeenKeys& keys, kernels::AttentionBlock& block);

/// Room for the relative biases of a block.
inline Index relative_floats(Index rows_along_head, Index heads) {
  return std::max(rows_along_head + kernels::block_size, heads * kernels::block_size);
}

}  // namespace headlane::internal
