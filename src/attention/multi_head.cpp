// multi_head_attention: the entry, which makes heads of columns.
#include "attention/half.hpp"
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

/// The sizes of heads.
struct Dims {
  Index head, value;
};

Dims dims_of(const Operand& q, const Operand& k, const Operand& v, const Operand& out, Index heads) {
  for (const Operand& whole : {q, k, v, out}) check_operand(whole);
  const Index head_dim = divided("q", q.shape[2], "heads", heads);
  const Index kv_heads = divided("k", k.shape[2], "head_dim", head_dim);
  const Index value_dim = divided("v", v.shape[2], "the number of kv heads", kv_heads);
  const Index out_heads = divided("out", out.shape[2], "the head_dim of v", value_dim);
  caller.require(out_heads == heads, "out is ", out.shape[2], " wide, which is ", out_heads, " heads of ", value_dim,
                 ", q has ", heads);
  return {head_dim, value_dim};
}

template <class T>
Dims dims_of(const View<const T, 3>& q, const View<const T, 3>& k, const View<const T, 3>& v, const View<T, 3>& out,
             Index heads) {
  return dims_of(caller.operand("q", q), caller.operand("k", k), caller.operand("v", v), caller.operand("out", out),
                 heads);
}

using HalfHeads = View<const std::uint16_t, 3>;
void multi_head_halves(const HalfHeads& q, const HalfHeads& k, const HalfHeads& v, const View<std::uint16_t, 3>& out,
                       DType type, Index heads, const AttentionOptions& options) {
  const Dims dims = dims_of(q, k, v, out, heads);
  attention_halves(
      caller, {by_head(q, dims.head), by_head(k, dims.head), by_head(v, dims.value), by_head(out, dims.value), type},
      {}, options);
}

}  // namespace

void multi_head_attention(View<const float, 3> q, View<const float, 3> k, View<const float, 3> v, View<float, 3> out,
                          Index heads, const AttentionOptions& options) {
  const Dims dims = dims_of(q, k, v, out, heads);
  attention_named(caller, by_head(q, dims.head), {by_head(k, dims.head), by_head(v, dims.value)},
                  by_head(out, dims.value), options);
}
void multi_head_attention(View<const bfloat16, 3> q, View<const bfloat16, 3> k, View<const bfloat16, 3> v,
                          View<bfloat16, 3> out, Index heads, const AttentionOptions& options) {
  multi_head_halves(bits_of(q), bits_of(k), bits_of(v), bits_of(out), DType::bfloat16, heads, options);
}
void multi_head_attention(View<const float16, 3> q, View<const float16, 3> k, View<const float16, 3> v,
                          View<float16, 3> out, Index heads, const AttentionOptions& options) {
  multi_head_halves(bits_of(q), bits_of(k), bits_of(v), bits_of(out), DType::float16, heads, options);
}

void multi_head_attention(View<const float, 2> q, View<const float, 2> k, View<const float, 2> v, View<float, 2> out,
                          Index heads, const AttentionOptions& options) {
  multi_head_attention(one_batch(q), one_batch(k), one_batch(v), one_batch(out), heads, options);
}

void multi_head_attention(View<const bfloat16, 2> q, View<const bfloat16, 2> k, View<const bfloat16, 2> v,
                          View<bfloat16, 2> out, Index heads, const AttentionOptions& options) {
  multi_head_attention(one_batch(q), one_batch(k), one_batch(v), one_batch(out), heads, options);
}
void multi_head_attention(View<const float16, 2> q, View<const float16, 2> k, View<const float16, 2> v,
                          View<float16, 2> out, Index heads, const AttentionOptions& options) {
  multi_head_attention(one_batch(q), one_batch(k), one_batch(v), one_batch(out), heads, options);
}

}  // namespace headlane
