// Variable-length sequences: each has the bits of a call of its own and of a padded batch. Rows
// that are computed alone have the bits that they have in a long prefill.
#include "support/attention_forms.hpp"

#include <algorithm>
#include <utility>

namespace headlane::test {
namespace {

constexpr std::uint64_t seed = 23;

// Options and their tables.
struct Tables {
  Random random{seed};
  Tensor<2> table;
  Tensor<1> slopes, sinks;
  explicit Tables(Index heads)
      : table(random_table(heads, 32, random, 9)),
        slopes(random_tensor<1>({heads}, random)),
        sinks(random_tensor<1>({heads}, random)) {}

  // 0: none. 1: causal. 2: causal, relative bias, sinks. 3: window, bidirectional relative bias,
  // sinks, ALiBi.
  [[nodiscard]] AttentionOptions options(int kind) const {
    AttentionOptions o;
    o.causal = kind == 1 || kind == 2;
    if (kind >= 2) {
      o.relative_bias = {.table = table.view, .max_distance = 128, .bidirectional = kind == 3};
      o.sinks = sinks.view;
    }
    if (kind == 3) {
      o.window_left = 600;
      o.window_right = 50;
      o.alibi_slopes = slopes.view;
    }
    return o;
  }
};

// The rows of one sequence in a mask [1, heads, rows, keys].
View<const std::uint8_t, 4> rows_of(const View<const std::uint8_t, 4>& bits, Index first, Index end, Index keys) {
  View<const std::uint8_t, 4> part = bits.slice(2, first, end);
  part.shape[3] = (keys + 7) / 8;
  return part;
}

struct Varlen {
  std::vector<Index> query_starts, key_starts;
  [[nodiscard]] Index sequences() const { return static_cast<Index>(query_starts.size()) - 1; }
};

// Sequences without queries, without keys, or both; rows of no sequence at either end.
std::vector<Varlen> varlen_batches(const Form& form) {
  const Index n = form.sizes.kv_length / 3;
  if (form.sizes.q_length == 1)
    return {{{0, 1, 2, 3, 4, 5}, {0, 1, n, n, 3 * n - 100, 3 * n}},
            {{1, 1, 2, 2, 3}, {3, 5, 5, 600, 602}},
            {{2, 2, 2}, {0, 5, 9}}};
  return {{{0, 1, 8, 8, 30, 47}, {0, 1, n, n + 9, n + 9, 3 * n}},
          {{2, 5, 6, 7}, {0, 3 * n - 40, 3 * n - 39, 3 * n}},
          {{3, 3, 3}, {5, 60, 200}}};
}

// Variable-length sequences, and the same sequences in a padded batch.
struct Sequences {
  Sequences(const Form& form_, Varlen varlen_)
      : form(form_), varlen(std::move(varlen_)), whole(form, sizes, seed), padded(padded_form, padded_sizes, seed) {
    Random random(seed);
    const Mask mask = random_mask({1, sizes.q_heads, sizes.q_length, keys}, random, 5);
    fill_bits(bits.view, mask.view, random);
    for (std::size_t i = 0; i + 1 < varlen.query_starts.size(); ++i) {
      q_lengths.push_back(varlen.query_starts[i + 1] - varlen.query_starts[i]);
      k_lengths.push_back(varlen.key_starts[i + 1] - varlen.key_starts[i]);
      offsets.push_back(k_lengths.back() - q_lengths.back());
    }
    // The padding is NaN: it must not matter.
    for (const auto* t : {&padded.q.view, &padded.k.view, &padded.v.view}) for_each(*t, [](float& x) { x = nan; });
    for (Index i = 0; i < n; ++i) copy_sequence(i);
  }

  // Options of the call for all sequences; kinds are those of Tables, and all but 1 have a mask.
  [[nodiscard]] AttentionOptions together(AttentionOptions options, int kind) const {
    if (kind != 1) options.mask_bits = bits.view;
    options.causal_offsets = {offsets.data(), {n}};
    options.query_starts = {varlen.query_starts.data(), {n + 1}};
    options.key_starts = {varlen.key_starts.data(), {n + 1}};
    return options;
  }

