// linear_attention: the entry, the partition into tasks, and copies of tensors of 16 bits. The
// arithmetic is in kernels/recurrent/linear_attention.hpp.
#include <headlane/linear_attention.hpp>

#include "core/call_scope.hpp"
#include "core/convert.hpp"
#include "core/dispatch.hpp"
#include "core/parallel.hpp"
#include "core/round.hpp"
#include "core/scratch.hpp"
#include "kernels/table.hpp"
#include "recurrent/linear_attention_check.hpp"
#include "recurrent/linear_attention_task.hpp"

#include <algorithm>
#include <cmath>

namespace headlane {

using namespace internal;

namespace {

using kernels::KernelTable;
using kernels::state_columns;

constexpr Caller caller("linear_attention");

int threads_for(const View<const float, 4>& v, Index key_dim, int asked) {
  const auto size = [](Index n) { return static_cast<double>(n); };
  const double states = size(v.size(0)) * size(v.size(1)) * size(v.size(3)) * size(key_dim);
  return useful_threads(8.0 * states * size(v.size(2)), 2.0 * states, asked);
}

void run(View<const float, 4> q, View<const float, 4> k, View<const float, 4> v, const View<float, 4>& out,
         const LinearAttentionOptions& options) {
  const Index key_dim = q.size(3), tasks = v.size(0) * v.size(1), blocks = ceil_div(v.size(3), state_columns);
  const int threads = threads_for(v, key_dim, options.num_threads);
  float* const factor = scratch(Purpose::shared, key_dim);
  std::fill_n(factor, key_dim, 1.0f / std::sqrt(static_cast<float>(key_dim)));
  const Index parts = threads == 1 ? 1 : std::clamp<Index>(ceil_div(Index{4} * threads, tasks), 1, blocks);
  const LinearAttentionProblem p{
      active(), q, k, v, out, options, options.scale.value_or(factor[0]), v.size(1) / k.size(1), blocks, parts, factor};
  parallel_for(tasks * parts, threads, [&](Index task) { run_linear_attention_task(p, task); });
}

/// q, k and v of 16 bits.
struct HalfTensors {
  HalfInput q, k, v;
  HalfOutput out;
};

void run(const HalfTensors& x, const LinearAttentionOptions& options) {
  const CallScope scope;
  check_linear_attention(
      {caller.operand("q", x.q), caller.operand("k", x.k), caller.operand("v", x.v), caller.operand("out", x.out)},
      options);
  const KernelTable& kernel = active();
  if (is_empty(x.out)) return;
  HalfCopies copies(kernel, options.num_threads);
  for (const HalfInput* input : {&x.q, &x.k, &x.v}) copies.reserve(*input);
  copies.reserve(as_input(x.out));
  copies.allocate();
  const AnyView<float> q = copies.add(x.q), k = copies.add(x.k), v = copies.add(x.v),
                       out = copies.room(as_input(x.out));
  run(as_view<4>(q), as_view<4>(k), as_view<4>(v), as_view<4>(out), options);
  copies.round(as_input(out), x.out);
}

template <class T>
HalfTensors half_tensors(const View<const T, 4>& q, const View<const T, 4>& k, const View<const T, 4>& v,
                         const View<T, 4>& out) {
  return {HalfInput(AnyView<const T>(q)), HalfInput(AnyView<const T>(k)), HalfInput(AnyView<const T>(v)),
          HalfOutput(AnyView<T>(out))};
}

}  // namespace

void linear_attention(View<const float, 4> q, View<const float, 4> k, View<const float, 4> v, View<float, 4> out,
                      const LinearAttentionOptions& options) {
  const CallScope scope;
  check_linear_attention(
      {caller.operand("q", q), caller.operand("k", k), caller.operand("v", v), caller.operand("out", out)}, options);
  active();
  if (!is_empty(out)) run(q, k, v, out, options);
}
void linear_attention(View<const bfloat16, 4> q, View<const bfloat16, 4> k, View<const bfloat16, 4> v,
                      View<bfloat16, 4> out, const LinearAttentionOptions& options) {
  run(half_tensors(q, k, v, out), options);
}
void linear_attention(View<const float16, 4> q, View<const float16, 4> k, View<const float16, 4> v,
                      View<float16, 4> out, const LinearAttentionOptions& options) {
  run(half_tensors(q, k, v, out), options);
}

}  // namespace headlane
