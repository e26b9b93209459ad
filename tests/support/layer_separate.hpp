// Layers as separate calls of the public functions, with each intermediate result in memory of its
// own: layers must be bit-identical to them.
#pragma once

#include "support/layer_case.hpp"
#include "support/layer_reference.hpp"

#include <headlane/headlane.hpp>

namespace headlane::test::separate {

using layer_oracle::matrix;

/// A contiguous tensor as a matrix.
inline View<float, 2> rows_of(const Tensor<3>& x) {
  return {x.view.data, {x.view.shape[0] * x.view.shape[1], x.view.shape[2]}};
}

inline Tensor<3> dense(const View<const float, 3>& x) {
  Tensor<3> result(x.shape);
  copy<3>(x, result.view);
  return result;
}

/// Elements first … end-1 of a bias, contiguous; null if there is no bias.
class Bias {
 public:
  Bias(const StateDict& state, const std::string& name, Index first, Index end) : there_(state.contains(name)) {
    for (const double b : layer_oracle::vector(state, name, first, end)) values_.push_back(static_cast<float>(b));
  }
  [[nodiscard]] View<const float, 1> view() const {
    return {there_ ? values_.data() : nullptr, {static_cast<Index>(values_.size())}};
  }

 private:
  bool there_;
  std::vector<float> values_;
};

inline Tensor<3> product(const Tensor<3>& x, const View<const float, 2>& weight, const Bias& bias,
                         Activation activation = Activation::none, const Tensor<3>* residual = nullptr) {
  Tensor<3> y({x.view.shape[0], x.view.shape[1], weight.shape[0]});
  GemmOptions options{.bias = bias.view(), .activation = activation};
  if (residual != nullptr) options.residual = rows_of(*residual);
  gemm(rows_of(x), weight.transposed(), rows_of(y), options);
  return y;
}

inline Tensor<3> linear(const Tensor<3>& x, const StateDict& state, const std::string& prefix,
                        Activation activation = Activation::none, const Tensor<3>* residual = nullptr) {
  const View<const float, 2> weight = matrix(state, prefix + "weight");
  return product(x, weight, {state, prefix + "bias", 0, weight.shape[0]}, activation, residual);
}

inline Tensor<3> norm(const Tensor<3>& x, const StateDict& state, const std::string& prefix, NormKind kind, float eps) {
  Tensor<3> y(x.view.shape);
  const Bias weight(state, prefix + "weight", 0, x.view.shape[2]), bias(state, prefix + "bias", 0, x.view.shape[2]);
  if (kind == NormKind::layer) layer_norm(x.view, y.view, {.eps = eps, .weight = weight.view(), .bias = bias.view()});
  else rms_norm(x.view, y.view, {.eps = eps, .weight = weight.view()});
  return y;
}

inline Tensor<3> multi_head(const Tensor<3>& x, const Tensor<3>& memory, const StateDict& state,
                            const std::string& prefix, const LayerSizes& s, const AttentionOptions& options,
                            const Tensor<3>* residual = nullptr) {
  const Index q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  const auto part = [&](const Tensor<3>& from, const char* name, Index first, Index end) {
    const bool one = state.contains(prefix + "in_proj_weight");
    const View<const float, 2> all = matrix(state, prefix + (one ? "in_proj_weight" : name));
    return product(from, one ? all.slice(0, first, end) : all, {state, prefix + "in_proj_bias", first, end});
  };
  const Tensor<3> of_q = part(x, "q_proj_weight", 0, q), k = part(memory, "k_proj_weight", q, q + kv),
                  v = part(memory, "v_proj_weight", q + kv, q + 2 * kv), heads(of_q.view.shape);
  // Rows of no sequence count as padding: 0.
  for_each(heads.view, [](float& e) { e = 0; });
  multi_head_attention(of_q.view, k.view, v.view, heads.view, s.heads, options);
  return linear(heads, state, prefix + "out_proj.", Activation::none, residual);
}

inline Tensor<3> feed_forward(const Tensor<3>& x, const StateDict& state, Activation activation,
                              const Tensor<3>* residual = nullptr) {
  if (!state.contains("linear_gate.weight"))
    return linear(linear(x, state, "linear1.", activation), state, "linear2.", Activation::none, residual);
  const Tensor<3> gate = linear(x, state, "linear_gate.", activation), up = linear(x, state, "linear1.");
  for_each_position(up.view.shape, [&](const auto& at) {
    const Index i = offset_of(at, up.view.strides);
    up.view.data[i] *= gate.view.data[i];
  });
  return linear(up, state, "linear2.", Activation::none, residual);
}

/// f(input, residual).
template <class F>
Tensor<3> sublayer(const Tensor<3>& x, const StateDict& state, const std::string& of_norm,
                   const TransformerLayerOptions& o, const F& f) {
  if (o.norm_first) return f(norm(x, state, of_norm, o.norm, o.eps), x);
  return norm(f(x, x), state, of_norm, o.norm, o.eps);
}

inline Tensor<3> encoder(const Tensor<3>& x, const StateDict& state, const LayerSizes& s,
                         const AttentionOptions& options) {
  const Tensor<3> sum = sublayer(x, state, "norm1.", s.layer, [&](const Tensor<3>& in, const Tensor<3>& residual) {
    return multi_head(in, in, state, "self_attn.", s, options, &residual);
  });
  return sublayer(sum, state, "norm2.", s.layer, [&](const Tensor<3>& in, const Tensor<3>& residual) {
    return feed_forward(in, state, s.layer.activation, &residual);
  });
}

inline Tensor<3> decoder(const Tensor<3>& x, const Tensor<3>& memory, const StateDict& state, const LayerSizes& s,
                         const AttentionOptions& self, const AttentionOptions& cross) {
  const Tensor<3> first = sublayer(x, state, "norm1.", s.layer, [&](const Tensor<3>& in, const Tensor<3>& residual) {
    return multi_head(in, in, state, "self_attn.", s, self, &residual);
  });
  const Tensor<3> second =
      sublayer(first, state, "norm2.", s.layer, [&](const Tensor<3>& in, const Tensor<3>& residual) {
        return multi_head(in, memory, state, "multihead_attn.", s, cross, &residual);
      });
  return sublayer(second, state, "norm3.", s.layer, [&](const Tensor<3>& in, const Tensor<3>& residual) {
    return feed_forward(in, state, s.layer.activation, &residual);
  });
}

}  // namespace headlane::test::separate