  // A call for each sequence.
  void run_alone(const AttentionOptions& options, int kind) const {
    for (Index i = 0; i < n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const Index first = varlen.query_starts[at], end = varlen.query_starts[at + 1];
      const Index first_key = varlen.key_starts[at], end_key = varlen.key_starts[at + 1];
      AttentionOptions one = options;
      one.causal_offset = offsets[at];
      if (kind != 1) one.mask_bits = rows_of(bits.view, first, end, k_lengths[at]);
      one.lse = alone.lse.view.slice(2, first, end);
      attention(whole.q.view.slice(2, first, end), whole.k.view.slice(2, first_key, end_key),
                whole.v.view.slice(2, first_key, end_key), alone.out.view.slice(2, first, end), one);
    }
  }

  // A call for the padded batch, whose rows are compared with those of `whole`.
  void check_padded(AttentionOptions options, int kind, const std::string& text) const {
    options.query_starts = options.key_starts = {};
    options.key_lengths = {k_lengths.data(), {n}};
    options.query_lengths = {q_lengths.data(), {n}};
    if (kind != 1) options.mask_bits = padded_bits.view;
    padded.run(options);
    for (Index i = 0; i < n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const Index first = varlen.query_starts[at], end = varlen.query_starts[at + 1];
      check_bits(whole.out.view.slice(2, first, end),
                 View<const float, 4>(padded.out.view.slice(0, i, i + 1).slice(2, 0, end - first)), text + ", padded",
                 seed);
      check_bits(whole.lse.view.slice(2, first, end),
                 View<const float, 3>(padded.lse.view.slice(0, i, i + 1).slice(2, 0, end - first)),
                 text + ", padded, lse", seed);
    }
  }

 private:
  void copy_sequence(Index i) const {
    const auto at = static_cast<std::size_t>(i);
    const auto move = [&](const View<float, 4>& from, const View<float, 4>& to, Index first, Index length) {
      copy<4>(from.slice(2, first, first + length), to.slice(0, i, i + 1).slice(2, 0, length));
    };
    move(whole.q.view, padded.q.view, varlen.query_starts[at], q_lengths[at]);
    move(whole.k.view, padded.k.view, varlen.key_starts[at], k_lengths[at]);
    move(whole.v.view, padded.v.view, varlen.key_starts[at], k_lengths[at]);
    const std::array<Index, 4> bytes{1, sizes.q_heads, q_lengths[at], (keys + 7) / 8};
    for_each_position(bytes, [&](const auto& p) {
      padded_bits.view(i, p[1], p[2], p[3]) = bits.view(0, p[1], varlen.query_starts[at] + p[2], p[3]);
    });
  }
  [[nodiscard]] AttentionSizes with(Index batch, Index q_length, Index kv_length) const {
    AttentionSizes s = form.sizes;
    s.batch = batch;
    s.q_length = q_length;
    s.kv_length = kv_length;
    return s;
  }

