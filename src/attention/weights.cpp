// The weights of attention: its maxima and sums first, then, block by block of keys, what each row gives to each key.
#include "attention/task.hpp"
#include "core/call_scope.hpp"
#include "core/check.hpp"
#include "core/parallel.hpp"
#include "core/round.hpp"
#include "core/scratch.hpp"

#include <headlane/attention_weights.hpp>

#include <algorithm>
#include <limits>

namespace headlane {

using namespace internal;

namespace {

/// For each row the largest score and the factor of its weights, of all batch elements and heads: what attention multiplies by in the end.
struct RowFactors {
  View<float, 3> max, factor;
};

/// attention() without values, as a part: maxima and sums. Then its last step, on a value of 1 for each row, which gives the factors, and
/// log-sum-exp if it is wanted.
void find_factors(const char* function, const AttentionProblem& p, const RowFactors& rows) {
  AttentionOptions part = p.given;
  part.sinks = {};
  part.lse = rows.max;
  part.sum = rows.factor;
  const AttentionProblem without_values{p.q,     p.keys, p.out,   part,     p.batch,
                                        p.scale, p.left, p.right, p.kernel, p.threads};
  run_attention(function, without_values);
  const auto [batch, heads, length] = rows.max.shape;
  const View<float, 3>& lse = p.given.lse;
  float ones[kernels::lanes];
  std::fill_n(ones, kernels::lanes, 1.0f);
  float* const sinks = scratch(Purpose::block, length);
  for (Index b = 0; b < batch; ++b) {
    const Index there = element(p, b).queries;
    for (Index h = 0; h < heads; ++h) {
      // Padding has no sink.
      if (p.given.sinks) {
        std::fill_n(sinks, there, p.given.sinks(h));
        std::fill_n(sinks + there, length - there, -std::numeric_limits<float>::infinity());
      }
      float* const sums = &rows.factor(b, h, 0);
      p.kernel.attention_finish({.out = ones, .out_step = 0, .max = &rows.max(b, h, 0), .sum = sums},
                                {.rows = length,
                                 .value_dim = 1,
                                 .out = sums,
                                 .row_step = 1,
                                 .column_step = 1,
                                 .lse = !lse ? nullptr : &lse(b, h, 0),
                                 .lse_step = lse.strides[2],
                                 .sum = nullptr,
                                 .sum_step = 0,
                                 .sinks = !p.given.sinks ? nullptr : sinks});
    }
  }
}

/// Where a task puts what it finds; null data: not wanted.
struct Wanted {
  View<float, 4> weights;
  View<float, 3> sums;
};

/// All rows of a head with one block of keys.
void run_task(const Call& call, const RowFactors& factors, const Wanted& wanted, Index batch, Index head,
              Index number) {
  const AttentionProblem& p = call.p;
  const Index first = number * kernels::block_size, dim = p.q.shape[3];
  const Index keys = std::min(kernels::block_size, p.keys.k.shape[2] - first);
  const Element e = element(p, batch);
  const auto put = [&](auto& view, auto... at) { return !view ? nullptr : &view(at...); };
  float* const sums = put(wanted.sums, batch, head, first);
  if (sums != nullptr) std::fill_n(sums, keys, 0.0f);
  for (Index i = 0; i < p.q.shape[2] && wanted.weights; ++i)
    std::fill_n(&wanted.weights(batch, head, i, first), keys, 0.0f);

  const Index block_floats = kernels::block_size * dim;
  const Index q_floats = most_rows * kernels::row_stride, score_floats = kernels::max_tile_rows * kernels::row_stride;
  float* memory =
      scratch(Purpose::rows, block_floats + q_floats + score_floats + 2 * most_rows + relative_floats(most_rows, 1));
  AttentionBuffers b{};
  b.packed = memory;
  b.q = b.packed + block_floats;
  b.scores = b.q + q_floats;
  b.per_row = b.scores + score_floats;
  b.distances = b.per_row + 2 * most_rows;
  const Index kv_head = head / group_of(p);
  pack_block(p, call.cut, e, kv_head, number, {b.packed, nullptr});
  for (Index row = 0; row < e.queries; row += most_rows) {
    const Rows rows{e, kv_head, head, row, std::min(most_rows, e.queries - row), 2};
    kernels::AttentionBlock block = begin_rows(call, rows, b);
    SeenKeys seen;
    if (!look(p, call.runs, rows, first, b.distances, seen, block)) continue;
    BlockOfKeys found;
    find_packed(p, call.cut, rows, number, {b.packed, nullptr}, found);
    block.keys = found.block;
    p.kernel.attention_weights(block, {.max = &factors.max(batch, head, row),
                                       .factor = &factors.factor(batch, head, row),
                                       .weights = put(wanted.weights, batch, head, row, first),
                                       .row_step = wanted.weights.strides[2],
                                       .key_sums = sums});
  }
}

void run(const char* function, const AttentionProblem& p, const Wanted& wanted) {
  const Index batch = p.q.shape[0], heads = p.q.shape[1], length = p.q.shape[2], keys = p.keys.k.shape[2];
  if (batch == 0 || heads == 0) return;
  if (length == 0) {  // no rows: nothing to cut into tasks
    if (!wanted.sums || keys == 0) return;
    for (Index i = 0; i < batch * heads; ++i) std::fill_n(&wanted.sums(i / heads, i % heads, 0), keys, 0.0f);
    return;
  }
  float* memory = scratch(Purpose::factor, std::max<Index>(2 * batch * heads * length, 1));
  const RowFactors factors{{memory, {batch, heads, length}}, {memory + batch * heads * length, {batch, heads, length}}};
  find_factors(function, p, factors);
  if (keys == 0) return;
  AttentionCut cut(p);
  cut.longest = keys;
  cut.value_block = 0;
  const RelativeRuns runs(p.given.relative_bias);
  const Index blocks = ceil_div(keys, kernels::block_size);
  parallel_for(batch * heads * blocks, p.threads, [&](Index task) {
    run_task({p, cut, runs}, factors, wanted, task / blocks / heads, task / blocks % heads, task % blocks);
  });
}

/// Checks the arguments; `result` is [batch, q_heads, …, kv_length].
template <int Rank>
AttentionProblem checked(const char* function, const View<const float, 4>& q, const View<const float, 4>& k,
                         const char* name, const View<float, Rank>& result, const AttentionOptions& options) {
  const Operand of_q = operand(function, "q", q), of_result = operand(function, name, result);
  const AttentionProblem p = checked_scores(function, q, k, of_result, options);
  constexpr int last = Rank - 1;
  for (int axis = 0; axis < last; ++axis)
    check_same(of_result, axis, "elements along an axis", of_q, axis, "elements along it");
  check_same(of_result, last, "keys", operand(function, "k", k), 2, "keys");
  require(result.stride(last) == 1 || result.size(last) <= 1, function, ": ", name, " has ", result.stride(last),
          " as its last stride, it must be 1");
  return p;
}

}  // namespace

void attention_weights(View<const float, 4> q, View<const float, 4> k, View<float, 4> weights,
                       const AttentionOptions& options) {
  const CallScope scope;
  constexpr const char* function = "attention_weights";
  run(function, checked(function, q, k, "weights", weights, options), {.weights = weights, .sums = {}});
}

void attention_key_sums(View<const float, 4> q, View<const float, 4> k, View<float, 3> sums,
                        const AttentionOptions& options) {
  const CallScope scope;
  constexpr const char* function = "attention_key_sums";
  run(function, checked(function, q, k, "sums", sums, options), {.weights = {}, .sums = sums});
}

}  // namespace headlane
