#include "attention/task.hpp"

#include <algorithm>
#include <limits>

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

kernels::AttentionState state_at(const TaskPlan& plan, float* memory) {
  return {memory + 2 * plan.rows_per_task, plan.value_width, memory, memory + plan.rows_per_task};
}

void clear(const kernels::AttentionState& state, Index rows) {
  std::fill_n(state.out, rows * state.out_step, 0.0f);
  std::fill_n(state.max, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(state.sum, rows, 0.0f);
}

void load_state(const TaskContext& context, const QueryRows& rows, const kernels::AttentionState& state) {
  const AttentionProblem& p = context.p;
  const kernels::AttentionOutput from = output_of(p, rows, {}, false);
  for (Index i = 0; i < rows.count; ++i) {
    float* row = state.out + i * state.out_step;
    const float* source = from.out + i * from.row_step;
    if (from.column_step == 1) std::copy_n(source, from.value_dim, row);
    else
      for (Index j = 0; j < from.value_dim; ++j) row[j] = source[j * from.column_step];
    std::fill_n(row + from.value_dim, state.out_step - from.value_dim, 0.0f);  // whole vectors are merged
    state.max[i] = from.lse[i * from.lse_step];
    state.sum[i] = from.sum[i * from.sum_step];
  }
}

kernels::AttentionOutput output_of(const AttentionProblem& p, const QueryRows& rows, const ThreadBuffers& buffers,
                                   bool sinks) {
  const AttentionOptions& o = p.options;
  return {.rows = rows.count,
          .value_dim = p.keys.v.shape[3],
          .out = first_row(p.out, rows),
          .row_step = row_stride(p.out, rows),
          .column_step = p.out.strides[3],
          .lse = !o.lse ? nullptr : first_row(o.lse, rows),
          .lse_step = row_stride(o.lse, rows),
          .sum = !o.sum ? nullptr : first_row(o.sum, rows),
          .sum_step = row_stride(o.sum, rows),
          .sinks = sinks ? expand_to_rows(o.sinks, rows, buffers.per_row + max_rows) : nullptr};
}

}  // namespace headlane::internal
