// Comparison of attention's outputs with the oracle: each element within the bound of the header.
#pragma once

#include "support/attention_case.hpp"
#include "support/tolerance.hpp"

namespace headlane::test {

inline void compare_with_oracle(const AttentionTensors& t, const AttentionOptions& options, const std::string& text,
                                std::uint64_t seed) {
  const Index head_dim = t.q.view.size(3);
  Index kv_length = options.key_starts.data == nullptr ? t.k.view.size(2) : 0;
  for (Index i = 0; options.key_starts.data != nullptr && i + 1 < options.key_starts.size(0); ++i)
    kv_length = std::max(kv_length, options.key_starts(i + 1) - options.key_starts(i));
  const AttentionReference expected = attention_reference(t.q.view, t.k.view, t.v.view, options);
  Comparison out("attention", text, seed), lse("attention lse", text, seed, Comparison::Kind::special);
  double largest_value = 0;
  for_each(t.v.view, [&](float x) { largest_value = std::max(largest_value, std::abs(double{x})); });
  const double underflow = static_cast<double>(kv_length) * 0x1p-126 * largest_value + smallest;
  double& worst = worst_errors_of_attention()[static_cast<int>(std::to_string(kv_length).size())];
  std::size_t next = 0, at = 0;
  Index strays = 0;
  bool all_empty = true;
  for_each_position(t.lse.view.shape, [&](const auto& p) {
    const RowReference& row = expected.rows[next++];
    if (!row.exists) {
      strays += is_sentinel(t.lse.view(p[0], p[1], p[2])) ? 0 : 1;
      for (Index d = 0; d < t.out.view.size(3); ++d, ++at)
        strays += is_sentinel(t.out.view(p[0], p[1], p[2], d)) ? 0 : 1;
      return;
    }
    const AttentionBounds bounds = attention_bounds(row, head_dim, kv_length, options);
    for (Index d = 0; d < t.out.view.size(3); ++d, ++at) {
      all_empty = all_empty && expected.out[at] == 0;
      const double bound = bounds.relative * expected.weighted[at] + (std::isinf(row.lse) ? 0 : underflow);
      const float actual = t.out.view(p[0], p[1], p[2], d);
      out.add({p[0], p[1], p[2], d}, actual, expected.out[at], bound);
      const double error = std::abs(double{actual} - expected.out[at]);
      if (expected.weighted[at] > 1e-30 && error <= bound)
        worst = std::max(worst, error / (2 * unit * expected.weighted[at]));
    }
    lse.add({p[0], p[1], p[2]}, t.lse.view(p[0], p[1], p[2]), row.lse, bounds.lse);
  });
  CHECK_MESSAGE(strays == 0, "attention ", text, ", isa ", isa(), ", seed ", seed, ": ", strays,
                " elements of rows of no sequence were written");
  if (lse.count() == 0) return;
  if (all_empty) out.set_kind(Comparison::Kind::special);
  out.finish();
  lse.finish();
}

/// Computes the case and compares it with the oracle: nothing but the outputs is written.
inline AttentionTensors check_attention(const AttentionCase& c) {
  AttentionTensors t(c);
  const std::string text = text_of(c.sizes, c.options) + ", layout " + c.layout.name;
  t.run(c.options);
  compare_with_oracle(t, c.options, text, c.seed);
  CHECK_MESSAGE(t.out.surroundings_untouched(), text);
  CHECK_MESSAGE(t.lse.surroundings_untouched(), text);
  return t;
}

}  // namespace headlane::test
