// TransformerLayerOptions: the options of EncoderLayer and DecoderLayer.
#pragma once

#include <headlane/activation_kind.hpp>
#include <headlane/dtype.hpp>
#include <headlane/multi_head_attention.hpp>
#include <headlane/normalization.hpp>
#include <headlane/team.hpp>

namespace headlane {

struct TransformerLayerOptions {
  MultiHeadAttentionOptions attention = {};
  Activation activation = Activation::relu;
  NormKind norm = NormKind::layer;
  /// Pre-norm, x + f(norm(x)), as in most models since GPT-2; otherwise post-norm, norm(x +
  /// f(x)), as in Vaswani et al. 2017 and BERT.
  bool norm_first = false;
  float eps = 1e-5f;  ///< of the norms
  /// How all weights of the layer are stored, and the activations of all its products (Linear);
  /// they replace those of `attention`.
  DType weights = DType::float32, activations = DType::float32;
  /// Of all sublayers (layers.hpp), not owned; replaces that of `attention`.
  Team* team = nullptr;
};

}  // namespace headlane
