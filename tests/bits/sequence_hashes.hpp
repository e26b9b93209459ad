// Hashes of position embeddings, linear attention and causal convolution (hash_cases.hpp).
#pragma once

#include "support/convolution_case.hpp"
#include "support/hash.hpp"
#include "support/linear_attention_case.hpp"

#include <headlane/position.hpp>

#include <array>

namespace headlane::test {

inline std::uint64_t rotary_hash(const std::array<Index, 4>& shape, const RotaryOptions& options) {
  Random random(12);
  const Tensor<4> x = random_tensor<4>(shape, random);
  rotary_embedding(x.view, x.view, options);
  Hash hash;
  hash.add(x.view);
  return hash.value();
}

inline std::uint64_t sinusoidal_hash(Index length, Index d_model, const SinusoidalOptions& options) {
  const Tensor<2> y({length, d_model});
  sinusoidal_encoding(y.view, options);
  Hash hash;
  hash.add(y.view);
  return hash.value();
}

inline std::uint64_t slopes_hash() {
  Hash hash;
  for (Index heads = 1; heads < 100; ++heads) {
    const Tensor<1> slopes({heads});
    alibi_slopes(slopes.view);
    hash.add(slopes.view);
  }
  return hash.value();
}

/// With these options, on several heads of several blocks of tokens and columns.
inline std::uint64_t linear_hash(LinearCase c) {
  c.batch = 2, c.key_heads = 2, c.heads = 4, c.length = 70, c.key_dim = 33, c.value_dim = 40, c.seed = 15;
  const LinearTensors t(c);
  t.call().run();
  Hash hash;
  hash.add(t.out.view);
  hash.add(t.state.view);
  return hash.value();
}

/// With a bias and a state.
inline std::uint64_t convolution_hash(Index width, Activation activation) {
  const ConvolutionTensors t({.batch = 2,
                              .length = 70,
                              .channels = 300,
                              .width = width,
                              .bias = true,
                              .state = true,
                              .activation = activation,
                              .seed = 16});
  t.call().run();
  Hash hash;
  hash.add(t.y.view);
  hash.add(t.state.view);
  return hash.value();
}

}  // namespace headlane::test
