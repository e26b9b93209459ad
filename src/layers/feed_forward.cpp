// FeedForward: some rows of the hidden layer at a time.
#include "core/call_scope.hpp"
#include "core/round.hpp"
#include "gemm/check.hpp"
#include "layers/calls.hpp"
#include "layers/state_dict_reader.hpp"

#include <headlane/gemm_gated.hpp>

#include <algorithm>

namespace headlane {

using namespace internal;

namespace {

/// Of the hidden layer at a time: 4 MiB, which stay in the L3.
constexpr Index hidden_floats = Index{1} << 20;
/// Rows at a time are a multiple of this, two tiles of 12, so that two threads have whole ones; and at least some.
constexpr Index row_unit = 24, least_rows = 96;

}  // namespace

FeedForward::FeedForward(const StateDict& state, std::string_view prefix, const FeedForwardOptions& options)
    : activation_(options.activation) {
  const Weights weights("FeedForward", state, prefix);
  require(options.activation <= Activation::erf, weights.layer(), ": activation is ",
          static_cast<Index>(options.activation), ", which is none of none … erf");
  const View<const float, 2> first = weights.matrix("linear1.weight", -1, -1);
  const Index d_ff = first.shape[0], d_model = first.shape[1];
  linear1_ = PackedMatrix(first.transposed());
  bias1_ = weights.vector_if_any("linear1.bias", d_ff);
  if (weights.has("linear_gate.weight")) {
    gate_ = PackedMatrix(weights.matrix("linear_gate.weight", d_ff, d_model).transposed());
    gate_bias_ = weights.vector_if_any("linear_gate.bias", d_ff);
    gated_ = true;
  }
  linear2_ = PackedMatrix(weights.matrix("linear2.weight", d_model, d_ff).transposed());
  bias2_ = weights.vector_if_any("linear2.bias", d_model);
}

void FeedForward::forward(View<const float, 3> x, View<float, 3> y, int num_threads) const {
  const CallScope scope;
  check_forward("FeedForward::forward", x, d_model(), y, d_model(), true, num_threads);
  LayerCalls::feed_forward(*this, x, y, {}, num_threads);
}

void LayerCalls::feed_forward(const FeedForward& layer, const View<const float, 3>& x, const View<float, 3>& y,
                              const View<const float, 3>& residual, int num_threads) {
  const Index d_ff = layer.d_ff();
  const Index at_once = std::max(least_rows, hidden_floats / std::max<Index>(d_ff, 1) / row_unit * row_unit);
  for_each_matrix(x, y, residual, [&](const auto& from, const auto& to, const auto& add) {
    for (Index row = 0; row < from.shape[0]; row += at_once) {
      const Index end = std::min(from.shape[0], row + at_once);
      const View<float, 2> hidden(scratch(Purpose::wide, std::max<Index>((end - row) * d_ff, 1)), {end - row, d_ff});
      const View<const float, 2> rows = from.slice(0, row, end);
      if (layer.gated_)
        gemm_gated(rows, layer.gate_, layer.linear1_, hidden,
                   {.activation = layer.activation_,
                    .gate_bias = view_of(layer.gate_bias_),
                    .up_bias = view_of(layer.bias1_),
                    .num_threads = num_threads});
      else
        multiply(rows, layer.linear1_, 0, hidden,
                 {.bias = view_of(layer.bias1_), .activation = layer.activation_, .num_threads = num_threads});
      multiply(
          hidden, layer.linear2_, 0, to.slice(0, row, end),
          {.bias = view_of(layer.bias2_), .residual = add ? add.slice(0, row, end) : add, .num_threads = num_threads});
    }
  });
}

}  // namespace headlane
