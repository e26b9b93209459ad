// attention of bfloat16 and float16: attention of float32 copies, whose result is rounded. Tasks of
// few rows copy keys and values themselves, block by block.
#include "attention/half.hpp"

#include "attention/plan.hpp"
#include "core/call_scope.hpp"
#include "core/dispatch.hpp"

namespace headlane {
namespace internal {
namespace {

/// The shape, for checks that read no element.
template <class To, class From>
View<To, 4> shape_only(const View<From, 4>& view) {
  return {nullptr, view.shape};
}

AttentionProblem checked(Caller caller, const HalfTensors& x, const KeysAndValues& keys,
                         const AttentionOptions& options) {
  caller.require(!options.sum && options.workspace.data() == nullptr,
                 "sum or workspace is given, which only attention of float32 has");
  const AttentionOperands operands{caller.operand("q", x.q), caller.operand("k", x.k), caller.operand("v", x.v),
                                   caller.operand("out", x.out)};
  return checked_attention(operands, shape_only<const float>(x.q), keys, shape_only<float>(x.out), options,
                           CheckLevel::full);
}

/// Whether tasks widen keys and values themselves, block by block, since few rows read them: copies
/// of all went to memory and back. Decoding 8 × 1024 keys takes 0.59 to 0.67 of the time, with 2
/// threads 0.44 to 0.54 (Zen 4).
bool are_widened_by_tasks(const AttentionProblem& p, const HalfTensors& x) {
  return has_few_rows(p) && x.k.strides[3] == 1 && x.v.strides[3] == 1 && x.v.shape[3] % kernels::lanes == 0;
}

/// Rounds the rows that belong to a sequence; others are left alone.
void round_rows(const HalfCopies& copies, const View<float, 4>& from, const HalfTensors& x,
                const View<const Index, 1>& starts) {
  const Index first = !starts ? 0 : starts(0), end = !starts ? from.shape[2] : starts(starts.shape[0] - 1);
  const View<float, 4> rows = from.slice(2, first, end);
  if (!is_empty(rows)) copies.round(AnyView<const float>(rows), {x.out.slice(2, first, end), x.type});
}

}  // namespace

void attention_halves(Caller caller, HalfTensors x, const KeysAndValues& cached, const AttentionOptions& options) {
  const CallScope scope;
  const bool is_cached = cached.cache != nullptr;
  KeysAndValues keys = cached;
  if (!is_cached) keys = {.k = shape_only<const float>(x.k), .v = shape_only<const float>(x.v)};
  AttentionProblem problem = checked(caller, x, keys, options);
  if (!has_rows(problem)) return;
  if (is_half(options.bias)) return attention_halves(caller, x, cached, with_wide(options, &AttentionOptions::bias));
  const bool copies_keys = !is_cached && !are_widened_by_tasks(problem, x);
  HalfCopies copies(active(), options.num_threads);
  for (auto* input : {&x.q, &x.k, &x.v}) {
    *input = with_safe_strides(*input);
    if (input == &x.q || copies_keys) copies.reserve(*input);
  }
  copies.reserve(AnyView<const std::uint16_t>(x.out));
  copies.allocate();
  const auto copy_of = [&](const View<const std::uint16_t, 4>& input) {
    return with_safe_strides(View<const float, 4>(as_view<4>(copies.add({input, x.type}))));
  };
  problem.q = copy_of(x.q);
  if (copies_keys) {
    problem.keys.k = copy_of(x.k);
    problem.keys.v = copy_of(x.v);
  } else if (!is_cached) {
    problem.keys.halves = &x;
  }
  const View<float, 4> out = as_view<4>(copies.room(AnyView<const std::uint16_t>(x.out)));
  problem.out = out;
  run_attention(caller, problem);
  round_rows(copies, out, x, options.query_starts);
}

}  // namespace internal

using namespace internal;

void attention(View<const bfloat16, 4> q, View<const bfloat16, 4> k, View<const bfloat16, 4> v, View<bfloat16, 4> out,
               const AttentionOptions& options) {
  attention_halves("attention", {bits_of(q), bits_of(k), bits_of(v), bits_of(out), DType::bfloat16}, {}, options);
}
void attention(View<const float16, 4> q, View<const float16, 4> k, View<const float16, 4> v, View<float16, 4> out,
               const AttentionOptions& options) {
  attention_halves("attention", {bits_of(q), bits_of(k), bits_of(v), bits_of(out), DType::float16}, {}, options);
}

void attention(View<const bfloat16, 4> q, const KvCache& cache, std::span<const Index> sequences, View<bfloat16, 4> out,
               const AttentionOptions& options) {
  attention_halves("attention", {bits_of(q), {}, {}, bits_of(out), DType::bfloat16},
                   keys_of("attention", cache, sequences), options);
}
void attention(View<const float16, 4> q, const KvCache& cache, std::span<const Index> sequences, View<float16, 4> out,
               const AttentionOptions& options) {
  attention_halves("attention", {bits_of(q), {}, {}, bits_of(out), DType::float16},
                   keys_of("attention", cache, sequences), options);
}

}  // namespace headlane
