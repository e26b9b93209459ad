// attention: NaN and infinity in masked keys and values influence nothing (mask bits, relative
// biases of -inf, other sequences); a NaN in the table of relative biases reaches the rows that use
// it.
#include "support/attention_forms.hpp"

#include <headlane/position.hpp>

#include <cmath>
#include <functional>

namespace headlane::test {
namespace {

constexpr std::uint64_t seed = 31;

// Keys and values that are masked for every row become NaN and infinity. Keys that are visible to
// some row stay: P·V multiplies their values by a probability of 0 for other rows.
void spoil(const FormTensors& t, const Form& form, const std::function<bool(Index, Index)>& is_visible_to_some) {
  if (form.broadcast >= 0) return;
  for_each_position(t.k.view.shape, [&](const auto& p) {
    if (!is_visible_to_some(p[0], p[2])) t.k.view(p[0], p[1], p[2], p[3]) = p[2] % 3 == 0 ? infinity : nan;
  });
  for_each_position(t.v.view.shape, [&](const auto& p) {
    if (!is_visible_to_some(p[0], p[2])) t.v.view(p[0], p[1], p[2], p[3]) = p[2] % 2 == 0 ? -infinity : nan;
  });
}

TEST_CASE("attention: keys masked by mask_bits have no influence") {
  const ExpectComparisons expected(std::ssize(forms()) * 2 * 2);
  for (const Form& form : forms()) {
    const AttentionSizes& s = form.sizes;
    const FormTensors clean(form, s, seed), dirty(form, s, seed);
    const MaskBits bits(bytes_shape(score_shape(s, 6)));
    // Masked for all rows: keys 0, 1, 9, 510 … 520, every fifth, and the last 11.
    const auto is_visible = [&](Index j) {
      return j > 1 && j != 9 && (j < 510 || j > 520) && j < s.kv_length - 11 && j % 5 != 4;
    };
    for_each_position(bits.view.shape, [&](const auto& p) {
      unsigned byte = 0;
      for (Index i = 0; i < 8; ++i) byte |= is_visible(8 * p[3] + i) ? 1u << i : 0u;
      bits.view(p[0], 0, 0, p[3]) = static_cast<std::uint8_t>(byte);
    });
    spoil(dirty, form, [&](Index, Index j) { return is_visible(j); });
    AttentionOptions options;
    options.mask_bits = stretched<const std::uint8_t>(bits.view, bytes_shape(score_shape(s)));
    for (const int threads : {1, 3}) {
      options.num_threads = threads;
      clean.run(options);
      dirty.run(options);
      check_bits(dirty, clean, std::string(form.name) + ", " + text_of(s, options), seed);
    }
  }
}

TEST_CASE("attention: NaN in a key reaches only rows for which mask_bits and the relative bias leave it visible") {
  constexpr Index bad = 30;
  for (const Form& form : forms()) {
    if (form.broadcast >= 0) continue;
    const AttentionSizes& s = form.sizes;
    for (const bool by_table : {false, true}) {
      for (const bool in_keys : {false, true}) {
        const FormTensors clean(form, s, seed), dirty(form, s, seed);
        const Tensor<2> table({s.q_heads, 32});
        MaskBits bits(bytes_shape(score_shape(s)));
        AttentionOptions options;
        options.causal_offset = s.q_length == 1 ? bad + 9 : 0;
        // Every other head of a table, or every third row of the bits, masks the bad key.
        const auto is_masked = [&](Index head, Index row) {
          if (!by_table) return (head + row) % 3 == 0;
          return head % 2 == 0 && t5_bucket(bad - row - options.causal_offset) < 10;
        };
        for_each_position(table.view.shape, [&](const auto& p) {
          table.view(p[0], p[1]) = p[0] % 2 == 0 && p[1] < 10 ? -infinity : 0.5f;
        });
        for_each(bits.view, [](std::uint8_t& byte) { byte = 255; });
        for_each_position(clean.lse.view.shape, [&](const auto& p) {
          if (is_masked(p[1], p[2])) bits.view(p[0], p[1], p[2], bad / 8) = 255 - (1 << bad % 8);
        });
        if (by_table) options.relative_bias.table = table.view;
        else options.mask_bits = bits.view;
        for (Index h = 0; h < s.kv_heads; ++h) (in_keys ? dirty.k : dirty.v).view(0, h, bad, 3) = nan;
        clean.run(options);
        dirty.run(options);
        Index wrong = 0, nans = 0;
        for_each_position(dirty.out.view.shape, [&](const auto& p) {
          const float x = dirty.out.view(p[0], p[1], p[2], p[3]), y = clean.out.view(p[0], p[1], p[2], p[3]);
          const bool reached = p[0] == 0 && !is_masked(p[1], p[2]) && (in_keys || p[3] == 3);
          nans += reached ? 1 : 0;
          wrong += (reached ? std::isnan(x) : bits_of(x) == bits_of(y)) ? 0 : 1;
        });
        CHECK_MESSAGE(wrong == 0, form.name, ", ", text_of(s, options), ", isa ", isa(), ", NaN in ",
                      in_keys ? "keys" : "values", ": ", wrong, " elements are wrong");
        CHECK(nans > 0);
      }
    }
  }
}

TEST_CASE("attention: a NaN or infinity in the table of relative biases reaches the rows that use it") {
  for (const Form& form : forms()) {
    const AttentionSizes& s = form.sizes;
    for (const bool both : {true, false}) {
      for (const Index bucket : {Index{0}, Index{3}, Index{11}, Index{15}, Index{16}, Index{20}, Index{31}}) {
        const FormTensors clean(form, s, seed), dirty(form, s, seed);
        const Tensor<2> good({s.q_heads, 32}), bad({s.q_heads, 32});
        Random random(seed);
        fill_normal(good.view, random);
        copy<2>(good.view, bad.view);
        bad.view(s.q_heads - 1, bucket) = bucket % 2 == 0 ? nan : infinity;
        AttentionOptions options;
        options.causal = !both;
        options.causal_offset = 40;
        options.relative_bias = {.table = good.view, .max_distance = 128, .bidirectional = both};
        clean.run(options);
        options.relative_bias.table = bad.view;
        dirty.run(options);
        Index wrong = 0;
        for_each_position(dirty.out.view.shape, [&](const auto& p) {
          bool uses = false;
          for (Index j = 0; j < s.kv_length && p[1] == s.q_heads - 1 && (both || j <= p[2] + 40); ++j)
            uses = uses || t5_bucket(j - p[2] - 40, 32, 128, both) == bucket;
          const float x = dirty.out.view(p[0], p[1], p[2], p[3]), y = clean.out.view(p[0], p[1], p[2], p[3]);
          wrong += (uses ? std::isnan(x) : bits_of(x) == bits_of(y)) ? 0 : 1;
        });
        CHECK_MESSAGE(wrong == 0, form.name, ", ", text_of(s, options), ", isa ", isa(), ", bucket ", bucket, ": ",
                      wrong, " elements are wrong");
        if (slow_isa()) break;
      }
    }
  }
}

TEST_CASE("attention: other variable-length sequences have no influence") {
  const ExpectComparisons expected(plain_forms() * 2 * 3 * 2 * 2);
  for (const Form& form : forms()) {
    if (form.broadcast >= 0) continue;
    AttentionSizes s = form.sizes;
    s.batch = 1;
    const Index q = s.q_length, n = s.kv_length;
    s.q_length = 3 * q + 2;
    s.kv_length = 2 * n + 61;
    const std::vector<Index> queries{1, q + 1, 2 * q + 1, 3 * q + 1}, keys{2, n + 2, n + 50, 2 * n + 50};
    const Tensor<2> table({s.q_heads, 32});
    Random random(seed);
    fill_normal(table.view, random);
    for (const bool relative : {false, true}) {
      AttentionOptions options;
      options.causal = relative;
      options.causal_offset = n - q;
      if (relative) options.relative_bias.table = table.view;
      options.query_starts = {queries.data(), {4}};
      options.key_starts = {keys.data(), {4}};
      const FormTensors clean(form, s, seed);
      clean.run(options);
      for (std::size_t kept = 0; kept < 3; ++kept) {
        const FormTensors dirty(form, s, seed);
        const auto spoil_others = [&](const View<float, 4>& view, const std::vector<Index>& starts) {
          for_each_position(view.shape, [&](const auto& p) {
            if (p[2] < starts[kept] || p[2] >= starts[kept + 1]) view(p[0], p[1], p[2], p[3]) = nan;
          });
        };
        spoil_others(dirty.q.view, queries);
        spoil_others(dirty.k.view, keys);
        spoil_others(dirty.v.view, keys);
        for (const int threads : {1, 3}) {
          options.num_threads = threads;
          dirty.run(options);
          const std::string text =
              std::string(form.name) + ", " + text_of(s, options) + ", sequence " + std::to_string(kept);
          check_bits(dirty.out.view.slice(2, queries[kept], queries[kept + 1]),
                     clean.out.view.slice(2, queries[kept], queries[kept + 1]), text, seed);
          check_bits(dirty.lse.view.slice(2, queries[kept], queries[kept + 1]),
                     clean.lse.view.slice(2, queries[kept], queries[kept + 1]), text + ", lse", seed);
        }
      }
    }
  }
}

}  // namespace
}  // namespace headlane::test
