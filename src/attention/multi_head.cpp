// multi_head_attention: the entry, which makes heads of columns.
#include "attention/problem.hpp"

#include <headlane/attention.hpp>

namespace headlane {

using namespace internal;

namespace {

constexpr Caller caller("multi_head_attention");

/// Returns the width of `name` divided by `parts`, of which it is a multiple, not 0.
Index divided(const char* name, Index width, const char* what, Index parts) {
  caller.require(parts > 0 && width > 0 && width % parts == 0, name, " is ", width, " wide, ", what, " is ", parts,
                 ", which does not divide it");
  return width / parts;
}

template <class T>
View<T, 3> one_batch(const View<T, 2>& x) {
  return x.broadcast(0, 1);
}

}  // namespace

void multi_head_attention(View<const float, 3> q, View<const float, 3> k, View<const float, 3> v, View<float, 3> out,
                          Index heads, const AttentionOptions& options) {
  for (const Operand& whole :
       {caller.operand("q", q), caller.operand("k", k), caller.operand("v", v), caller.operand("out", out)})
    check_operand(whole);
  const Index head_dim = divided("q", q.shape[2], "heads", heads);
  const Index kv_heads = divided("k", k.shape[2], "head_dim", head_dim);
  const Index value_dim = divided("v", v.shape[2], "the number of kv heads", kv_heads);
  const Index out_heads = divided("out", out.shape[2], "the head_dim of v", value_dim);
  caller.require(out_heads == heads, "out is ", out.shape[2], " wide, which is ", out_heads, " heads of ", value_dim,
                 ", q has ", heads);
  attention_named(caller, by_head(q, head_dim), {by_head(k, head_dim), by_head(v, value_dim)}, by_head(out, value_dim),
                  options);
}

void multi_head_attention(View<const float, 2> q, View<const float, 2> k, View<const float, 2> v, View<float, 2> out,
                          Index heads, const AttentionOptions& options) {
  multi_head_attention(one_batch(q), one_batch(k), one_batch(v), one_batch(out), heads, options);
}

}  // namespace headlane
