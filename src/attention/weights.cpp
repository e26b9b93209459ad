// attention_weights: the maxima and sums of attention first, then the probabilities, block by block
// of keys.
#include "attention/half.hpp"
#include "attention/task.hpp"
#include "core/call_scope.hpp"
#include "core/check.hpp"
#include "core/convert.hpp"
#include "core/dispatch.hpp"
#include "core/parallel.hpp"
#include "core/round.hpp"
#include "core/scratch.hpp"

#include <headlane/attention_weights.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace headlane {

using namespace internal;

namespace {

/// The address of an element, or null for an output that is not wanted.
template <class View, class... Indices>
float* address(const View& view, Indices... indices) {
  return !view ? nullptr : &view(indices...);
}

/// The largest score of each row, and the factor of its weights, for all batch elements and heads.
struct RowFactors {
  View<float, 3> max, factor;
};

/// Runs attention() without values, for partial results: maxima and sums. Its last step, on a value
/// of 1 for each row, then turns the sums into factors, and writes the log-sum-exp if it is wanted.
void find_factors(Caller caller, const AttentionProblem& p, const RowFactors& rows) {
  AttentionOptions partial = p.options;
  partial.sinks = {};
  partial.lse = rows.max;
  partial.sum = rows.factor;
  run_attention(caller, {p.q, p.keys, p.out, partial, p.batch, p.scale, p.left, p.right, p.kernel, p.threads});
  const auto [batch, heads, length] = rows.max.shape;
  const View<float, 3>& lse = p.options.lse;
  const View<const float, 1>& sink_of_head = p.options.sinks;
  float ones[kernels::lanes];
  std::fill_n(ones, kernels::lanes, 1.0f);
  float* const sinks = scratch(Purpose::block, length);
  for (Index b = 0; b < batch; ++b) {
    const Index queries = element(p, b).queries;
    for (Index h = 0; h < heads; ++h) {
      if (sink_of_head) {  // padding has none
        std::fill_n(sinks, queries, sink_of_head(h));
        std::fill_n(sinks + queries, length - queries, -std::numeric_limits<float>::infinity());
      }
      float* const sums = &rows.factor(b, h, 0);
      p.kernel.attention_finish({.out = ones, .out_step = 0, .max = &rows.max(b, h, 0), .sum = sums},
                                {.rows = length,
                                 .value_dim = 1,
                                 .out = sums,
                                 .row_step = 1,
                                 .column_step = 1,
                                 .lse = address(lse, b, h, 0),
                                 .lse_step = lse.strides[2],
                                 .sum = nullptr,
                                 .sum_step = 0,
                                 .sinks = !sink_of_head ? nullptr : sinks});
    }
  }
}

/// The outputs; null data: not wanted.
struct Outputs {
  View<float, 4> weights;
  View<float, 3> sums;
};

/// Shared by the tasks of a call.
struct WeightsContext {
  const AttentionProblem& p;
  const KeyBlocks& blocks;
  const RelativeRuns& bias;
  const RowFactors& factors;
  const Outputs& outputs;
};

/// All rows of a head with one block of keys.
void run_task(const WeightsContext& context, Index batch, Index head, Index number) {
  const AttentionProblem& p = context.p;
  const KeyBlocks& blocks = context.blocks;
  const View<float, 4>& weights = context.outputs.weights;
  const Index first = number * kernels::block_size, keys = std::min(kernels::block_size, blocks.keys - first);
  const Element e = element(p, batch);
  float* const sums = address(context.outputs.sums, batch, head, first);
  if (sums != nullptr) std::fill_n(sums, keys, 0.0f);
  for (Index i = 0; i < p.q.shape[2] && weights; ++i) std::fill_n(&weights(batch, head, i, first), keys, 0.0f);

  const ThreadBuffers buffers = carved_from_scratch(Purpose::rows, [&](Arena& arena) {
    ThreadBuffers carved = carve_row_buffers(arena, p, max_rows, false);
    carved.packed = arena.take(blocks.block_floats());
    return carved;
  });
  const PackedBlock packed{buffers.packed, nullptr};
  const Index kv_head = head / group_size(p);
  pack_block(p, blocks, e, kv_head, number, packed);
  for (Index row = 0; row < e.queries; row += max_rows) {
    const QueryRows rows{e, kv_head, head, row, std::min(max_rows, e.queries - row), 2};
    kernels::AttentionBlock block = begin_rows(p, rows, buffers);
    VisibleKeys visible;
    if (!find_visible_keys(p, context.bias, rows, first, buffers.distances, visible, block)) continue;
    BlockOfKeys found;
    find_packed(p, blocks, rows, number, packed, found);
    block.keys = found.block;
    p.kernel.attention_weights(block, {.max = &context.factors.max(batch, head, row),
                                       .factor = &context.factors.factor(batch, head, row),
                                       .weights = address(weights, batch, head, row, first),
                                       .row_step = weights.strides[2],
                                       .key_sums = sums});
  }
}

void run(Caller caller, const AttentionProblem& p, const Outputs& outputs) {
  const Index batch = p.q.shape[0], heads = p.q.shape[1], length = p.q.shape[2], keys = p.keys.k.shape[2];
  if (batch == 0 || heads == 0) return;
  if (length == 0) {  // no rows: nothing to divide into tasks
    if (!outputs.sums || keys == 0) return;
    for (Index i = 0; i < batch * heads; ++i) std::fill_n(&outputs.sums(i / heads, i % heads, 0), keys, 0.0f);
    return;
  }
  const RowFactors factors = carved_from_scratch(Purpose::factor, [&](Arena& arena) {
    const auto take = [&] { return View<float, 3>(arena.take(batch * heads * length), {batch, heads, length}); };
    return RowFactors{.max = take(), .factor = take()};
  });
  find_factors(caller, p, factors);
  if (keys == 0) return;
  // All keys, also those visible to no query, whose weights are written as well; no values.
  const KeyBlocks blocks = packed_blocks(keys, p.q.shape[3], 0);
  const RelativeRuns bias(p.options.relative_bias);
  const WeightsContext context{p, blocks, bias, factors, outputs};
  parallel_for(batch * heads * blocks.count, p.threads, [&](Index task) {
    const Index row_task = task / blocks.count;
    run_task(context, row_task / heads, row_task % heads, task % blocks.count);
  });
}

constexpr Caller weights_caller("attention_weights"), sums_caller("attention_key_sums");

/// Checks the arguments; the result, operands.out, is [batch, q_heads, …, kv_length].
AttentionProblem checked(const AttentionOperands& operands, const View<const float, 4>& q,
                         const View<const float, 4>& k, const AttentionOptions& options) {
  const Operand& result = operands.out;
  const AttentionProblem p = checked_scores(operands, q, k, options);
  const int last = result.rank - 1;
  for (int axis = 0; axis < last; ++axis)
    check_same(result, axis, "elements along an axis", operands.q, axis, "elements along it");
  check_same(result, last, "keys", operands.k, 2, "keys");
  result.require(result.strides[last] == 1 || result.shape[last] <= 1 || is_empty(result), " has ",
                 result.strides[last], " as its last stride, it must be 1");
  return p;
}

template <class T>
AttentionOperands operands_of(const View<const T, 4>& q, const View<const T, 4>& k, const Operand& result) {
  return {result.caller.operand("q", q), result.caller.operand("k", k), {}, result};
}

/// By way of float32 copies, with which it calls f(q, k, result).
template <int Rank, class F>
void run_halves(Caller caller, const char* name, const View<const std::uint16_t, 4>& q,
                const View<const std::uint16_t, 4>& k, const View<std::uint16_t, Rank>& result, DType type,
                const AttentionOptions& options, const F& f) {
  const CallScope scope;
  (void)checked(operands_of(q, k, caller.operand(name, result)), {nullptr, q.shape}, {nullptr, k.shape}, options);
  const AnyView<const std::uint16_t> like(result);
  HalfCopies copies(active(), options.num_threads);
  copies.reserve(q);
  copies.reserve(k);
  copies.reserve(like);
  copies.allocate();
  const View<const float, 4> wide_q = as_view<4>(copies.add({q, type})), wide_k = as_view<4>(copies.add({k, type}));
  const View<float, Rank> wide = as_view<Rank>(copies.room(like));
  f(wide_q, wide_k, wide, options);
  copies.round(AnyView<const float>(wide), {AnyView<std::uint16_t>(result), type});
}

using HalfTensor = View<const std::uint16_t, 4>;

void weights_halves(const HalfTensor& q, const HalfTensor& k, const View<std::uint16_t, 4>& weights, DType type,
                    const AttentionOptions& options) {
  run_halves(weights_caller, "weights", q, k, weights, type, options,
             [](const auto&... arguments) { attention_weights(arguments...); });
}

void sums_halves(const HalfTensor& q, const HalfTensor& k, const View<std::uint16_t, 3>& sums, DType type,
                 const AttentionOptions& options) {
  run_halves(sums_caller, "sums", q, k, sums, type, options,
             [](const auto&... arguments) { attention_key_sums(arguments...); });
}

}  // namespace

