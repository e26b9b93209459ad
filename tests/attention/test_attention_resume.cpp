// The option resume: attention over one part of the keys after the other is bit-identical to
// attention over all of them.
#include "support/merge_case.hpp"

namespace headlane::test {
namespace {

/// A partial result over no key.
void clear(const View<float, 4>& out, const View<float, 3>& lse, const View<float, 3>& sum) {
  for_each(out, [](float& x) { x = 0.0f; });
  for_each(lse, [](float& x) { x = -infinity; });
  for_each(sum, [](float& x) { x = 0.0f; });
}

AttentionSizes random_sizes(Random& random, int i) {
  AttentionSizes s{.batch = random.integer(1, 2),
                   .q_heads = 4,
                   .kv_heads = random.pick(std::vector<Index>{1, 2, 4}),
                   .q_length = random.integer(1, 40),
                   .kv_length = 0,
                   .head_dim = random.pick(std::vector<Index>{16, 33}),
                   .value_dim = random.pick(std::vector<Index>{1, 5, 16, 33, 64})};
  if (i % 3 == 0) s.q_length = 1;     // tasks share the keys, or rows are heads
  if (i % 10 == 1) s.q_length = 300;  // more rows than a task has
  return s;
}

TEST_CASE("attention: part after part of the keys is bit-identical to all of them at once") {
  BitComparison bits;
  Random random(1);
  for (int i = 0; i < (slow_isa() ? 20 : 200); ++i) {
    AttentionSizes s = random_sizes(random, i);
    std::vector<Index> cuts{0};
    for (Index n = random.integer(1, 4); n > 0; --n) cuts.push_back(cuts.back() + 512 * random.integer(0, 2));
    cuts.back() = std::max(cuts[cuts.size() - 2], cuts.back() - random.integer(0, 511));  // the last block may be short
    s.kv_length = cuts.back();
    RandomOptions given(s);
    const AttentionOptions drawn = keys_may_be_cut(given.draw(random, {.one_in = 3}), cuts);
    const AttentionTensors t(s, static_cast<std::uint64_t>(i), random.pick(layouts()));
    AttentionOptions whole = drawn;
    whole.sinks = {};
    const Tensor<3> whole_sum(t.lse.view.shape);
    whole.lse = t.lse.view;
    whole.sum = whole_sum.view;
    attention(t.q.view, t.k.view, t.v.view, t.out.view, whole);

    const Tensor<4> out(t.out.view.shape, random.pick(layouts()));
    const Tensor<3> lse(t.lse.view.shape, random.pick(layouts())), sum(t.lse.view.shape, random.pick(layouts()));
    const bool begins_with_none = i % 2 == 0;
    if (begins_with_none) clear(out.view, lse.view, sum.view);
    std::deque<std::vector<Index>> numbers;
    for (std::size_t n = 0; n + 1 < cuts.size(); ++n) {
      AttentionOptions o = part_options(drawn, cuts[n], cuts[n + 1], numbers);
      o.lse = lse.view;
      o.sum = sum.view;
      o.resume = begins_with_none || n > 0;
      o.num_threads = static_cast<int>(random.integer(1, 5));
      attention(t.q.view, t.k.view.slice(2, cuts[n], cuts[n + 1]), t.v.view.slice(2, cuts[n], cuts[n + 1]), out.view,
                o);
    }
    const std::string text = text_of(s, drawn) + ", seed " + std::to_string(i);
    bits.add(out.view, t.out.view, text);
    bits.add(lse.view, t.lse.view, "lse, " + text);
    bits.add(sum.view, whole_sum.view, "sum, " + text);
    CHECK(out.surroundings_untouched());
    CHECK(lse.surroundings_untouched());
    CHECK(sum.surroundings_untouched());
  }
  bits.finish("attention that resumes", slow_isa() ? 50 : 500);
}

TEST_CASE("attention: a cache continues tensors") {
  BitComparison bits;
  Random random(2);
  for (const Index queries : {1, 7, 100})
    for (const int threads : {1, 3}) {
      const AttentionSizes s{
          .q_heads = 4, .kv_heads = 2, .q_length = queries, .kv_length = 1700, .head_dim = 16, .value_dim = 33};
      const AttentionTensors t(s, static_cast<std::uint64_t>(queries));
      const Tensor<3> sum(t.lse.view.shape), lse(t.lse.view.shape), whole_sum(t.lse.view.shape);
      AttentionOptions whole = causal(1700 - queries);
      whole.lse = t.lse.view;
      whole.sum = whole_sum.view;
      attention(t.q.view, t.k.view, t.v.view, t.out.view, whole);

      KvCache cache(2, 16, 33);
      const Index sequence = cache.add();
      cache.append(sequence, t.k.view.select(0, 0).slice(1, 1024, 1700), t.v.view.select(0, 0).slice(1, 1024, 1700));
      const Tensor<4> out(t.out.view.shape);
      AttentionOptions part = causal(1700 - queries);
      part.lse = lse.view;
      part.sum = sum.view;
      part.num_threads = threads;
      attention(t.q.view, t.k.view.slice(2, 0, 1024), t.v.view.slice(2, 0, 1024), out.view, part);
      part.causal_offset = 0;  // the queries are the last positions of the cache
      part.resume = true;
      attention(t.q.view, cache, {&sequence, 1}, out.view, part);
      const std::string text = std::to_string(queries) + " queries, " + std::to_string(threads) + " threads";
      bits.add(out.view, t.out.view, text);
      bits.add(lse.view, t.lse.view, "lse, " + text);
      bits.add(sum.view, whole_sum.view, "sum, " + text);
    }
  bits.finish("attention over a cache that resumes", 18);
}

TEST_CASE("attention: a resumed result without keys is left as it is") {
  const AttentionSizes s{.q_heads = 2, .q_length = 30, .kv_length = 600, .head_dim = 16, .value_dim = 20};
  const AttentionTensors t(s, 3), before(s, 3);
  const Tensor<3> sum(t.lse.view.shape), sum_before(t.lse.view.shape);
  AttentionOptions o{.lse = before.lse.view, .sum = sum_before.view};
  attention(t.q.view, t.k.view, t.v.view, before.out.view, o);
  o.lse = t.lse.view;
  o.sum = sum.view;
  attention(t.q.view, t.k.view, t.v.view, t.out.view, o);
  o.resume = true;
  attention(t.q.view, t.k.view.slice(2, 0, 0), t.v.view.slice(2, 0, 0), t.out.view, o);  // no keys
  o.causal = true;
  o.causal_offset = -600;
  attention(t.q.view, t.k.view, t.v.view, t.out.view, o);  // none is visible
  BitComparison bits;
  bits.add(t.out.view, before.out.view, "out");
  bits.add(t.lse.view, before.lse.view, "lse");
  bits.add(sum.view, sum_before.view, "sum");
  bits.finish("attention that resumes without keys", 3);
}

}  // namespace
}  // namespace headlane::test
