// The visible keys of the query rows of a task: causal, window, lengths, and masks and biases as
// far as they mask keys at either end.
#pragma once

#include "attention/problem.hpp"
#include "attention/relative_bias.hpp"
#include "kernels/table.hpp"

#include <algorithm>

namespace headlane::internal {

/// Query rows that one pass over the keys serves. A block of keys and values (256 KiB at head_dim
/// 64) then stays in the L2 for eight tiles of 12 rows, and their packed queries and results take
/// some 50 KiB more.
inline constexpr Index max_rows = 96;

/// Up to max_rows query rows that share a kv head: adjacent rows of one head, or the same row of
/// adjacent heads.
struct QueryRows {
  Element element;
  Index kv_head;      // within the element
  Index head, first;  // of the first row
  Index count;
  int axis;  // of q and out along which the rows lie: 2 within a head, 1 across heads

  [[nodiscard]] Index position(Index row) const { return element.position + first + (axis == 2 ? row : 0); }
};

/// The first of the rows in a view [batch, q_heads, q_length, …].
template <class T, int Rank>
T* first_row(const View<T, Rank>& view, const QueryRows& rows) {
  return view.data + rows.element.batch * view.strides[0] + rows.head * view.strides[1] +
         (rows.element.first_query + rows.first) * view.strides[2];
}

/// Row stride, in elements.
template <class T, int Rank>
Index row_stride(const View<T, Rank>& view, const QueryRows& rows) {
  return view.strides[static_cast<std::size_t>(rows.axis)];
}

/// A causal offset within bounds, beyond which it masks every key or none: sums of positions cannot
/// overflow.
inline Index bounded_offset(Index offset) {
  constexpr Index far = Index{1} << 40;
  return std::clamp(offset, -far, far);
}

/// Keys begin … end-1.
struct KeyRange {
  Index begin, end;
};

/// The keys of an element of `keys` keys that causal and window allow a query to see. As the
/// position grows, neither end decreases.
inline KeyRange visible_range(const AttentionProblem& p, Index position, Index keys) {
  return {std::clamp<Index>(position - p.left, 0, keys), std::clamp<Index>(position + p.right + 1, 0, keys)};
}

/// The same for some rows: each key outside is masked for all of them.
inline KeyRange visible_range(const AttentionProblem& p, const QueryRows& rows) {
  return {visible_range(p, rows.position(0), rows.element.keys).begin,
          visible_range(p, rows.position(rows.count - 1), rows.element.keys).end};
}

/// The visible keys of a block for each row of a task, to which a kernels::AttentionBlock points.
struct VisibleKeys {
  Index begin[max_rows], end[max_rows];
};

/// Sets the members of `block` for the visible keys of the block from key `first` on, and for what
/// is added to their scores. Returns false if no key is visible to any row. `distances`: scratch of
/// relative_bias_floats().
bool find_visible_keys(const AttentionProblem& p, const RelativeRuns& bias, const QueryRows& rows, Index first,
                       float* distances, VisibleKeys& keys, kernels::AttentionBlock& block);

/// Floats of the relative biases of a block.
inline Index relative_bias_floats(Index rows_of_head, Index heads) {
  return std::max(rows_of_head + kernels::block_size, heads * kernels::block_size);
}

}  // namespace headlane::internal
