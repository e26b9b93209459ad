// Attention on heads that lie side by side: the views behind multi_head_attention.
#include "attention/problem.hpp"
#include "core/check.hpp"

#include <headlane/attention.hpp>

namespace headlane {

using namespace internal;

namespace {

/// The width of `name` is a multiple of `parts`, not 0; gives the quotient.
Index divided(const char* name, Index width, const char* what, Index parts) {
  require(parts > 0 && width > 0 && width % parts == 0, "multi_head_attention: ", name, " is ", width, " wide, ", what,
          " is ", parts, ", which does not divide it");
  return width / parts;
}

template <class T>
View<T, 3> one_batch(const View<T, 2>& x) {
  return x.broadcast(0, 1);
}

}  // namespace

void multi_head_attention(View<const float, 3> q, View<const float, 3> k, View<const float, 3> v, View<float, 3> out,
                          Index heads, const AttentionOptions& options) {
  constexpr const char* function = "multi_head_attention";
  for (const Operand& whole :
       {operand(function, "q", q), operand(function, "k", k), operand(function, "v", v), operand(function, "out", out)})
    check_operand(whole);
  const Index head_dim = divided("q", q.shape[2], "heads", heads);
  const Index kv_heads = divided("k", k.shape[2], "head_dim", head_dim);
  const Index value_dim = divided("v", v.shape[2], "the number of kv heads", kv_heads);
  const Index out_heads = divided("out", out.shape[2], "the head_dim of v", value_dim);
  require(out_heads == heads, "multi_head_attention: out is ", out.shape[2], " wide, which is ", out_heads,
          " heads of ", value_dim, ", q has ", heads);
  attention_named(function, by_head(q, head_dim), {by_head(k, head_dim), by_head(v, value_dim)},
                  by_head(out, value_dim), options);
}

void multi_head_attention(View<const float, 2> q, View<const float, 2> k, View<const float, 2> v, View<float, 2> out,
                          Index heads, const AttentionOptions& options) {
  multi_head_attention(one_batch(q), one_batch(k), one_batch(v), one_batch(out), heads, options);
}

}  // namespace headlane
