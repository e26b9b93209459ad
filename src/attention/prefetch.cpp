#include "attention/prefetch.hpp"

#include "core/round.hpp"

#include <algorithm>

namespace headlane::internal {
namespace {

/// Rows first … first + count-1 of a head, a share with each of `queries` rows.
kernels::Fetch share_of(const View<const float, 4>& x, const Element& e, Index head, Index start, Index first,
                        Index count, Index queries) {
  if (x.strides[3] != 1 || count <= 0) return {};
  const float* data = x.data + e.batch * x.strides[0] + head * x.strides[1] + (start + first) * x.strides[2];
  return {data, count, x.strides[2], ceil_div(x.shape[3], kernels::lanes), ceil_div(count, queries)};
}

}  // namespace

ToFetch next_of(const Call& call, Index pair, Index part, Index parts) {
  const AttentionProblem& p = call.p;
  const Index kv_heads = p.keys.k.shape[1], next = pair + p.threads, share = call.cut.rows_of_task;
  ToFetch result{};
  if (!call.cut.fetches || next >= pairs_of(p)) return result;
  const Element e = element(p, next / kv_heads);
  const Index first = part * e.keys / parts, keys = (part + 1) * e.keys / parts - first, head = next % kv_heads;
  result[0] = share_of(p.keys.k, e, head, e.first_key, first, keys, share);
  result[1] = share_of(p.keys.v, e, head, e.first_key, first, keys, share);
  if (part == parts - 1)
    result[2] = share_of(p.q, e, head * group_of(p), e.first_query, 0, std::min(e.queries, share), share);
  return result;
}

}  // namespace headlane::internal
