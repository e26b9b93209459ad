// Linear attention and causal convolutions among operations on rows, and the states that a cache of
// transformers has for them.
#pragma once

#include "core/views.hpp"
#include "rows/operation.hpp"

#include <headlane/activation.hpp>
#include <headlane/causal_convolution.hpp>
#include <headlane/convert.hpp>
#include <headlane/linear_attention.hpp>

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

/// y = y · activation(gate), rounded to the type once.
template <class T>
void multiply_by_gate(Activation activation, const View<T, 2>& gate, const View<T, 2>& y, std::vector<float>& memory,
                      int num_threads) {
  const View<float, 2> factors = room_for(gate, memory);
  activate(widened(gate, memory, num_threads), factors, activation, {.num_threads = num_threads});
  std::transform(y.data, y.data + memory.size(), memory.data(), y.data,
                 [](T a, float b) { return static_cast<T>(static_cast<float>(a) * b); });
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

/// The values that linear attention reads: [batch, length, width].
template <class T>
struct Attended {
  View<T, 3> queries, keys, values, decay, beta;
};

/// out = linear attention, whose decays are those of a gate.
template <class T>
void attend_linearly(const Operation& o, const Attended<T>& x, const View<T, 3>& out, const Array& a_log,
                     const Array& dt_bias, const Sequences<T>& of) {
  const auto [batch, length, width] = x.decay.shape;
  std::vector<float> wide_decay, wide_beta;
  const float* decay = widened(x.decay, wide_decay, of.num_threads).data;
  LinearAttentionOptions options{.normalize = true, .eps = o.eps, .num_threads = of.num_threads};
  if (width == o.heads)
    options.log_decay = View<const float, 3>(decay, {batch, o.heads, length}, {length * width, 1, width});
  else
    options.log_decay =
        View<const float, 4>(decay, {batch, o.heads, length, o.head_dim}, {length * width, o.head_dim, width, 1});
  options.beta = {
      widened(x.beta, wide_beta, of.num_threads).data, {batch, o.heads, length}, {length * o.heads, 1, o.heads}};
  options.a_log = view_of<const float, 1>(a_log);
  const View<const float, 1> bias = view_of<const float, 1>(dt_bias);
  if (bias.shape[0] == o.heads) options.dt_bias = bias;
  else
    options.dt_bias =
        View<const float, 2>(bias.data, {o.heads, o.head_dim}, {o.head_dim * bias.strides[0], bias.strides[0]});
  if (of.state != nullptr) options.state = view_of<float, 4>(*of.state).slice(0, of.first, of.first + batch);
  linear_attention(View<const T, 4>(heads_of(x.queries, o.columns[0], o.kv_heads, o.head_dim)),
                   View<const T, 4>(heads_of(x.keys, o.columns[1], o.kv_heads, o.head_dim)),
                   View<const T, 4>(heads_of(x.values, o.columns[2], o.heads, o.value_dim)),
                   heads_of(out, 0, o.heads, o.value_dim), options);
}

}  // namespace headlane::python
