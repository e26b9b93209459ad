// Linear attention and causal convolutions among operations on rows, and the states that a cache of
// transformers has for them.
#pragma once

#include "core/views.hpp"
#include "rows/operation.hpp"

#include <headlane/activation.hpp>
#include <headlane/causal_convolution.hpp>
#include <headlane/convert.hpp>
#include <headlane/linear_attention.hpp>
#include <headlane/norm.hpp>

#include <algorithm>
#include <type_traits>
#include <vector>

namespace headlane::python {

/// Some columns of values, [batch, length, width], as heads.
template <class T>
View<T, 4> heads_of(const View<T, 3>& x, Index column, Index heads, Index dim) {
  const Index length = x.shape[1], width = x.shape[2];
  return {x.data + column, {x.shape[0], heads, length, dim}, {length * width, dim, width, 1}};
}

/// Room for as many numbers as x has.
template <class T, int Rank>
View<float, Rank> room_for(const View<T, Rank>& x, std::vector<float>& memory) {
  Index size = 1;
  for (const Index one : x.shape) size *= one;
  memory.resize(static_cast<std::size_t>(size));
  return {memory.data(), x.shape};
}

/// Values in float32: they themselves, or a copy in `memory`.
template <class T, int Rank>
View<float, Rank> widened(const View<T, Rank>& x, std::vector<float>& memory, int num_threads) {
  if constexpr (std::is_same_v<T, float>) return x;
  else {
    const View<float, Rank> copy = room_for(x, memory);
    convert(x, copy, {num_threads});
    return copy;
  }
}

/// y = x · activation(gate), rounded to its type once. `factors` is memory for the activation, and
/// may be that of y.
template <class T, class To>
void multiply_by_gate(Activation activation, const View<T, 2>& x, const View<T, 2>& gate, To* y,
                      std::vector<float>& factors, int num_threads) {
  const View<float, 2> of_gate = room_for(gate, factors);
  activate(widened(gate, factors, num_threads), of_gate, activation, {.num_threads = num_threads});
  std::transform(x.data, x.data + factors.size(), factors.data(), y,
                 [](T a, float b) { return static_cast<To>(static_cast<float>(a) * b); });
}

/// y = the gated norm of x, in heads or groups of head_dim numbers, or of whole rows if that is 0.
template <class T>
void normalise_gated(const Operation& o, const View<T, 2>& x, const View<T, 2>& gate, const View<T, 2>& y,
                     const View<const float, 1>& weight, std::vector<float>& memory, int num_threads) {
  const Index all = x.shape[1], width = o.head_dim > 0 ? o.head_dim : all;
  if (!o.gate_first) {
    const std::array<Index, 2> heads{width > 0 ? x.shape[0] * all / width : 0, width};
    rms_norm(View<T, 2>(x.data, heads), View<T, 2>(y.data, heads), {o.eps, weight, {}, {}, num_threads});
    return multiply_by_gate(o.activation, y, gate, y.data, memory, num_threads);
  }
  const View<float, 2> rows = room_for(x, memory);
  multiply_by_gate(o.activation, x, gate, rows.data, memory, num_threads);
  for (Index first = 0; first < all; first += width) {
    const View<float, 2> group = rows.slice(1, first, first + width);
    rms_norm(group, group, {o.eps, weight ? weight.slice(0, first, first + width) : weight, {}, {}, num_threads});
  }
  if constexpr (std::is_same_v<T, float>) std::copy_n(rows.data, memory.size(), y.data);
  else convert(rows, y, {num_threads});
}

/// Sequences of a run, and how they are computed.
template <class T>
struct Sequences {
  Index first;         ///< of these in the state
  const Array* state;  ///< null if there is none
  int num_threads;
};

/// y = activation(the convolution of x + bias). The state has the last inputs, as many as the
/// weight has columns: the oldest is not read, but kept, as the code of a model does.
template <class T>
void convolve(const Operation& o, const View<T, 3>& x, const View<T, 3>& y, const View<const float, 2>& weight,
              const View<const float, 1>& bias, const Sequences<T>& of) {
  CausalConvolutionOptions options{.bias = bias, .activation = o.activation, .num_threads = of.num_threads};
  if (of.state == nullptr) return causal_convolution(View<const T, 3>(x), weight, y, options);
  const Index batch = x.shape[0], length = x.shape[1], channels = x.shape[2], width = weight.shape[1];
  const View<T, 3> state = view_of<T, 3>(*of.state).slice(0, of.first, of.first + batch);
  for (Index b = 0; b < batch; ++b)
    for (Index c = 0; c < channels; ++c)
      state(b, c, 0) = length < width ? state(b, c, length) : x(b, length - width, c);
  const View<T, 3> read = state.slice(2, 1, width);
  if constexpr (std::is_same_v<T, float>) {
    options.state = read;
    causal_convolution(View<const T, 3>(x), weight, y, options);
  } else {
    std::vector<float> wide;
    options.state = widened(read, wide, of.num_threads);
    causal_convolution(View<const T, 3>(x), weight, y, options);
    convert(options.state, read, {of.num_threads});
  }
}

/// The values that linear attention reads: [batch, length, width]. beta: of the delta rule.
template <class T>
struct Attended {
  View<T, 3> queries, keys, values, decay, beta;
};

/// The vectors that it reads. skip: of Mamba-2.
struct GateVectors {
  const Array &a_log, &dt_bias;
  View<const float, 1> skip;
};

/// The states of some sequences, [batch, heads, key_dim, value_dim]. Mamba-2's models have the
/// last two axes exchanged.
template <class T>
View<float, 4> states_of(const Operation& o, const Sequences<T>& of, Index batch) {
  View<float, 4> states = view_of<float, 4>(*of.state).slice(0, of.first, of.first + batch);
  if (o.kind == Operation::Kind::scan) {
    std::swap(states.shape[2], states.shape[3]);
    std::swap(states.strides[2], states.strides[3]);
  }
  return states;
}

/// out = linear attention, whose decays are those of a gate.
template <class T>
void attend_linearly(const Operation& o, const Attended<T>& x, const View<T, 3>& out, const GateVectors& vectors,
                     const Sequences<T>& of) {
  const auto [batch, length, width] = x.decay.shape;
  std::vector<float> wide_decay, wide_beta;
  const float* decay = widened(x.decay, wide_decay, of.num_threads).data;
  LinearAttentionOptions options{.num_threads = of.num_threads};
  if (width == o.heads)
    options.log_decay = View<const float, 3>(decay, {batch, o.heads, length}, {length * width, 1, width});
  else
    options.log_decay =
        View<const float, 4>(decay, {batch, o.heads, length, o.head_dim}, {length * width, o.head_dim, width, 1});
  if (o.kind == Operation::Kind::scan) {
    options.discretize = true;
    options.min_step = o.min_step;
    options.max_step = o.max_step;
    options.skip = vectors.skip;
    options.scale = 1.0f;
  } else {
    options.normalize = true;
    options.eps = o.eps;
    options.beta = {
        widened(x.beta, wide_beta, of.num_threads).data, {batch, o.heads, length}, {length * o.heads, 1, o.heads}};
  }
  options.a_log = view_of<const float, 1>(vectors.a_log);
  const View<const float, 1> bias = view_of<const float, 1>(vectors.dt_bias);
  if (bias.shape[0] == o.heads) options.dt_bias = bias;
  else
    options.dt_bias =
        View<const float, 2>(bias.data, {o.heads, o.head_dim}, {o.head_dim * bias.strides[0], bias.strides[0]});
  if (of.state != nullptr) options.state = states_of(o, of, batch);
  linear_attention(View<const T, 4>(heads_of(x.queries, o.columns[0], o.kv_heads, o.head_dim)),
                   View<const T, 4>(heads_of(x.keys, o.columns[1], o.kv_heads, o.head_dim)),
                   View<const T, 4>(heads_of(x.values, o.columns[2], o.heads, o.value_dim)),
                   heads_of(out, 0, o.heads, o.value_dim), options);
}

}  // namespace headlane::python
