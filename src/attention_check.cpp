// Attention: checks of the arguments, defaults, and the views behind multi_head_attention.
#include "attention.hpp"
#include "check.hpp"
#include "dispatch.hpp"
#include "kernels/table.hpp"
#include "parallel.hpp"

#include <headlane/attention.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace headlane {
namespace {

constexpr Index most_head_dim = kernels::block_size;
/// Further than any length: sums of positions cannot overflow.
constexpr Index far = Index{1} << 40;

void check_dim(const Operand& operand) {
  require(operand.shape[3] >= 1 && operand.shape[3] <= most_head_dim, operand.function, ": ", operand.name,
          " has head_dim ", operand.shape[3], ", it must be 1 to ", most_head_dim);
}

void check_shapes(const Operand& q, const Operand& k, const Operand& v, const Operand& out) {
  for (const Operand* input : {&q, &k, &v}) check_operand(*input);
  check_output(out);
  check_dim(q);
  check_dim(v);
  for (const Operand* other : {&k, &v, &out}) check_same(q, 0, "batch elements", *other, 0, "batch elements");
  check_same(q, 3, "elements a head (head_dim)", k, 3, "elements a head (head_dim)");
  check_same(k, 1, "heads", v, 1, "heads");
  check_same(k, 2, "keys", v, 2, "values");
  check_same(out, 1, "heads", q, 1, "heads");
  check_same(out, 2, "rows", q, 2, "rows");
  check_same(out, 3, "elements a head (head_dim)", v, 3, "elements a head (head_dim)");
  require(k.shape[1] > 0 ? q.shape[1] % k.shape[1] == 0 : q.shape[1] == 0, q.function, ": q has ", q.shape[1],
          " heads, k has ", k.shape[1], ", which does not divide them");
  for (const Operand* input : {&q, &k, &v}) check_no_overlap(out, *input);
}

void check_lse(const Operand& lse, const Operand& q, const Operand& k, const Operand& v, const Operand& out) {
  check_output(lse);
  check_same(lse, 0, "batch elements", q, 0, "batch elements");
  check_same(lse, 1, "heads", q, 1, "heads");
  check_same(lse, 2, "rows", q, 2, "rows");
  for (const Operand* other : {&q, &k, &v, &out}) check_no_overlap(lse, *other);
}

/// What is written. lse is empty if it is not wanted.
struct Outputs {
  Operand out, lse;

