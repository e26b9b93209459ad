#include "attention/task.hpp"

namespace headlane::internal {

const float* per_row(const View<const float, 1>& values, const Rows& rows, float* to) {
  if (!values) return nullptr;
  for (Index i = 0; i < rows.count; ++i) to[i] = values(rows.head + (rows.axis == 1 ? i : 0));
  return to;
}

kernels::AttentionBlock begin_rows(const Call& call, const Rows& rows, const AttentionBuffers& b) {
  const AttentionProblem& p = call.p;
  p.kernel.pack_rows({at(p.q, rows), rows.count, p.q.shape[3], step(p.q, rows), p.q.strides[3]}, p.scale, b.q);
  kernels::AttentionBlock block{};
  block.rows = rows.count;
  block.head_dim = p.q.shape[3];
  block.value_dim = p.keys.v.shape[3];
  block.q = b.q;
  block.softcap = p.given.softcap;
  block.slopes = per_row(p.given.alibi_slopes, rows, b.per_row);
  block.row_distance = rows.axis == 2 ? 1 : 0;
  block.scores = b.scores;
  return block;
}

}  // namespace headlane::internal
