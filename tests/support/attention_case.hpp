// One attention problem: its sizes, inputs drawn from a seed, and outputs.
//
//   AttentionSizes    shapes of q, k and v
//   AttentionCase     sizes, options, seed and layout of a call
//   AttentionTensors  the tensors of a call; run() computes it
#pragma once

#include "support/data.hpp"

#include <headlane/attention.hpp>

#include <string>
#include <vector>

namespace headlane::test {

/// The sizes of one problem. As many key heads as query heads and values as wide as keys, unless
/// given.
struct AttentionSizes {
  Index batch = 1, q_heads = 1, kv_heads = q_heads, q_length = 1, kv_length = 1, head_dim = 64, value_dim = head_dim;
};

/// Each option as text, in the order of for_each_option: its name, and its value or elements if
/// they are few.
std::vector<std::string> option_texts(const AttentionOptions& options);

/// The sizes, and the options that are not their defaults.
std::string text_of(const AttentionSizes& s, const AttentionOptions& options);

inline AttentionOptions causal(Index offset) {
  AttentionOptions options;
  options.causal = true;
  options.causal_offset = offset;
  return options;
}

inline AttentionOptions scaled(float scale) {
  AttentionOptions options;
  options.scale = scale;
  return options;
}

struct AttentionCase {
  AttentionSizes sizes = {};
  AttentionOptions options = {};
  std::uint64_t seed = 1;
  Layout layout = {};  ///< of all tensors
};

/// Inputs drawn from a seed, and outputs full of sentinels.
struct AttentionTensors {
  explicit AttentionTensors(const AttentionCase& c) : AttentionTensors(c.sizes, c.seed, c.layout) {}

  AttentionTensors(const AttentionSizes& s, std::uint64_t seed, const Layout& layout = {})
      : AttentionTensors(s, seed, layout, layout, layout, layout) {}

  AttentionTensors(const AttentionSizes& s, std::uint64_t seed, const Layout& layout_q, const Layout& layout_k,
                   const Layout& layout_v, const Layout& layout_out)
      : q({s.batch, s.q_heads, s.q_length, s.head_dim}, layout_q),
        k({s.batch, s.kv_heads, s.kv_length, s.head_dim}, layout_k),
        v({s.batch, s.kv_heads, s.kv_length, s.value_dim}, layout_v),
        out({s.batch, s.q_heads, s.q_length, s.value_dim}, layout_out),
        lse({s.batch, s.q_heads, s.q_length}, layout_out) {
    Random random(seed);
    fill_normal(q.view, random);
    fill_normal(k.view, random);
    fill_normal(v.view, random);
  }

  /// `options` with this lse.
  [[nodiscard]] AttentionOptions with_lse(AttentionOptions options) const {
    options.lse = lse.view;
    return options;
  }

  void run(const AttentionOptions& options = {}) const {
    attention(q.view, k.view, v.view, out.view, with_lse(options));
  }

  Tensor<4> q, k, v, out;
  Tensor<3> lse;
};

}  // namespace headlane::test