  void check_apart(const Operand& input) const {
    check_no_overlap(out, input);
    check_no_overlap(lse, input);
  }
};

/// A mask or a bias.
void check_per_score(const Operand& given, const Operand& q, const Operand& k, const Outputs& outputs) {
  if (given.data == nullptr) return;
  check_operand(given);
  check_same(given, 0, "batch elements", q, 0, "batch elements");
  check_same(given, 1, "heads", q, 1, "heads");
  check_same(given, 2, "rows", q, 2, "rows");
  check_same(given, 3, "keys", k, 2, "keys");
  outputs.check_apart(given);
}

/// One length for each batch element, none above the size of the axis that it shortens.
void check_lengths(const Operand& lengths, const Operand& of, const Outputs& outputs, const char* what) {
  if (lengths.data == nullptr) return;
  check_operand(lengths);
  check_same(lengths, 0, "lengths", of, 0, "batch elements");
  outputs.check_apart(lengths);
  const auto* values = static_cast<const Index*>(lengths.data);
  for (Index i = 0; i < lengths.shape[0]; ++i) {
    const Index length = values[i * lengths.strides[0]];
    require(length >= 0 && length <= of.shape[2], lengths.function, ": ", lengths.name, "[", i, "] is ", length, ", ",
            of.name, " has ", of.shape[2], " ", what);
  }
}

/// One value for each query head.
void check_per_head(const Operand& values, const Operand& q, const Outputs& outputs) {
  if (values.data == nullptr) return;
  check_operand(values);
  check_same(values, 0, "elements", q, 1, "heads");
  outputs.check_apart(values);
}

void check_window(const char* function, const char* name, Index size) {
  require(size >= -1, function, ": ", name, " is ", size, ", the least is -1 (not bounded)");
}

/// A side of the window; -1: beyond every key from every position.
Index bounded(Index window) { return window < 0 ? 4 * far : std::min(window, 4 * far); }

void attention_named(const char* function, const View<const float, 4>& q, const View<const float, 4>& k,
                     const View<const float, 4>& v, const View<float, 4>& out, const AttentionOptions& options) {
  const Operand of_q = operand(function, "q", q), of_k = operand(function, "k", k), of_v = operand(function, "v", v);
  const Operand of_out = operand(function, "out", out);
  check_shapes(of_q, of_k, of_v, of_out);
  const Outputs outputs{of_out, operand(function, "lse", options.lse)};
  if (options.lse.data != nullptr) check_lse(outputs.lse, of_q, of_k, of_v, of_out);
  check_per_score(operand(function, "mask", options.mask), of_q, of_k, outputs);
  check_per_score(operand(function, "bias", options.bias), of_q, of_k, outputs);
  check_lengths(operand(function, "key_lengths", options.key_lengths), of_k, outputs, "keys");
  check_lengths(operand(function, "query_lengths", options.query_lengths), of_q, outputs, "rows");
  check_per_head(operand(function, "alibi_slopes", options.alibi_slopes), of_q, outputs);
  check_per_head(operand(function, "sinks", options.sinks), of_q, outputs);
  check_window(function, "window_left", options.window_left);
  check_window(function, "window_right", options.window_right);
  require(options.softcap >= 0.0f && options.softcap < std::numeric_limits<float>::infinity(), function,
          ": softcap must be a finite number from 0 (none) on");
  check_threads(function, options.num_threads);
  const kernels::KernelTable& kernel = active();
  if (q.shape[0] == 0 || q.shape[1] == 0 || q.shape[2] == 0) return;

  const double rows = static_cast<double>(q.shape[0] * q.shape[1] * q.shape[2]), keys = static_cast<double>(k.shape[2]);
  const double dims = static_cast<double>(q.shape[3] + v.shape[3]);
  const double all_keys = static_cast<double>(k.shape[0] * k.shape[1]) * keys;
  run_attention({.q = q,
                 .k = k,
                 .v = v,
                 .out = out,
                 .lse = options.lse,
                 .mask = options.mask,
                 .bias = options.bias,
                 .scale = options.scale.value_or(1.0f / std::sqrt(static_cast<float>(q.shape[3]))),
                 .offset = std::clamp(options.causal_offset, -far, far),
                 .left = bounded(options.window_left),
                 .right = options.causal ? 0 : bounded(options.window_right),
                 .softcap = options.softcap,
                 .key_lengths = options.key_lengths,
                 .query_lengths = options.query_lengths,
                 .alibi_slopes = options.alibi_slopes,
                 .sinks = options.sinks,
                 .kernel = kernel,
                 .threads = useful_threads(2.0 * rows * keys * dims, (rows + all_keys) * dims, options.num_threads)});
}

/// [batch, length, heads · dim] as [batch, head, length, dim].
template <class T>
View<T, 4> by_head(const View<T, 3>& x, Index dim) {
  return x.split(2, dim).permuted({0, 2, 1, 3});
}

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

void attention(View<const float, 4> q, View<const float, 4> k, View<const float, 4> v, View<float, 4> out,
               const AttentionOptions& options) {
  attention_named("attention", q, k, v, out, options);
}

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
  attention_named(function, by_head(q, head_dim), by_head(k, head_dim), by_head(v, value_dim), by_head(out, value_dim),
                  options);
}

void multi_head_attention(View<const float, 2> q, View<const float, 2> k, View<const float, 2> v, View<float, 2> out,
                          Index heads, const AttentionOptions& options) {
  multi_head_attention(one_batch(q), one_batch(k), one_batch(v), one_batch(out), heads, options);
}

}  // namespace headlane
