#include "recurrent/linear_attention_task.hpp"

#include "core/round.hpp"
#include "core/scratch.hpp"
#include "core/view_rows.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace headlane::internal {
namespace {

using kernels::state_columns;

/// Tokens whose queries and keys are prepared at a time: of 128 elements they are 72 KiB, which
/// stay in the L2.
constexpr Index chunk_tokens = 64;

/// Rows of a tensor as kernels take them, elements adjacent.
struct Rows {
  const float* data;
  Index step;
};

/// Scratch memory of a thread.
struct Memory {
  float *q, *k, *v, *out;       ///< [chunk_tokens, a row]
  float *decay, *step, *beta;   ///< of a chunk
  float* gate[2];               ///< of a token's decays, or of a chunk's
  float *block, *before, *own;  ///< of the state: [key_dim, state_columns], and [blocks, key_dim, state_columns]
  Index key_step;
};

Memory memory_for(const LinearAttentionProblem& p) {
  const Index key_dim = p.q.size(3), key_step = step_of_copy(key_dim), block = key_dim * state_columns;
  const Index rows = chunk_tokens * key_step, columns = chunk_tokens * state_columns;
  const Index own = p.options.state ? 0 : p.blocks * block, gate = std::max(key_step, chunk_tokens);
  float* at =
      scratch(Purpose::block, 3 * rows + key_step + 2 * columns + 2 * chunk_tokens + 2 * gate + 2 * block + own);
  const auto take = [&](Index floats) { return std::exchange(at, at + floats); };
  Memory m{};
  m.key_step = key_step;
  m.block = take(block), m.before = take(block), m.own = take(own);
  m.q = take(rows), m.k = take(rows), m.decay = take(rows + key_step);
  m.v = take(columns), m.out = take(columns), m.step = take(chunk_tokens), m.beta = take(chunk_tokens);
  m.gate[0] = take(gate), m.gate[1] = take(gate);
  return m;
}

/// Tokens first … first + tokens - 1 of a head; elements are made adjacent, and normalised.
Rows prepare(const LinearAttentionProblem& p, const View<const float, 4>& x, Index b, Index head, Index first,
             Index tokens, const Memory& m, float* to) {
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

/// x = softplus(x + bias) of n elements: of s it is max(s, 0) + log(1 + t) with t = exp(-|s|);
/// log(1 + t) is as exact as log after Kahan: what 1 + t loses of t is a factor.
void apply_softplus(const LinearAttentionProblem& p, float* x, Index n, const float* bias, Index bias_step,
                    const Memory& m) {
  float *const t = m.gate[0], *const l = m.gate[1];
  if (bias != nullptr)
    for (Index i = 0; i < n; ++i) x[i] += bias[i * bias_step];
  for (Index i = 0; i < n; ++i) t[i] = -std::fabs(x[i]);
  p.kernel.exp(t, t, n);
  for (Index i = 0; i < n; ++i) l[i] = 1.0f + t[i];
  p.kernel.log(l, l, n);
  for (Index i = 0; i < n; ++i) {
    const float lost = (1.0f + t[i]) - 1.0f, log1p = lost == 0.0f ? t[i] : l[i] * (t[i] / lost);
    x[i] = std::max(x[i], 0.0f) + log1p;
  }
}

/// x, where it is not NaN, is at least `least` and at most `most`.
void limit(float* x, Index n, float least, float most) {
  for (Index i = 0; i < n; ++i) x[i] = x[i] < least ? least : x[i] > most ? most : x[i];
}

/// The decays of some tokens, and a 1 for what follows the last one; returns their step. With
/// discretize, also the factors of their values.
Index fill_decays(const LinearAttentionProblem& p, Index b, Index head, Index first, Index tokens, const Memory& m) {
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
  // All tokens have one decay each, and are a row; or each is a row of its own.
  const Index rows = per_row ? tokens : 1, row = per_row ? n : tokens;
  float rate = 0;
  if (p.options.a_log) p.kernel.exp(&p.options.a_log(head), &rate, 1);
  const AnyView<const float>& bias = p.options.dt_bias;
  for (Index t = 0; t < rows; ++t) {
    float* const decay = m.decay + t * step;
    if (p.options.a_log) {
      apply_softplus(p, decay, row, bias ? bias.data + head * bias.strides[0] : nullptr,
                     bias.rank == 2 ? bias.strides[1] : 0, m);
      if (p.options.discretize) {
        limit(decay, row, p.options.min_step, p.options.max_step);
        std::copy_n(decay, row, m.step);
      }
      for (Index i = 0; i < row; ++i) decay[i] = -(rate * decay[i]);
    }
    p.kernel.exp(decay, decay, row);
  }
  std::fill_n(m.decay + tokens * step, n, 1.0f);
  return per_row ? step : 0;
}

/// The factors beta of some tokens.
const float* fill_betas(const LinearAttentionProblem& p, Index b, Index head, Index first, Index tokens,
                        const Memory& m) {
  for (Index t = 0; t < tokens; ++t) m.beta[t] = p.options.beta(b, head, first + t);
  if (p.options.sigmoid_beta) p.kernel.activate(Activation::sigmoid, m.beta, m.beta, tokens);
  for (Index t = 0; t < tokens; ++t) m.beta[t] *= p.options.beta_scale;
  return m.beta;
}

/// Whether there is a single token, and a row of the state, of v and of out are in one piece each.
bool takes_step(const LinearAttentionProblem& p) {
  const auto dense = [](const auto& view) { return view.size(3) == 1 || view.stride(3) == 1; };
  return p.v.size(2) == 1 && p.options.state && dense(p.options.state) && dense(p.v) && dense(p.out);
}

/// A single token: columns begin … end - 1 of the state.
void pass_step(const LinearAttentionProblem& p, kernels::LinearAttentionTokens call, Index b, Index head, Index begin,
               Index end) {
  const View<float, 4>& state = p.options.state;
  call.columns = end - begin;
  call.v = &p.v(b, head, 0, begin);
  call.out = &p.out(b, head, 0, begin);
  call.from = call.to = &state(b, head, 0, begin);
  call.from_step = call.to_step = state.stride(2);
  p.kernel.linear_attention_step(call);
}

/// A chunk of tokens: one block of columns of the state.
void pass_block(const LinearAttentionProblem& p, kernels::LinearAttentionTokens call, Index b, Index head, Index first,
                Index block, const Memory& m) {
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
void clear(const LinearAttentionProblem& p, Index begin, Index end, const Memory& m) {
  const Index block = p.q.size(3) * state_columns;
  std::fill_n(m.before, block, 0.0f);
  if (!p.options.state) std::fill_n(m.own + begin * block, (end - begin) * block, 0.0f);
}

}  // namespace

void run_linear_attention_task(const LinearAttentionProblem& p, Index task) {
  const Index heads = p.v.size(1), length = p.v.size(2), key_dim = p.q.size(3);
  const Index part = task % p.parts, head = task / p.parts % heads, b = task / p.parts / heads;
  const Index begin = part * p.blocks / p.parts, end = (part + 1) * p.blocks / p.parts;
  const Memory m = memory_for(p);
  const bool is_step = takes_step(p);
  if (!is_step) clear(p, begin, end, m);
  for (Index first = 0; first < length; first += chunk_tokens) {
    const Index tokens = std::min(chunk_tokens, length - first);
    const Rows q = prepare(p, p.q, b, head / p.heads_of_key, first, tokens, m, m.q);
    const Rows k = prepare(p, p.k, b, head / p.heads_of_key, first, tokens, m, m.k);
    kernels::LinearAttentionTokens call{};
    call.tokens = tokens, call.key_dim = key_dim, call.scale = p.scale;
    call.q = q.data, call.q_step = q.step;
    call.k = k.data, call.k_step = k.step;
    call.decay = m.decay, call.decay_step = fill_decays(p, b, head, first, tokens, m);
    if (p.options.discretize) call.step = m.step;
    if (p.options.skip) call.skip = &p.options.skip(head);
    if (p.options.beta) call.beta = fill_betas(p, b, head, first, tokens, m);
    if (is_step) pass_step(p, call, b, head, begin * state_columns, std::min(end * state_columns, p.v.size(3)));
    for (Index i = begin; i < end && !is_step; ++i) pass_block(p, call, b, head, first, i, m);
  }
}

}  // namespace headlane::internal
