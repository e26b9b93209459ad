// attention_weights and attention_key_sums: against the oracle, and bit by bit against each other
// and attention's log-sum-exp.
#include "support/weights_case.hpp"

namespace headlane::test {
namespace {

// Compares each weight with the oracle, the sum of a row with 1, and Σ w·v with attention's out.
void compare_with_oracle(const Weights& w, const AttentionOptions& o, const std::string& text, std::uint64_t seed) {
  const auto& [t, weights, sums] = w;
  const Index head_dim = t.q.view.size(3), keys = t.k.view.size(2), group = t.q.view.size(1) / t.k.view.size(1);
  Comparison of_weights("attention_weights", text, seed), of_sum("attention_weights, sum", text, seed),
      of_out("attention_weights, out", text, seed);
  bool nothing = true;
  for_each_position(t.lse.view.shape, [&](const auto& p) {
    const RowReference row = row_reference(t.q.view, t.k.view, o, p[0], p[1], p[2]);
    const double relative = attention_bounds(row, head_dim, keys, o).relative;
    double sum = 0, exact_sum = 0;
    for (Index j = 0; j < keys; ++j) {
      const float x = weights.view(p[0], p[1], p[2], j);
      const double exact = row.weights[static_cast<std::size_t>(j)];
      const bool visible = row.visible[static_cast<std::size_t>(j)];
      of_weights.add({p[0], p[1], p[2], j}, x, exact, visible ? relative * exact + 0x1p-126 : 0);
      sum += x;
      exact_sum += exact;
      nothing = nothing && exact == 0;
    }
    const double underflow = static_cast<double>(keys) * 0x1p-126;
    of_sum.add({p[0], p[1], p[2]}, static_cast<float>(sum), exact_sum, (relative + unit) * exact_sum + underflow);
    for (Index d = 0; d < t.out.view.size(3); ++d) {
      double out = 0, weighted = 0, largest = 0;
      for (Index j = 0; j < keys; ++j) {
        const double v = t.v.view(p[0], p[1] / group, j, d), x = weights.view(p[0], p[1], p[2], j);
        out += x * v;
        weighted += x * std::abs(v);
        largest = std::max(largest, std::abs(v));
      }
      const double bound = 2 * relative * weighted + 2 * underflow * largest;  // either may be off by half of it
      of_out.add({p[0], p[1], p[2], d}, t.out.view(p[0], p[1], p[2], d), out, bound);
    }
  });
  for (Comparison* c : {&of_weights, &of_sum, &of_out}) {
    if (nothing) c->set_kind(Comparison::Kind::special);
    if (c->count() > 0) c->finish();
  }
}

AttentionSizes random_sizes(Random& random, int i) {
  AttentionSizes s;
  s.batch = random.integer(1, 2);
  s.kv_heads = random.integer(1, 2);
  s.q_heads = s.kv_heads * random.integer(1, 3);
  s.q_length = i % 7 == 3 ? random.integer(90, 200) : random.integer(1, 20);
  s.kv_length = i % 9 == 3 ? random.integer(480, 1100) : random.integer(i % 25 == 0 ? 0 : 1, 70);
  s.head_dim = random.pick(std::vector<Index>{1, 5, 16, 33, 64});
  s.value_dim = random.pick(std::vector<Index>{1, 7, 16});
  return s;
}

TEST_CASE("attention_weights: random combinations of all options") {
  BitComparison bits;
  Random random(1);
  const int cases = slow_isa() ? 60 : 400;
  for (int i = 0; i < cases; ++i) {
    const AttentionSizes s = random_sizes(random, i);
    RandomOptions given(s);
    const AttentionOptions options = given.draw(random, {.one_in = 3});
    const Weights w(s, static_cast<std::uint64_t>(i), random.pick(layouts()), random.pick(inner_layouts));
    const std::string text = text_of(s, options) + ", seed " + std::to_string(i);
    const Tensor<3> lse(w.t.lse.view.shape, random.pick(layouts())), expected(w.sums.view.shape);
    AttentionOptions with = options;
    with.lse = lse.view;
    w.run(with);
    w.t.run(options);
    compare_with_oracle(w, options, text, static_cast<std::uint64_t>(i));
    bits.add(lse.view, w.t.lse.view, "lse, " + text);
    for_each(lse.view, [](float& x) { x = 3; });
    attention_key_sums(w.t.q.view, w.t.k.view, w.sums.view, with);
    add_rows(w.weights.view, expected.view);
    bits.add(w.sums.view, expected.view, "sums, " + text);
    bits.add(lse.view, w.t.lse.view, "lse of sums, " + text);
    CHECK(w.weights.surroundings_untouched());
    CHECK(w.sums.surroundings_untouched());
    CHECK(lse.surroundings_untouched());
  }
  bits.finish("attention_weights", 3 * cases);
}

TEST_CASE("attention_weights: slices of rows and heads, and threads, give the same bits") {
  BitComparison bits;
  Random random(2);
  for (int i = 0; i < (slow_isa() ? 10 : 60); ++i) {
    AttentionSizes s = random_sizes(random, 3 * i + 1);
    if (i % 5 == 0) s.kv_length = 1100, s.q_length = 130;
    RandomOptions given(s);
    AttentionOptions options = given.draw(random, {.one_in = 3});
    options.query_lengths = {};
    options.causal_offsets = {};
    const Weights all(s, 7), w(s, 7, random.pick(layouts()));
    options.num_threads = 1;
    all.run(options);
    attention_key_sums(all.t.q.view, all.t.k.view, all.sums.view, options);
    const std::string text = text_of(s, options) + ", seed " + std::to_string(i);
    for (const int threads : {2, 3, 5, 8}) {
      options.num_threads = threads;
      w.run(options);
      bits.add(w.weights.view, all.weights.view, text);
      attention_key_sums(w.t.q.view, w.t.k.view, w.sums.view, options);
      bits.add(w.sums.view, all.sums.view, "sums, " + text);
    }
    for (int part = 0; part < 6; ++part) {
      const Index first = random.integer(0, s.q_length - 1), end = random.integer(first + 1, s.q_length),
                  head = random.integer(0, s.q_heads - 1), kv_head = head / (s.q_heads / s.kv_heads);
      const auto rows = [&](auto view) {
        return view.data == nullptr ? view : view.slice(2, first, end).slice(1, head, head + 1);
      };
      const auto one_head = [&](auto view) { return view.data == nullptr ? view : view.slice(0, head, head + 1); };
      AttentionOptions o = options;
      o.causal_offset += first;
      o.mask = rows(o.mask);
      o.bias = rows(o.bias);
      o.mask_bits = rows(o.mask_bits);
      o.alibi_slopes = one_head(o.alibi_slopes);
      o.sinks = one_head(o.sinks);
      o.relative_bias.table = one_head(o.relative_bias.table);
      const View<float, 4> to = rows(w.weights.view);
      for_each(to, [](float& x) { x = 7; });
      attention_weights(rows(w.t.q.view), w.t.k.view.slice(1, kv_head, kv_head + 1), to, o);
      bits.add(to, rows(all.weights.view), "a slice of rows, " + text);
    }
  }
  bits.finish("attention_weights, slices", 100);
}

}  // namespace
}  // namespace headlane::test
