// Attention over parts of the keys, and the bound of merge() for the combined result.
#pragma once

#include "support/cache_case.hpp"
#include "support/illegal.hpp"
#include "support/tolerance.hpp"

#include <headlane/merge.hpp>

#include <deque>

namespace headlane::test {

/// Removes options that parts cannot have: mask_bits that are not divided at whole bytes, and, with
/// sinks, query_lengths, since merge() does not know padding.
inline AttentionOptions keys_may_be_cut(AttentionOptions o, const std::vector<Index>& cuts) {
  for (const Index cut : cuts)
    if (cut % 8 != 0 && cut != cuts.back()) o.mask_bits = {};
  if (o.sinks.data != nullptr) o.query_lengths = {};
  return o;
}

/// The options of attention over the keys begin … end-1 alone, without those that belong to the
/// result over all keys. `numbers` keeps what they refer to.
inline AttentionOptions part_options(const AttentionOptions& options, Index begin, Index end,
                                     std::deque<std::vector<Index>>& numbers) {
  AttentionOptions o = of_keys(options, begin, end);
  o.sinks = {};
  for (auto* given : {&o.key_lengths, &o.causal_offsets}) {
    if (given->data == nullptr) continue;
    std::vector<Index>& own = numbers.emplace_back();
    for (Index b = 0; b < given->size(0); ++b)
      own.push_back(given == &o.key_lengths ? std::clamp<Index>((*given)(b)-begin, 0, end - begin) : (*given)(b)-begin);
    *given = {own.data(), {given->size(0)}};
  }
  return o;
}

/// Attention over the keys cuts[n] … cuts[n+1]-1 of `t`, for each n.
struct Parts {
  Parts(const AttentionTensors& t, const AttentionOptions& options, const std::vector<Index>& cuts,
        const std::vector<bool>& with_sum, const Layout& layout) {
    for (std::size_t n = 0; n + 1 < cuts.size(); ++n) {
      const Index begin = cuts[n], end = cuts[n + 1];
      AttentionOptions o = part_options(options, begin, end, numbers);
      const Tensor<4>& out = outs.emplace_back(t.out.view.shape, layout);
      const Tensor<3>& lse = values.emplace_back(t.lse.view.shape, layout);
      AttentionPart& part = parts.emplace_back(AttentionPart{out.view, lse.view});
      o.lse = lse.view;
      if (with_sum[n]) {
        o.sum = values.emplace_back(t.lse.view.shape, layout).view;
        part.sum = o.sum;
      }
      attention(t.q.view, t.k.view.slice(2, begin, end), t.v.view.slice(2, begin, end), out.view, o);
    }
  }

  /// The largest log-sum-exp of the parts without `sum`.
  [[nodiscard]] double largest_lse(Index b, Index h, Index i) const {
    double largest = 0;
    for (const AttentionPart& part : parts)
      if (part.sum.data == nullptr && std::isfinite(part.lse(b, h, i)))
        largest = std::max(largest, std::abs(double{part.lse(b, h, i)}));
    return largest;
  }

  std::vector<AttentionPart> parts;
  std::deque<Tensor<4>> outs;
  std::deque<Tensor<3>> values;
  std::deque<std::vector<Index>> numbers;
};

/// Compares `out` and the log-sum-exp in `t` with the oracle over all keys.
inline void compare_merged(const AttentionTensors& t, const View<float, 4>& out, const AttentionOptions& options,
                           const Parts& all, const std::string& text, std::uint64_t seed) {
  const Index head_dim = t.q.view.size(3), keys = t.k.view.size(2), group = t.q.view.size(1) / t.k.view.size(1);
  Comparison of_out("merge", text, seed), of_lse("merge lse", text, seed, Comparison::Kind::special);
  const double parts = 4 * static_cast<double>(all.parts.size());
  bool all_empty = true;
  for_each_position(t.lse.view.shape, [&](const auto& p) {
    const RowReference row = row_reference(t.q.view, t.k.view, options, p[0], p[1], p[2]);
    const AttentionBounds bounds = attention_bounds(row, head_dim, keys, options);
    const double lse = all.largest_lse(p[0], p[1], p[2]);
    // An error of a part's log-sum-exp is an error of its weight and of the sum of all weights.
    const double of_part = lse == 0 ? 0 : bounds.lse + lse * unit;
    const double relative = bounds.relative + 2 * of_part + 2 * (lse + parts) * unit;
    for (Index d = 0; d < out.size(3); ++d) {
      double exact = 0, weighted = 0, largest = 0;
      for (Index j = 0; j < keys; ++j) {
        const double v = t.v.view(p[0], p[1] / group, j, d), weight = row.weights[static_cast<std::size_t>(j)];
        exact += weight * v;
        weighted += weight * std::abs(v);
        largest = std::max(largest, std::abs(v));
      }
      all_empty = all_empty && exact == 0;
      const double underflow = static_cast<double>(keys) * 0x1p-126 * largest;
      of_out.add({p[0], p[1], p[2], d}, out(p[0], p[1], p[2], d), exact, relative * weighted + underflow);
    }
    of_lse.add({p[0], p[1], p[2]}, t.lse.view(p[0], p[1], p[2]), row.lse,
               bounds.lse + of_part + (lse + parts + 8) * unit);
  });
  if (all_empty) of_out.set_kind(Comparison::Kind::special);
  of_out.finish();
  of_lse.finish();
}

}  // namespace headlane::test
