#include "attention/task.hpp"

namespace headlane::internal {

const float* expand_to_rows(const View<const float, 1>& values, const QueryRows& rows, float* to) {
  if (!values) return nullptr;
  for (Index i = 0; i < rows.count; ++i) to[i] = values(rows.head + (rows.axis == 1 ? i : 0));
  return to;
}

kernels::AttentionBlock begin_rows(const AttentionProblem& p, const QueryRows& rows, const ThreadBuffers& buffers) {
  const Index head_dim = p.q.shape[3];
  p.kernel.pack_rows({first_row(p.q, rows), rows.count, head_dim, row_stride(p.q, rows), p.q.strides[3]}, p.scale,
                     buffers.q);
  kernels::AttentionBlock block{};
  block.rows = rows.count;
  block.head_dim = head_dim;
  block.value_dim = p.keys.v.shape[3];
  block.q = buffers.q;
  block.softcap = p.options.softcap;
  block.slopes = expand_to_rows(p.options.alibi_slopes, rows, buffers.per_row);
  block.row_distance = rows.axis == 2 ? 1 : 0;
  block.scores = buffers.scores;
  return block;
}

}  // namespace headlane::internal
