#include "attention/prefetch.hpp"

#include "core/round.hpp"

#include <algorithm>
#include <cstdint>

namespace headlane::internal {
namespace {

/// Rows first … first + count-1 of a head. Rows that do not begin with a line end in one more:
/// without it, 64 sequences of 32 with heads side by side in a std::vector took 1.27 times as long
/// as in lines of their own (Zen 4).
kernels::Prefetch rows_of_head(const View<const float, 4>& x, const Element& e, Index head, Index first, Index count) {
  if (x.strides[3] != 1 || count <= 0) return {};
  const float* data = x.data + e.batch * x.strides[0] + head * x.strides[1] + first * x.strides[2];
  const auto within_line = static_cast<Index>(reinterpret_cast<std::uintptr_t>(data) / sizeof(float) % kernels::lanes);
  return {data, count, x.strides[2], ceil_div(within_line + x.shape[3], kernels::lanes)};
}

}  // namespace

Prefetches next_head(const TaskContext& context, Index kv_head, Index part) {
  const AttentionProblem& p = context.p;
  const TaskPlan& plan = context.plan;
  const Index kv_heads = p.keys.k.shape[1], next = kv_head + 1, parts = plan.parts;
  Prefetches result{};
  if (!plan.prefetches || next >= total_kv_heads(p)) return result;
  const Element e = element(p, next / kv_heads);
  const Index first = part * e.keys / parts, keys = (part + 1) * e.keys / parts - first, head = next % kv_heads;
  result[0] = rows_of_head(p.keys.k, e, head, e.first_key + first, keys);
  result[1] = rows_of_head(p.keys.v, e, head, e.first_key + first, keys);
  if (part == parts - 1)
    result[2] = rows_of_head(p.q, e, head * group_size(p), e.first_query, std::min(e.queries, plan.rows_per_task));
  return result;
}

}  // namespace headlane::internal
