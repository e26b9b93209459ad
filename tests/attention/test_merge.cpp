// merge: split-KV partial results against the oracle over all keys, and bit by bit where the header
// promises it.
#include "support/merge_case.hpp"

namespace headlane::test {
namespace {

TEST_CASE("merge: random parts of the keys against attention over all of them") {
  Random random(1);
  const int cases = slow_isa() ? 100 : 800;
  for (int i = 0; i < cases; ++i) {
    AttentionSizes s;
    s.batch = random.integer(1, 2);
    s.kv_heads = random.integer(1, 2);
    s.q_heads = s.kv_heads * random.integer(1, 3);
    s.q_length = i % 5 == 0 ? random.integer(90, 200) : random.integer(1, 20);
    s.head_dim = random.pick(std::vector<Index>{1, 5, 16, 33});
    s.value_dim = random.pick(std::vector<Index>{1, 7, 16, 17, 33, 64, 100, i % 9 == 0 ? 512 : 31});
    const Index parts = random.integer(1, 5);
    const Index unit_of_cuts = random.integer(0, 1) == 0 ? 1 : 8;
    std::vector<Index> cuts{0};
    for (Index n = 0; n < parts; ++n)
      cuts.push_back(cuts.back() + (random.integer(0, 4) == 0 ? 0 : random.integer(1, i % 10 == 3 ? 700 : 60)) /
                                       unit_of_cuts * unit_of_cuts);
    s.kv_length = cuts.back();
    RandomOptions given(s);
    const AttentionOptions options = keys_may_be_cut(given.draw(random, {.one_in = 4}), cuts);
    const AttentionTensors t(s, static_cast<std::uint64_t>(i), random.pick(layouts()));
    std::vector<bool> with_sum;
    for (Index n = 0; n < parts; ++n) with_sum.push_back(random.integer(0, 1) == 0);
    const Parts all(t, options, cuts, with_sum, random.pick(layouts()));
    MergeOptions how{.lse = t.lse.view, .sinks = options.sinks};
    how.num_threads = static_cast<int>(random.integer(0, 3));
    const Tensor<4> out(t.out.view.shape, random.pick(layouts()));
    merge(all.parts, out.view, how);
    compare_merged(t, out.view, options, all, text_of(s, options), static_cast<std::uint64_t>(i));
    CHECK(out.surroundings_untouched());
    CHECK(t.lse.surroundings_untouched());
  }
}

TEST_CASE("merge: parts on the grid of 512 keys are bit-identical to attention over all keys") {
  BitComparison bits;
  Random random(2);
  for (int i = 0; i < (slow_isa() ? 20 : 150); ++i) {
    AttentionSizes s{.q_heads = 4,
                     .kv_heads = 2,
                     .q_length = random.integer(1, 40),
                     .kv_length = 0,
                     .head_dim = 16,
                     .value_dim = random.pick(std::vector<Index>{1, 5, 33, 64})};
    if (i % 10 == 0) s.q_length = 150;
    const Index first = random.integer(0, 3), further = random.integer(0, 3);
    std::vector<Index> cuts{0, 512 * first};
    for (Index n = 0; n < further; ++n) cuts.push_back(cuts.back() + 512);
    if (further > 0) cuts.back() -= random.integer(0, 511);  // the last block may be short
    s.kv_length = cuts.back();
    RandomOptions given(s);
    const AttentionOptions options = keys_may_be_cut(given.draw(random, {.one_in = 3}), cuts);
    const AttentionTensors t(s, static_cast<std::uint64_t>(i), random.pick(layouts()));
    t.run(options);
    const std::string text =
        text_of(s, options) + ", first part of " + std::to_string(first) + " blocks, seed " + std::to_string(i);
    const Parts all(t, options, cuts, std::vector<bool>(cuts.size() - 1, true), random.pick(layouts()));
    const Tensor<4> out(t.out.view.shape, random.pick(layouts()));
    const Tensor<3> lse(t.lse.view.shape, random.pick(layouts()));
    MergeOptions how{.lse = t.lse.view, .sinks = options.sinks};
    how.lse = lse.view;
    for (const int threads : {1, 3}) {
      how.num_threads = threads;
      merge(all.parts, out.view, how);
      bits.add(out.view, t.out.view, text);
      bits.add(lse.view, t.lse.view, "lse, " + text);
    }
    // One part after the other: the result so far is a part.
    Tensor<4> so_far(t.out.view.shape), next(t.out.view.shape);
    Tensor<3> max(t.lse.view.shape), sum(t.lse.view.shape), next_max(t.lse.view.shape), next_sum(t.lse.view.shape);
    AttentionPart part = all.parts[0];
    for (std::size_t n = 1; n < all.parts.size(); ++n) {
      merge(std::vector<AttentionPart>{part, all.parts[n]}, next.view, {.lse = next_max.view, .sum = next_sum.view});
      std::swap(so_far, next);
      std::swap(max, next_max);
      std::swap(sum, next_sum);
      part = {so_far.view, max.view, sum.view};
    }
    merge({&part, 1}, out.view, how);
    bits.add(out.view, t.out.view, "step by step, " + text);
    bits.add(lse.view, t.lse.view, "step by step, lse, " + text);
  }
  bits.finish("merge", slow_isa() ? 100 : 800);
}

TEST_CASE("merge: rows without visible keys, and a single part") {
  const AttentionSizes s{.batch = 2, .q_heads = 2, .q_length = 70, .kv_length = 40, .head_dim = 16, .value_dim = 33};
  const AttentionTensors t(s, 3);
  BitComparison bits;
  t.run(causal(-30));  // no key is visible to rows 0 … 29
  const AttentionPart part{t.out.view, t.lse.view};
  for (const std::size_t count : {1u, 2u, 5u}) {
    // The other parts have no visible keys.
    const Tensor<4> nothing({1, 1, 1, 1}), out(t.out.view.shape);
    const Tensor<3> never({1, 1, 1}), lse(t.lse.view.shape);
    nothing.view(0, 0, 0, 0) = 0;
    never.view(0, 0, 0) = -infinity;
    const AttentionPart empty{{nothing.view.data, t.out.view.shape, {0, 0, 0, 0}},
                              {never.view.data, t.lse.view.shape, {0, 0, 0}}};
    for (std::size_t at = 0; at < count; ++at) {
      std::vector<AttentionPart> parts(count, empty);
      parts[at] = part;
      merge(parts, out.view, {.lse = lse.view});
      bits.add(out.view, t.out.view, "one part with visible keys");
      bits.add(lse.view, t.lse.view, "one part with visible keys, lse");
    }
    merge(std::vector<AttentionPart>(count, empty), out.view, {.lse = lse.view});
    for_each(out.view, [](float x) { CHECK(bits_of(x) == 0); });
    for_each(lse.view, [](float x) { CHECK(x == -infinity); });
    const Tensor<1> sinks({2});
    sinks.view(0) = 0.5f;
    sinks.view(1) = -infinity;
    merge(std::vector<AttentionPart>(count, empty), out.view, {.lse = lse.view, .sinks = sinks.view});
    for_each(out.view, [](float x) { CHECK(bits_of(x) == 0); });
    for_each(lse.view.select(1, 0), [](float x) { CHECK(x == 0.5f); });
    for_each(lse.view.select(1, 1), [](float x) { CHECK(x == -infinity); });
  }
  bits.finish("merge, empty parts", 16);
}

// Parts shared by heads or rows, by stride 0.
TEST_CASE("merge: broadcast parts are bit-identical to contiguous ones") {
  BitComparison bits;
  Random random(5);
  for (unsigned axes = 0; axes < 16; ++axes) {
    const std::array<Index, 4> shape{2, 3, 100, 20};
    const auto whole = [](unsigned kept, Index n, unsigned axis) { return (kept >> axis & 1u) != 0 ? Index{1} : n; };
    const std::array<Index, 4> few{whole(axes, 2, 0), whole(axes, 3, 1), whole(axes, 100, 2), whole(axes, 20, 3)};
    const Tensor<4> narrow = random_tensor<4>(few, random), other = random_tensor<4>(shape, random), dense(shape);
    const Tensor<3> narrow_lse = random_tensor<3>({few[0], few[1], few[2]}, random),
                    other_lse = random_tensor<3>({2, 3, 100}, random), dense_lse({2, 3, 100});
    const View<const float, 4> wide = stretched<const float>(narrow.view, shape);
    View<const float, 3> wide_lse = narrow_lse.view;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      if (few[axis] != shape[axis]) wide_lse.strides[axis] = 0;
      wide_lse.shape[axis] = shape[axis];
    }
    copy<4>(wide, dense.view);
    copy<3>(wide_lse, dense_lse.view);
    const Tensor<4> out(shape), expected(shape);
    merge(std::vector<AttentionPart>{{other.view, other_lse.view}, {wide, wide_lse}}, out.view);
    merge(std::vector<AttentionPart>{{other.view, other_lse.view}, {dense.view, dense_lse.view}}, expected.view);
    bits.add(out.view, expected.view, "broadcast axes " + std::to_string(axes));
  }
  bits.finish("merge, broadcast", 16);
}

TEST_CASE("merge: a NaN in a part reaches its row and no other") {
  const AttentionSizes s{.q_heads = 2, .q_length = 40, .kv_length = 30, .head_dim = 16, .value_dim = 20};
  for (const bool in_lse : {false, true}) {
    for (const Index row : {0, 7, 15, 16, 39}) {
      const AttentionTensors a(s, 1), b(s, 2);
      a.run();
      b.run();
      const Tensor<4> clean(a.out.view.shape), out(a.out.view.shape);
      const Tensor<3> clean_lse(a.lse.view.shape), lse(a.lse.view.shape);
      const std::vector<AttentionPart> parts{{a.out.view, a.lse.view}, {b.out.view, b.lse.view}};
      merge(parts, clean.view, {.lse = clean_lse.view});
      (in_lse ? b.lse.view(0, 1, row) : b.out.view(0, 1, row, 3)) = nan;
      merge(parts, out.view, {.lse = lse.view});
      for_each_position(out.view.shape, [&](const auto& p) {
        const bool hit = p[1] == 1 && p[2] == row && (in_lse || p[3] == 3);
        const float x = out.view(p[0], p[1], p[2], p[3]), y = clean.view(p[0], p[1], p[2], p[3]);
        CHECK_MESSAGE(bits_of(x) == (hit ? bits_of(nan) : bits_of(y)), "row ", p[2], ", column ", p[3]);
        const bool lse_hit = in_lse && p[1] == 1 && p[2] == row;
        CHECK(std::isnan(lse.view(p[0], p[1], p[2])) == lse_hit);
      });
    }
  }
}

TEST_CASE("merge: illegal calls") {
  Random random(6);
  const std::array<Index, 4> shape{2, 3, 5, 6};
  const Tensor<4> x = random_tensor<4>(shape, random), out(shape);
  const Tensor<3> x_lse = random_tensor<3>({2, 3, 5}, random), lse({2, 3, 5}), sum({2, 3, 5});
  const Tensor<1> sinks = random_tensor<1>({3}, random);
  const AttentionPart good{x.view, x_lse.view, x_lse.view};
  const MergeOptions part{.lse = lse.view, .sum = sum.view};
  std::vector<Illegal> calls;
  const auto not_null = [](auto wrong) {
    std::erase_if(wrong, [](const auto& one) { return one.what == "null"; });
    return wrong;
  };
  const auto one = [&](AttentionPart second, const MergeOptions& o) {
    merge(std::vector<AttentionPart>{good, second}, out.view, o);
  };
  add(calls, "merge", "out", wrong_outputs(out.view), [&](const View<float, 4>& y) { merge({&good, 1}, y, part); });
  add(calls, "merge", "parts[1].out", wrong_views(x.view),
      [&](const View<float, 4>& y) { one({y, x_lse.view, x_lse.view}, part); });
  add(calls, "merge", "parts[1].lse", wrong_views(x_lse.view),
      [&](const View<float, 3>& y) { one({x.view, y, x_lse.view}, part); });
  add(calls, "merge", "parts[1].sum", not_null(wrong_views(x_lse.view)),
      [&](const View<float, 3>& y) { one({x.view, x_lse.view, y}, part); });
  add(calls, "merge", "lse", not_null(wrong_outputs(lse.view)),
      [&](const View<float, 3>& y) { one(good, {.lse = y, .sum = sum.view}); });
  add(calls, "merge", "sum", not_null(wrong_outputs(sum.view)),
      [&](const View<float, 3>& y) { one(good, {.lse = lse.view, .sum = y}); });
  add(calls, "merge", "sinks", not_null(wrong_views(sinks.view)),
      [&](const View<float, 1>& y) { one(good, {.lse = lse.view, .sinks = y}); });
  calls.push_back({"no parts", [&] { merge({}, out.view, part); }, {"merge", "parts"}});
  calls.push_back({"sum without lse", [&] { one(good, {.sum = sum.view}); }, {"merge", "sum", "lse"}});
  calls.push_back({"sum and sinks",
                   [&] { one(good, {.lse = lse.view, .sum = sum.view, .sinks = sinks.view}); },
                   {"merge", "sum", "sinks"}});
  calls.push_back({"threads", [&] { one(good, {.num_threads = -1}); }, {"merge", "num_threads", "-1"}});
  calls.push_back({"out is a part", [&] { one({out.view, x_lse.view}, part); }, {"merge", "out", "overlaps"}});
  calls.push_back({"lse is a part's", [&] { one({x.view, lse.view}, part); }, {"merge", "lse", "overlaps"}});
  calls.push_back(
      {"sum is lse", [&] { one(good, {.lse = lse.view, .sum = lse.view}); }, {"merge", "sum", "lse", "overlaps"}});
  const Tensor<4> wide({1, 1, 1, 513}), none({1, 1, 1, 0});
  for (const View<float, 4>& y : {wide.view, none.view})
    calls.push_back({"value_dim",
                     [&, y] { merge(std::vector<AttentionPart>{{y, {}}}, y); },
                     {"merge", "out", std::to_string(y.size(3)), "512"}});
  check_illegal(calls, [&] {
    return all_sentinels(out.view) && all_sentinels(lse.view) && all_sentinels(sum.view) && all_sentinels(wide.view);
  });
  CHECK(calls.size() > 100);
}

}  // namespace
}  // namespace headlane::test
