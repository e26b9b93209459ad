// linear_attention: tasks are some columns of the state of a head, which go through all tokens, 64
// at a time. The arithmetic is in kernels/recurrent/linear_attention.hpp.
#include <headlane/linear_attention.hpp>

#include "core/call_scope.hpp"
#include "core/convert.hpp"
#include "core/dispatch.hpp"
#include "core/parallel.hpp"
#include "core/round.hpp"
#include "core/scratch.hpp"
#include "core/view_rows.hpp"
#include "kernels/table.hpp"
#include "recurrent/linear_attention_check.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace headlane {

using namespace internal;

namespace {

using kernels::KernelTable;
using kernels::state_columns;

constexpr Caller caller("linear_attention");
/// Tokens whose queries and keys are prepared at a time: of 128 elements they are 72 KiB, which
/// stay in the L2.
constexpr Index chunk_tokens = 64;

/// The call, shared by all tasks.
struct Problem {
  const KernelTable& kernel;
  const View<const float, 4>&q, &k, &v;
  const View<float, 4>& out;
  const LinearAttentionOptions& options;
  float scale;
  Index heads_of_key, blocks, parts;  ///< blocks of columns in a head, and tasks that share them
  const float* factor;                ///< [key_dim], 1 / sqrt(key_dim), for normalize
};

/// Rows of a tensor as kernels take them, elements adjacent.
struct Rows {
  const float* data;
  Index step;
};

/// Scratch memory of a thread.
struct Memory {
  float *q, *k, *v, *out;       ///< [chunk_tokens, a row]
  float *decay, *beta;          ///< of a chunk
  float *block, *before, *own;  ///< of the state: [key_dim, state_columns], and [blocks, key_dim, state_columns]
  Index key_step;
};

Memory memory_for(const Problem& p) {
  const Index key_dim = p.q.size(3), key_step = step_of_copy(key_dim), block = key_dim * state_columns;
  const Index rows = chunk_tokens * key_step, columns = chunk_tokens * state_columns;
  const Index own = p.options.state ? 0 : p.blocks * block;
  float* at = scratch(Purpose::block, 3 * rows + key_step + 2 * columns + chunk_tokens + 2 * block + own);
  const auto take = [&](Index floats) { return std::exchange(at, at + floats); };
  Memory m{};
  m.key_step = key_step;
  m.block = take(block), m.before = take(block), m.own = take(own);
  m.q = take(rows), m.k = take(rows), m.decay = take(rows + key_step);
  m.v = take(columns), m.out = take(columns), m.beta = take(chunk_tokens);
  return m;
}

/// Tokens first … first + tokens - 1 of a head; elements are made adjacent, and normalised.
Rows prepare(const Problem& p, const View<const float, 4>& x, Index b, Index head, Index first, Index tokens,
             const Memory& m, float* to) {
  const Index n = x.size(3);
  Rows rows{&x(b, head, first, 0), x.stride(2)};
  if (n > 1 && x.stride(3) != 1) {
    p.kernel.copy_rows({rows.data, tokens, n, rows.step, x.stride(3)}, to, m.key_step, 1);
    rows = {to, m.key_step};
  }
  if (!p.options.normalize) return rows;
  kernels::NormRows norm{};
  norm.x = rows.data, norm.x_step = rows.step;
  norm.y = to, norm.y_step = m.key_step;
  norm.rows = tokens, norm.n = n;
  norm.weight = p.factor;
  norm.eps = p.options.eps / static_cast<float>(n);
  p.kernel.norm_rows(norm);
  return {to, m.key_step};
}

/// The decays of some tokens, and a 1 for what follows the last one; returns their step.
Index fill_decays(const Problem& p, Index b, Index head, Index first, Index tokens, const Memory& m) {
  const AnyView<const float>& x = p.options.log_decay;
  if (!x) {
    std::fill_n(m.decay, tokens + 1, 1.0f);
    return 0;
  }
  const float* const from = x.data + b * x.strides[0] + head * x.strides[1] + first * x.strides[2];
  const bool per_row = x.rank == 4;
  const Index n = per_row ? x.shape[3] : 1, step = per_row ? m.key_step : 1;
  for (Index t = 0; t < tokens; ++t)
    for (Index i = 0; i < n; ++i) m.decay[t * step + i] = from[t * x.strides[2] + (per_row ? i * x.strides[3] : 0)];
  if (!per_row) p.kernel.exp(m.decay, m.decay, tokens);
  else
    for (Index t = 0; t < tokens; ++t) p.kernel.exp(m.decay + t * step, m.decay + t * step, n);
  std::fill_n(m.decay + tokens * step, n, 1.0f);
  return per_row ? step : 0;
}

/// Whether there is a single token, and a row of the state, of v and of out are in one piece each.
bool takes_step(const Problem& p) {
  const auto dense = [](const auto& view) { return view.size(3) == 1 || view.stride(3) == 1; };
  return p.v.size(2) == 1 && p.options.state && dense(p.options.state) && dense(p.v) && dense(p.out);
}

/// A single token: columns begin … end - 1 of the state.
void pass_step(const Problem& p, kernels::LinearAttentionTokens call, Index b, Index head, Index begin, Index end) {
  const View<float, 4>& state = p.options.state;
  call.columns = end - begin;
  call.v = &p.v(b, head, 0, begin);
  call.out = &p.out(b, head, 0, begin);
  call.from = call.to = &state(b, head, 0, begin);
  call.from_step = call.to_step = state.stride(2);
  p.kernel.linear_attention_step(call);
}

/// A chunk of tokens: one block of columns of the state.
void pass_block(const Problem& p, kernels::LinearAttentionTokens call, Index b, Index head, Index first, Index block,
                const Memory& m) {
  const Index at = block * state_columns, columns = std::min(state_columns, p.v.size(3) - at);
  const View<const float, 4>& v = p.v;
  const View<float, 4>&out = p.out, &state = p.options.state;
  call.columns = columns;
  call.v = &v(b, head, first, at), call.v_step = v.stride(2);
  if (columns > 1 && v.stride(3) != 1) {
    p.kernel.copy_rows({call.v, call.tokens, columns, call.v_step, v.stride(3)}, m.v, state_columns, 1);
    call.v = m.v, call.v_step = state_columns;
  }
  float* const to = &out(b, head, first, at);
  const bool copies_out = columns > 1 && out.stride(3) != 1;
  call.out = copies_out ? m.out : to, call.out_step = copies_out ? state_columns : out.stride(2);
  // A state in the caller's memory is read and written there, unless the kernel would go beyond it.
  const bool own = !state, copies = !own && (columns < state_columns || state.stride(3) != 1);
  float* const there = own ? m.own + block * call.key_dim * state_columns : &state(b, head, 0, at);
  float* const here = copies ? m.before : there;
  const Index there_step = own ? state_columns : state.stride(2), here_step = copies ? state_columns : there_step;
  const Index column_step = own ? 1 : state.stride(3);
  if (copies) p.kernel.copy_rows({there, call.key_dim, columns, there_step, column_step}, here, here_step, 1);
  call.from = call.to = here, call.from_step = call.to_step = here_step;
  call.block = m.block;
  p.kernel.linear_attention(call);
  if (copies) p.kernel.copy_rows({here, call.key_dim, columns, here_step, 1}, there, there_step, column_step);
  if (copies_out) p.kernel.copy_rows({m.out, call.tokens, columns, state_columns, 1}, to, out.stride(2), out.stride(3));
}

/// The state before the first token, if none is given, and columns that a narrow one does not have.
void clear(const Problem& p, Index begin, Index end, const Memory& m) {
  const Index block = p.q.size(3) * state_columns;
  std::fill_n(m.before, block, 0.0f);
  if (!p.options.state) std::fill_n(m.own + begin * block, (end - begin) * block, 0.0f);
}

/// One task: some blocks of columns of a head, for all tokens.
void run_task(const Problem& p, Index task) {
  const Index heads = p.v.size(1), length = p.v.size(2), key_dim = p.q.size(3);
  const Index part = task % p.parts, head = task / p.parts % heads, b = task / p.parts / heads;
  const Index begin = part * p.blocks / p.parts, end = (part + 1) * p.blocks / p.parts;
  const Memory m = memory_for(p);
  const bool is_step = takes_step(p);
  if (!is_step) clear(p, begin, end, m);
  const View<const float, 3>& beta = p.options.beta;
  for (Index first = 0; first < length; first += chunk_tokens) {
    const Index tokens = std::min(chunk_tokens, length - first);
    const Rows q = prepare(p, p.q, b, head / p.heads_of_key, first, tokens, m, m.q);
    const Rows k = prepare(p, p.k, b, head / p.heads_of_key, first, tokens, m, m.k);
    kernels::LinearAttentionTokens call{};
    call.tokens = tokens, call.key_dim = key_dim, call.scale = p.scale;
    call.q = q.data, call.q_step = q.step;
    call.k = k.data, call.k_step = k.step;
    call.decay = m.decay, call.decay_step = fill_decays(p, b, head, first, tokens, m);
    if (beta) {
      for (Index t = 0; t < tokens; ++t) m.beta[t] = beta(b, head, first + t);
      call.beta = m.beta;
    }
    if (is_step) pass_step(p, call, b, head, begin * state_columns, std::min(end * state_columns, p.v.size(3)));
    for (Index i = begin; i < end && !is_step; ++i) pass_block(p, call, b, head, first, i, m);
  }
}

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
  const Problem p{active(), q,     k,     v, out, options, options.scale.value_or(factor[0]), v.size(1) / k.size(1),
                  blocks,   parts, factor};
  parallel_for(tasks * parts, threads, [&](Index task) { run_task(p, task); });
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