 public:
  Form form;
  Varlen varlen;
  Index n = varlen.sequences(), queries = longest_of(varlen.query_starts), keys = longest_of(varlen.key_starts);
  AttentionSizes sizes = with(1, varlen.query_starts.back() + 2, varlen.key_starts.back() + 3),
                 padded_sizes = with(n, queries, keys);
  Form padded_form{.name = form.name, .sizes = padded_sizes, .keys = form.keys};
  FormTensors whole;
  AttentionTensors alone{sizes, seed}, untouched{sizes, seed};
  FormTensors padded;
  MaskBits bits{bytes_shape({1, sizes.q_heads, sizes.q_length, keys})},
      padded_bits{{n, sizes.q_heads, queries, (keys + 7) / 8}};
  std::vector<Index> offsets, q_lengths, k_lengths;
};

TEST_CASE("attention: a variable-length sequence has the bits of a call of its own and of a padded batch") {
  Index padded_sequences = 0;
  for (const Form& form : forms())
    for (const Varlen& varlen : varlen_batches(form)) padded_sequences += varlen.sequences();
  const ExpectComparisons expected((slow_isa() ? 2 : 3) * 2 * (std::ssize(forms()) * 3 * 4 + padded_sequences * 3));
  for (const Form& form : forms()) {
    for (const Varlen& varlen : varlen_batches(form)) {
      const Sequences t(form, varlen);
      const Tables tables(t.sizes.q_heads);
      for (const int kind : {0, 1, 2, 3}) {
        AttentionOptions options = tables.options(kind), together = t.together(options, kind);
        for (const int threads : {1, 2, 5}) {
          if (slow_isa() && threads == 2) continue;
          together.num_threads = options.num_threads = threads;
          const std::string text =
              std::string(form.name) + ", kind " + std::to_string(kind) + ", " + text_of(t.sizes, together);
          copy<4>(t.untouched.out.view, t.whole.out.view);
          copy<3>(t.untouched.lse.view, t.whole.lse.view);
          t.whole.run(together);
          t.run_alone(options, kind);
          check_bits(t.whole, t.alone, text, seed);  // rows of no sequence are sentinels in both
          if (kind != 0) t.check_padded(together, kind, text);
        }
      }
    }
  }
}

TEST_CASE("attention: rows computed alone have the bits of a long prefill") {
  Index shared_keys = 0;
  for (Form form : forms()) {
    form.sizes.kv_length = form.sizes.q_heads > 20 || slow_isa() ? 1100 : 3000;
    form.sizes.q_length = 40;
    form.sizes.batch = 1;
    const AttentionSizes& s = form.sizes;
    const FormTensors prefill(form, s, seed), rows(form, s, seed);
    const Tables tables(s.q_heads);
    Random random(seed);
    const Mask mask = random_mask(score_shape(s), random, 5);
    const MaskBits bits(bytes_shape(score_shape(s)));
    fill_bits(bits.view, mask.view, random);
    for (const int kind : {1, 2, 3}) {
      AttentionOptions options = tables.options(kind);
      options.causal_offset = s.kv_length - s.q_length;
      if (kind == 2) options.mask_bits = bits.view;
      options.num_threads = 1;
      prefill.run(options);
      for (const Index count : {1, 2, 5, 6, 12, 13, 25}) {
        for (const int threads : {1, 2, 3, 4, 5}) {
          if (slow_isa() && (count == 5 || count == 12 || threads == 2 || threads == 4)) continue;
          for (const Index first : {Index{0}, 39 - count / 2 - count / 3, s.q_length - count}) {
            if (first + count > s.q_length) continue;
            AttentionOptions some = options;
            some.num_threads = threads;
            some.causal_offset += first;
            if (kind == 2) some.mask_bits = bits.view.slice(2, first, first + count);
            some.lse = rows.lse.view.slice(2, first, first + count);
            const View<float, 4> out = rows.out.view.slice(2, first, first + count);
            const View<const float, 4> q = rows.q.view.slice(2, first, first + count);
            shared_keys += plan_attention(q, rows.k.view, rows.v.view, out, some).key_parts > 1 ? 1 : 0;
            attention(q, rows.k.view, rows.v.view, out, some);
            const std::string text = std::string(form.name) + ", kind " + std::to_string(kind) + ", rows " +
                                     std::to_string(first) + " and " + std::to_string(count - 1) + " more, " +
                                     text_of(s, some);
            check_bits(out, View<const float, 4>(prefill.out.view.slice(2, first, first + count)), text, seed);
            check_bits(some.lse, View<const float, 3>(prefill.lse.view.slice(2, first, first + count)), text + ", lse",
                       seed);
          }
        }
      }
    }
  }
  MESSAGE(shared_keys, " times tasks shared the keys of a row, ", comparisons_by_bits(), " comparisons by bits");
  CHECK(shared_keys > 20);
}

}  // namespace
}  // namespace headlane::test
