// A sublayer of a transformer layer: residual connection and norm around attention or feed-forward.
#pragma once

#include "core/check.hpp"
#include "core/scratch.hpp"
#include "layers/attention_layer.hpp"
#include "layers/description.hpp"
#include "layers/rows.hpp"

#include <headlane/feed_forward.hpp>
#include <headlane/normalization.hpp>
#include <headlane/transformer_layer_options.hpp>
#include <headlane/view.hpp>

namespace headlane::internal {

/// y = f(norm(x)) + x (pre-norm) or norm(f(x) + x) (post-norm). f(input, output, residual) computes
/// output = sublayer(input) + residual. y may be x itself only in post-norm.
template <class F>
void sublayer(const Normalization& norm, bool norm_first, const View<const float, 3>& x, const View<float, 3>& y,
              int num_threads, const F& f) {
  const View<float, 3> normed = scratch_rows(Purpose::normed, x.shape[0], x.shape[1], x.shape[2]);
  if (norm_first) {
    norm.forward(x, normed, num_threads);
    f(normed, y, x);
  } else {
    f(x, normed, x);
    norm.forward(normed, y, num_threads);
  }
}

/// The options of a layer's attention.
inline MultiHeadAttentionOptions attention_options(const TransformerLayerOptions& options) {
  MultiHeadAttentionOptions result = options.attention;
  result.weights = options.weights;
  result.activations = options.activations;
  result.team = options.team;
  return result;
}

inline FeedForwardOptions feed_forward_options(const TransformerLayerOptions& options) {
  return {.activation = options.activation,
          .weights = options.weights,
          .activations = options.activations,
          .team = options.team};
}

/// What the ranks of a team compare of the options.
inline void describe(Description& text, const TransformerLayerOptions& options) {
  describe(text, attention_options(options));
  text.add("activation", static_cast<Index>(options.activation)).add("norm", static_cast<Index>(options.norm));
  text.add("norm_first", options.norm_first).add("eps", options.eps);
}

/// The parts of a layer agree on d_model.
template <class... Norms>
void check_widths(const char* layer, Index d_model, const MultiHeadAttention& attention, const Norms&... norms) {
  require(attention.d_model() == d_model && x_width(attention) == d_model, layer, ": self_attn takes rows of ",
          x_width(attention), " and returns rows of ", attention.d_model(), ", linear1 takes rows of ", d_model);
  (require(norms.size() == d_model, layer, ": a norm has ", norms.size(), " weights, d_model is ", d_model), ...);
}

}  // namespace headlane::internal