void attention_weights(View<const float, 4> q, View<const float, 4> k, View<float, 4> weights,
                       const AttentionOptions& options) {
  const CallScope scope;
  const Operand result = weights_caller.operand("weights", weights);
  const AttentionProblem problem = checked(operands_of(q, k, result), q, k, options);
  if (is_half(options.bias)) return attention_weights(q, k, weights, with_wide(options, &AttentionOptions::bias));
  run(weights_caller, problem, {.weights = weights, .sums = {}});
}
void attention_weights(View<const bfloat16, 4> q, View<const bfloat16, 4> k, View<bfloat16, 4> weights,
                       const AttentionOptions& options) {
  weights_halves(bits_of(q), bits_of(k), bits_of(weights), DType::bfloat16, options);
}
void attention_weights(View<const float16, 4> q, View<const float16, 4> k, View<float16, 4> weights,
                       const AttentionOptions& options) {
  weights_halves(bits_of(q), bits_of(k), bits_of(weights), DType::float16, options);
}

void attention_key_sums(View<const float, 4> q, View<const float, 4> k, View<float, 3> sums,
                        const AttentionOptions& options) {
  const CallScope scope;
  const Operand result = sums_caller.operand("sums", sums);
  const AttentionProblem problem = checked(operands_of(q, k, result), q, k, options);
  if (is_half(options.bias)) return attention_key_sums(q, k, sums, with_wide(options, &AttentionOptions::bias));
  run(sums_caller, problem, {.weights = {}, .sums = sums});
}
void attention_key_sums(View<const bfloat16, 4> q, View<const bfloat16, 4> k, View<bfloat16, 3> sums,
                        const AttentionOptions& options) {
  sums_halves(bits_of(q), bits_of(k), bits_of(sums), DType::bfloat16, options);
}
void attention_key_sums(View<const float16, 4> q, View<const float16, 4> k, View<float16, 3> sums,
                        const AttentionOptions& options) {
  sums_halves(bits_of(q), bits_of(k), bits_of(sums), DType::float16, options);
}

}  // namespace headlane
