// attention_weights and attention_key_sums.
#include "attention/arguments.hpp"
#include "core/functions.hpp"

#include <headlane/attention_weights.hpp>

namespace headlane::python {

nb::object attention_weights_of(nb::handle query, nb::handle key, nb::handle attn_mask, nb::handle enable_gqa,
                                nb::handle options, nb::handle return_lse, nb::handle out, nb::handle num_threads) {
  const Call call("attention_weights");
  const ScoreOperands of(call, query, key, {}, call.flag("enable_gqa", enable_gqa));
  const ScoreOptions given(call, attn_mask, options, num_threads);
  const Index keys = of.key->size(-2);
  of.check(given, keys);
  const RowResults results(call, of.query.like(), out, of.shape(), keys, call.flag("return_lse", return_lse), false);
  of.require_result_apart(results.result(), given);
  call.compute([&] {
    of.for_each([&](const Batch::Position& at) {
      AttentionOptions here = of.options_at(given, keys, at);
      here.lse = results.lse_at(of.batch, at, of.has_heads);
      attention_weights(of.query_at(at), of.key_at(at), of.result_at(results.out(), at), here);
    });
  });
  return results.object();
}

nb::object attention_key_sums_of(nb::handle query, nb::handle key, nb::handle attn_mask, nb::handle enable_gqa,
                                 nb::handle options, nb::handle out, nb::handle num_threads) {
  const Call call("attention_key_sums");
  const ScoreOperands of(call, query, key, {}, call.flag("enable_gqa", enable_gqa));
  const ScoreOptions given(call, attn_mask, options, num_threads);
  const Index keys = of.key->size(-2);
  of.check(given, keys);
  std::vector<Index> shape = of.shape();
  shape.back() = keys;
  const Result result(call, of.query.like(), out, shape);
  of.require_result_apart(result, given);
  call.compute([&] {
    of.for_each([&](const Batch::Position& at) {
      attention_key_sums(of.query_at(at), of.key_at(at), values_of_rows(result.array(), of.batch, at, of.has_heads),
                         of.options_at(given, keys, at));
    });
  });
  return result.object();
}

}  // namespace headlane::python
