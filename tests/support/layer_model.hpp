// Whole layers in double (layer_reference.hpp), masking options of attention, and the comparison
// with computed results.
#pragma once

#include "support/layer_case.hpp"
#include "support/layer_reference.hpp"

#include <memory>

namespace headlane::test {

namespace layer_oracle {

/// Vaswani et al. 2017, section 3.2.2: heads of projections of x and of memory, side by side,
/// projected again.
inline Bounded multi_head(const Bounded& x, const Bounded& memory, const StateDict& state, const std::string& prefix,
                          const LayerSizes& s, const IsVisible& visible) {
  const Index q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  const std::string weight = prefix + "in_proj_weight", bias = prefix + "in_proj_bias";
  const auto part = [&](const Bounded& from, const char* name, Index first, Index end) {
    const bool one = state.contains(weight);
    const View<const float, 2> all = matrix(state, one ? weight : prefix + name);
    return linear(from, one ? all.slice(0, first, end) : all, vector(state, bias, first, end), state.contains(bias));
  };
  const Bounded heads = attention(part(x, "q_proj_weight", 0, q), part(memory, "k_proj_weight", q, q + kv),
                                  part(memory, "v_proj_weight", q + kv, q + 2 * kv), s.heads, s.kv_heads, visible);
  return linear(heads, state, prefix + "out_proj.weight", prefix + "out_proj.bias");
}

/// Section 3.3; gated: Shazeer 2020.
inline Bounded feed_forward(const Bounded& x, const StateDict& state, const std::string& prefix, Activation kind) {
  const auto of = [&](const Bounded& from, const std::string& name) {
    return linear(from, state, prefix + name + ".weight", prefix + name + ".bias");
  };
  Bounded hidden = of(x, "linear1");
  if (state.contains(prefix + "linear_gate.weight")) {
    Bounded gate = of(x, "linear_gate");
    activate(gate, kind);
    for (std::size_t i = 0; i < hidden.value.size(); ++i) {
      const double a = hidden.value[i], b = gate.value[i];
      hidden.error[i] = std::abs(a) * gate.error[i] + std::abs(b) * hidden.error[i] + hidden.error[i] * gate.error[i];
      hidden.value[i] = a * b;
      hidden.round(i);
    }
  } else {
    activate(hidden, kind);
  }
  return of(hidden, "linear2");
}

/// norm(x + f(x)), section 3.1; or x + f(norm(x)) (Xiong et al. 2020).
template <class F>
Bounded sublayer(const Bounded& x, const StateDict& state, const std::string& of_norm,
                 const TransformerLayerOptions& options, const F& f) {
  const auto normed = [&](const Bounded& y) { return norm(y, state, of_norm, options.norm, options.eps); };
  return options.norm_first ? add(f(normed(x)), x) : normed(add(f(x), x));
}

inline Bounded encoder(const Bounded& x, const StateDict& state, const std::string& prefix, const LayerSizes& s,
                       const IsVisible& visible) {
  const Bounded sum = sublayer(x, state, prefix + "norm1.", s.layer, [&](const Bounded& in) {
    return multi_head(in, in, state, prefix + "self_attn.", s, visible);
  });
  return sublayer(sum, state, prefix + "norm2.", s.layer,
                  [&](const Bounded& in) { return feed_forward(in, state, prefix, s.layer.activation); });
}

inline Bounded decoder(const Bounded& x, const Bounded& memory, const StateDict& state, const std::string& prefix,
                       const LayerSizes& s, const IsVisible& self, const IsVisible& cross) {
  const Bounded first = sublayer(x, state, prefix + "norm1.", s.layer, [&](const Bounded& in) {
    return multi_head(in, in, state, prefix + "self_attn.", s, self);
  });
  const Bounded second = sublayer(first, state, prefix + "norm2.", s.layer, [&](const Bounded& in) {
    return multi_head(in, memory, state, prefix + "multihead_attn.", s, cross);
  });
  return sublayer(second, state, prefix + "norm3.", s.layer,
                  [&](const Bounded& in) { return feed_forward(in, state, prefix, s.layer.activation); });
}

}  // namespace layer_oracle

enum class Masking { nothing, causal, lengths, mask, window, varlen, count };

/// Options of attention, and the keys that they leave visible to each query. Not movable: views
/// point into it.
struct MaskingCase {
  AttentionOptions options;
  IsVisible visible;
  std::vector<Index> key_lengths, query_lengths, query_starts, key_starts;
  std::unique_ptr<bool[]> bools;

