#include "attention/next_keys.hpp"

#include "attention/kv_pages.hpp"

namespace headlane::internal {
namespace {

/// The kv head that a thread takes after that of some rows.
Index next_kv_head(const AttentionProblem& p, const TaskPlan& plan, const QueryRows& rows) {
  return rows.element.number * p.keys.k.shape[1] + rows.kv_head + plan.head_step;
}

}  // namespace

bool prefetches_keys(const AttentionProblem& p, const QueryRows& rows) {
  return rows.count <= kernels::max_tile_rows && p.keys.k.shape[3] == p.keys.v.shape[3];
}

CachedKeys next_cached_keys(const AttentionProblem& p, const TaskPlan& plan, const QueryRows& rows, Index key) {
  const KvPages& cache = *p.keys.cache;
  Index number = rows.element.number, head = rows.kv_head;
  key += kernels::block_size;
  if (key >= rows.element.keys) {
    const Index later = next_kv_head(p, plan, rows);
    if (later >= total_kv_heads(p)) return {};
    number = later / cache.kv_heads;
    head = later % cache.kv_heads;
    key %= kernels::block_size;
  }
  const Index sequence = p.keys.sequences[static_cast<std::size_t>(number)], size = cache.page_size;
  if (key >= cache.length(sequence)) return {};
  const HeadOfPage page = cache.head(sequence, head, key / size);
  return {page.keys() + page.key_at(key % size) * size_of(cache.type),
          has_token_scales(cache.type) ? page.key_scales() + key % size : nullptr};
}

const float* next_keys(const AttentionProblem& p, const TaskPlan& plan, const QueryRows& rows, Index key) {
  const View<const float, 4>& k = p.keys.k;
  const Index left = rows.element.keys - key, keys = std::min(kernels::block_size, left), later = left - keys;
  if (2 * later >= keys) return row_at(k, rows.element, rows.kv_head, key + std::min(keys, later));
  const Index next = next_kv_head(p, plan, rows), heads = k.shape[1];
  if (next >= total_kv_heads(p)) return nullptr;
  const Element other = element(p, next / heads);
  return other.keys >= keys ? row_at(k, other, next % heads, 0) : nullptr;
}

}  // namespace headlane::internal
