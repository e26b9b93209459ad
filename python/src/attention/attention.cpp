// scaled_dot_product_attention over arrays and over a cache, and the plans of both.
#include "attention/arguments.hpp"
#include "attention/kv_cache.hpp"
#include "core/functions.hpp"

#include <shared_mutex>

namespace headlane::python {
namespace {

/// The fields in the order of AttentionPlan in headlane/_attention_plan.py.
nb::object tuple_of(const AttentionPlan& plan) {
  return nb::make_tuple(plan.isa, plan.tile_rows, plan.key_block, plan.rows_of_task, plan.key_parts, plan.tasks,
                        plan.threads, plan.packs_keys, plan.packs_values, plan.workspace_bytes);
}

/// Queries of sequences of a cache.
class CachedCall {
 public:
  CachedCall(const Call& call, nb::handle query, nb::handle cache, nb::handle sequences)
      : operands(call, query, {}, {}, true) {
    cache_ = &cache_of(call, "cache", cache);
    sequences_ = call.integers("sequences", sequences);
    operands.query.require(operands.batch.rank() <= 1, " has shape ", operands.query,
                           ", wanted [sequences, heads, length, dim]");
  }

  ScoreOperands operands;

  [[nodiscard]] Index value_dim() const { return cache_->cache.value_dim(); }

  /// Calls f(cache, sequences, options) without the GIL, while no other thread changes the cache.
  template <class F>
  void with_cache(const ScoreOptions& given, F f) const {
    operands.query.call().compute([&] {
      const std::shared_lock lock(cache_->mutex);
      const Index keys = longest_of(cache_->cache, sequences_);
      operands.check(given, keys);
      f(std::as_const(cache_->cache), std::span<const Index>(sequences_), operands.options_at(given, keys, {}));
    });
  }

 private:
  const LockedKvCache* cache_ = nullptr;
  std::vector<Index> sequences_;
};

}  // namespace

nb::object scaled_dot_product_attention(nb::handle query, nb::handle key, nb::handle value, nb::handle attn_mask,
                                        nb::handle dropout_p, nb::handle is_causal, nb::handle scale,
                                        nb::handle enable_gqa, nb::handle options, nb::handle return_lse,
                                        nb::handle return_sum, nb::handle out, nb::handle num_threads) {
  const Call call("scaled_dot_product_attention");
  const double dropout = call.float64("dropout_p", dropout_p);
  call.require(dropout == 0, "dropout_p is ", dropout, "; headlane has no dropout, pass 0");
  ScoreOperands of(call, query, key, value, call.flag("enable_gqa", enable_gqa), Floats());
  ScoreOptions given(call, attn_mask, options, num_threads);
  given.values.causal = call.flag("is_causal", is_causal);
  if (!scale.is_none()) given.values.scale = call.float32("scale", scale);
  const Index keys = given.mask_keys(of.key->size(-2));
  of.check(given, keys);
  const bool sums = call.flag("return_sum", return_sum);
  RowResults results(call, of.query.like(), out, of.shape(), of.value->size(-1), call.flag("return_lse", return_lse),
                     sums, Floats());
  of.require_result_apart(results.result(), given);
  const auto attend = [&]<class T>(T) {
    of.for_each([&](const Batch::Position& at) {
      AttentionOptions here = of.options_at(given, keys, at);
      here.lse = results.lse_at(of.batch, at, of.has_heads);
      here.sum = results.sum_at(of.batch, at, of.has_heads);
      attention(of.query_at<T>(at), of.key_at<T>(at), of.value_at<T>(at), of.result_at<T>(results.out(), at), here);
    });
  };
  if (sums) {  // which only attention of float32 has
    of.to_float32();
    results.result().to_float32();
    call.compute([&] { attend(float()); });
  } else {
    compute_in_own_type(call, {&of.query, &*of.key, &*of.value}, results.result(), attend);
  }
  return results.object();
}

nb::object attention_over_cache(nb::handle query, nb::handle cache, nb::handle sequences, nb::handle attn_mask,
                                nb::handle options, nb::handle return_lse, nb::handle return_sum, nb::handle out,
                                nb::handle num_threads) {
  const Call call("attention_over_cache");
  const CachedCall cached(call, query, cache, sequences);
  const ScoreOperands& of = cached.operands;
  const ScoreOptions given(call, attn_mask, options, num_threads);
  const RowResults results(call, of.query.like(), out, of.shape(), cached.value_dim(),
                           call.flag("return_lse", return_lse), call.flag("return_sum", return_sum));
  cached.with_cache(given, [&](const KvCache& keys, std::span<const Index> numbers, AttentionOptions here) {
    here.lse = results.lse_at(of.batch, {}, of.has_heads);
    here.sum = results.sum_at(of.batch, {}, of.has_heads);
    attention(of.query_at({}), keys, numbers, of.result_at(results.out(), {}), here);
  });
  return results.object();
}

nb::object plan_attention_of(nb::handle query, nb::handle key, nb::handle value, nb::handle attn_mask,
                             nb::handle enable_gqa, nb::handle options, nb::handle num_threads) {
  const Call call("plan_attention");
  AttentionPlan plan;
  const auto out_of = [](const View<float, 4>& q, Index columns) {
    return View<float, 4>(nullptr, {q.shape[0], q.shape[1], q.shape[2], columns});
  };
  const auto without_data = [](View<float, 4> view) {
    view.data = nullptr;
    return view;
  };
  const ScoreOptions given(call, attn_mask, options, num_threads);
  const bool grouped = call.flag("enable_gqa", enable_gqa);
  if (nb::isinstance<LockedKvCache>(key)) {
    const CachedCall cached(call, query, key, value);
    const View<float, 4> q = cached.operands.query_at({});
    cached.with_cache(given, [&](const KvCache& keys, std::span<const Index> numbers, const AttentionOptions& here) {
      plan = plan_attention(q, keys, numbers, out_of(q, cached.value_dim()), here);
    });
    return tuple_of(plan);
  }
  const ScoreOperands of(call, query, key, value, grouped, Floats());
  const Index keys = given.mask_keys(of.key->size(-2));
  of.check(given, keys);
  const View<float, 4> q = without_data(of.query_at({})), k = without_data(of.key_at({})),
                       v = without_data(of.value_at({}));
  call.plan([&] { plan = plan_attention(q, k, v, out_of(q, v.shape[3]), of.options_at(given, keys, {})); });
  return tuple_of(plan);
}

}  // namespace headlane::python