  MaskingCase(Masking masking, Index batch, Index queries, Index keys, Random& random) {
    const auto at = [](Index i) { return static_cast<std::size_t>(i); };
    const auto view = [](const std::vector<Index>& v) {
      return View<const Index, 1>(v.data(), {static_cast<Index>(v.size())});
    };
    const Index offset = random.integer(0, keys);
    switch (masking) {
      case Masking::causal:
        options.causal = true;
        options.causal_offset = offset;
        visible = [=](Index, Index i, Index j) { return j <= i + offset; };
        break;
      case Masking::lengths:
        for (Index b = 0; b < batch; ++b) key_lengths.push_back(random.integer(0, keys));
        for (Index b = 0; b < batch; ++b) query_lengths.push_back(random.integer(0, queries));
        options.key_lengths = view(key_lengths);
        options.query_lengths = view(query_lengths);
        visible = [=, this](Index b, Index i, Index j) { return i < query_lengths[at(b)] && j < key_lengths[at(b)]; };
        break;
      case Masking::mask: {
        bools = std::make_unique<bool[]>(at(batch * queries * keys));
        for (Index i = 0; i < batch * queries * keys; ++i) bools[at(i)] = random.integer(0, 3) > 0;
        const View<const bool, 4> mask(bools.get(), {batch, 1, queries, keys}, {queries * keys, 0, keys, 1});
        options.mask = mask;  // as many heads as there are: with_heads()
        visible = [=](Index b, Index i, Index j) { return mask(b, 0, i, j); };
        break;
      }
      case Masking::window:
        options.window_left = 3;
        options.window_right = 2;
        visible = [](Index, Index i, Index j) { return j >= i - 3 && j <= i + 2; };
        break;
      case Masking::varlen: {  // of one batch element; the same cuts for queries and keys if there are as many
        const Index a = random.integer(0, queries), c = random.integer(0, keys);
        query_starts = {0, a, a, queries};
        key_starts = queries == keys ? query_starts : std::vector<Index>{0, c, c, keys};
        options.query_starts = view(query_starts);
        options.key_starts = view(key_starts);
        options.causal = queries == keys;
        const Index k = key_starts[1];
        visible = [=, this](Index, Index i, Index j) { return (i < a) == (j < k) && (!options.causal || j <= i); };
        break;
      }
      default:
        visible = [](Index, Index, Index) { return true; };
    }
  }
  MaskingCase(const MaskingCase&) = delete;
  MaskingCase& operator=(const MaskingCase&) = delete;
  ~MaskingCase() = default;

  [[nodiscard]] AttentionOptions with_heads(Index heads) const {
    AttentionOptions all = options;
    all.mask.shape[1] = heads;
    return all;
  }
};

inline void compare_layer(const std::string& layer, const View<float, 3>& y, const Bounded& exact,
                          const std::string& what, std::uint64_t seed) {
  REQUIRE(y.shape == exact.shape);
  Comparison comparison(layer, what + ", y " + text_of(y.shape), seed, Comparison::Kind::special);
  for_each_position(y.shape, [&](const auto& at) {
    const std::size_t i = exact.at(at[0], at[1], at[2]);
    comparison.add({at[0], at[1], at[2]}, y(at[0], at[1], at[2]), exact.value[i], exact.error[i]);
  });
  if (exact.value.empty()) return;
  comparison.finish();
  double largest = 0;
  for (const double value : exact.value) largest = std::max(largest, std::abs(value));
  const double bound = *std::max_element(exact.error.begin(), exact.error.end());
  CHECK_MESSAGE(bound <= 0.05 * largest, layer, ", ", what, ": the bound ", bound, " says little about ", largest);
}

}  // namespace headlane::test
