// The layers whose weights may be stored in any type, each constructed and run in the same way.
#pragma once

#include "support/layer_case.hpp"

#include <headlane/layers.hpp>

namespace headlane::test {

/// The output of f(x, y) as a new tensor.
template <class F>
Tensor<3> output(const Tensor<3>& x, Index width, const F& f) {
  Tensor<3> y({x.view.shape[0], x.view.shape[1], width});
  f(x.view, y.view);
  return y;
}

/// Calls compare(name, width of the output, make, forward) for each layer: make(state, options)
/// constructs it, forward(layer, x, y) runs it.
template <class Compare>
void for_each_stored_layer(const LayerSizes& s, const View<const float, 3>& memory, const Compare& compare) {
  using Options = TransformerLayerOptions;
  const auto forward = [](const auto& layer, auto in, auto out) { layer.forward(in, out); };
  compare(
      "DecoderLayer", s.d_model, [](const StateDict& d, const Options& o) { return DecoderLayer(d, "", o); },
      [&](const DecoderLayer& layer, auto in, auto out) { layer.forward(in, memory, out); });
  compare(
      "EncoderLayer", s.d_model, [](const StateDict& d, const Options& o) { return EncoderLayer(d, "", o); }, forward);
  compare(
      "FeedForward", s.d_model,
      [](const StateDict& d, const Options& o) { return FeedForward(d, "", {.weights = o.weights}); }, forward);
  compare(
      "Linear", s.d_ff, [](const StateDict& d, const Options& o) { return Linear(d, "linear1.", o.weights); }, forward);
  compare(
      "Embedding::logits", s.d_ff,
      [](const StateDict& d, const Options& o) {
        return Embedding(d, "linear1.", {.tied = true, .weights = o.weights});
      },
      [](const Embedding& layer, auto in, auto out) { layer.logits(in, out); });
}

}  // namespace headlane::test
