// merge, attention_weights and attention_key_sums of bfloat16 and float16: the rounded results of
// float32, in any layout.
#include "support/attention_case.hpp"
#include "support/half_tensor.hpp"
#include "support/illegal.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <limits>
#include <span>
#include <string>
#include <vector>

namespace headlane::test {
namespace {

TEST_CASE_TEMPLATE("attention_weights and attention_key_sums of 16-bit numbers", T, bfloat16, float16) {
  const AttentionTensors t(
      {.batch = 2, .q_heads = 4, .kv_heads = 2, .q_length = 19, .kv_length = 530, .head_dim = 24, .value_dim = 17}, 3);
  Random random(5);
  const Tensor<4> bias = random_tensor<4>({2, 4, 19, 530}, random);
  const Tensor<1> sinks = random_tensor<1>({4}, random);
  for (const Layout& layout : layouts())
    for (const Index keys : {530, 33, 0}) {
      const HalfTensor<T, 4> q(t.q.view, layout), k(t.k.view.slice(2, 0, keys), layout), weights({2, 4, 19, keys});
      const HalfTensor<T, 3> sums({2, 4, keys});
      const Tensor<4> wide_q = q.widened(), wide_k = k.widened(), expected({2, 4, 19, keys});
      const Tensor<3> right_sums({2, 4, keys}), lse({2, 4, 19}), right_lse({2, 4, 19});
      AttentionOptions own{
          .causal = true, .causal_offset = 500, .bias = bias.view.slice(3, 0, keys), .sinks = sinks.view};
      AttentionOptions right = own;
      own.lse = lse.view;
      own.num_threads = 3;
      right.lse = right_lse.view;
      attention_weights(q.view, k.view, weights.view, own);
      attention_weights(wide_q.view, wide_k.view, expected.view, right);
      INFO(name_of_half<T>(), ", ", layout.name, ", ", keys, " keys, isa ", isa());
      CHECK(different_from_rounded(weights.view, expected.view) == 0);
      CHECK(different_bits(lse.view, right_lse.view) == 0);
      own.lse = right.lse = {};
      attention_key_sums(q.view, k.view, sums.view, own);
      attention_key_sums(wide_q.view, wide_k.view, right_sums.view, right);
      CHECK(different_from_rounded(sums.view, right_sums.view) == 0);
      attention_key_sums(q.view.slice(2, 0, 0), k.view, sums.view);
      attention_key_sums(wide_q.view.slice(2, 0, 0), wide_k.view, right_sums.view);
      CHECK(different_from_rounded(sums.view, right_sums.view) == 0);
      CHECK((weights.surroundings_untouched() && sums.surroundings_untouched()));
    }
}

TEST_CASE_TEMPLATE("merge of 16-bit numbers", T, bfloat16, float16) {
  Random random(8);
  const Tensor<1> sinks = random_tensor<1>({3}, random);
  for (const Layout& layout : layouts())
    for (const Index dim : {1, 17, 70})
      for (const std::size_t count : std::vector<std::size_t>{1, 2, 4}) {
        const std::array<Index, 4> shape{2, 3, 101, dim};
        const std::array<Index, 3> rows{2, 3, 101};
        std::vector<HalfTensor<T, 4>> parts;
        std::vector<Tensor<4>> wide;
        std::vector<Tensor<3>> lse;
        std::vector<AttentionPartOf<T>> given;
        std::vector<AttentionPart> right;
        for (std::size_t i = 0; i < count; ++i) {
          parts.emplace_back(random_tensor<4>(shape, random).view, layout);
          wide.push_back(parts.back().widened());
          lse.push_back(random_tensor<3>(rows, random));
        }
        lse[0].view(0, 1, 2) = -std::numeric_limits<float>::infinity();
        for (std::size_t i = 0; i < count; ++i) {
          given.push_back({parts[i].view, lse[i].view});
          right.push_back({wide[i].view, lse[i].view});
        }
        const HalfTensor<T, 4> out(shape, layout);
        const Tensor<4> expected(shape);
        const Tensor<3> joint(rows), right_joint(rows);
        for (const int threads : {1, 3}) {
          merge(given, out.view, {.lse = joint.view, .sinks = sinks.view, .num_threads = threads});
          merge(right, expected.view, {.lse = right_joint.view, .sinks = sinks.view});
          INFO(name_of_half<T>(), ", ", layout.name, ", ", count, " parts of ", dim, ", isa ", isa());
          CHECK(different_from_rounded(out.view, expected.view) == 0);
          CHECK(different_bits(joint.view, right_joint.view) == 0);
          CHECK(out.surroundings_untouched());
        }
      }
}

TEST_CASE_TEMPLATE("merge and attention_weights of 16-bit numbers read and write nothing else", T, bfloat16, float16) {
  Random random(10);
  GuardedBuffer of_x(4096), of_out(4096), of_k(4096), of_weights(4096);
  for (const Index dim : {1, 5, 16, 33})
    for (const Place where : {Place::start, Place::end}) {
      const HalfTensor<T, 4> x(random_tensor<4>({1, 3, 5, dim}, random).view), out({1, 3, 5, dim}),
          k(random_tensor<4>({1, 3, 7, dim}, random).view), weights({1, 3, 5, 7});
      const Tensor<3> lse = random_tensor<3>({1, 3, 5}, random);
      const View<T, 4> part = placed(of_x, x.view, where), keys = placed(of_k, k.view, where),
                       merged = placed(of_out, out.view, where), rows = placed(of_weights, weights.view, where);
      merge(std::vector<AttentionPartOf<T>>{{x.view, lse.view}, {x.view, lse.view}}, out.view);
      merge(std::vector<AttentionPartOf<T>>{{part, lse.view}, {part, lse.view}}, merged);
      attention_weights(View<const T, 4>(x.view), View<const T, 4>(k.view), weights.view);
      attention_weights(View<const T, 4>(part), View<const T, 4>(keys), rows);
      CHECK(different_from_rounded(merged, out.view) == 0);
      CHECK(different_from_rounded(rows, weights.view) == 0);
      CHECK((of_x.surroundings_untouched() && of_k.surroundings_untouched()));
      CHECK((of_out.surroundings_untouched() && of_weights.surroundings_untouched()));
    }
}

TEST_CASE_TEMPLATE("merge and attention_weights of 16-bit numbers: illegal calls", T, bfloat16, float16) {
  Random random(9);
  const HalfTensor<T, 4> x(random_tensor<4>({2, 3, 5, 6}, random).view), k(random_tensor<4>({2, 3, 7, 6}, random).view),
      out({2, 3, 5, 6}), weights({2, 3, 5, 7});
  const HalfTensor<T, 3> sums({2, 3, 7});
  const Tensor<3> rows = random_tensor<3>({2, 3, 5}, random), lse({2, 3, 5});
  const View<const T, 4> q = x.view, vk = k.view;
  std::vector<Illegal> calls;
  const auto merged = [&](const AttentionPartOf<T>& second, const View<T, 4>& to, const MergeOptions& o = {}) {
    merge(std::vector<AttentionPartOf<T>>{{x.view, rows.view}, second}, to, o);
  };
  add(calls, "merge", "out", wrong_views(out.view), [&](const auto& y) { merged({q, rows.view}, y); });
  add(calls, "merge", "parts[1].out", wrong_views(q),
      [&, to = out.view](const auto& y) { merged({y, rows.view}, to); });
  add(calls, "attention_weights", "q", wrong_views(q),
      [=, to = weights.view](const auto& y) { attention_weights(y, vk, to); });
  add(calls, "attention_weights", "k", wrong_views(vk),
      [=, to = weights.view](const auto& y) { attention_weights(q, y, to); });
  add(calls, "attention_weights", "weights", wrong_views(weights.view),
      [=](const auto& y) { attention_weights(q, vk, y); });
  add(calls, "attention_key_sums", "sums", wrong_views(sums.view),
      [=](const auto& y) { attention_key_sums(q, vk, y); });
  const auto push = [&](const std::string& what, const std::function<void()>& call,
                        const std::vector<std::string>& words) { calls.push_back({what, call, words}); };
  push("no parts", [&] { merge(std::span<const AttentionPartOf<T>>(), out.view); }, {"merge: there are no parts"});
  push("out is a part", [&] { merged({out.view, rows.view}, out.view); }, {"merge: out", "overlaps parts[1].out"});
  const View<float, 3> in_out(reinterpret_cast<float*>(out.view.data), {2, 3, 5});
  push("lse in out", [&] { merged({q, rows.view}, out.view, {.lse = in_out}); }, {"merge: lse", "overlaps out"});
  push("part's lse in out", [&] { merged({q, in_out}, out.view); }, {"merge: out", "overlaps parts[1].lse"});
  push("threads", [&] { merged({q, rows.view}, out.view, {.num_threads = -1}); }, {"merge: num_threads is -1"});
  push("last stride",
       [&] { attention_weights(q, vk.slice(2, 0, 3), View<T, 4>(weights.view.data, {2, 3, 5, 3}, {105, 35, 7, 2})); },
       {"attention_weights: weights has 2 as its last stride"});
  push("weights over q", [&] { attention_weights(weights.view.slice(3, 0, 6), vk, weights.view); },
       {"attention_weights: weights", "overlaps q"});
  const View<const float, 4> bias(reinterpret_cast<const float*>(weights.view.data), {2, 3, 5, 7}, {0, 0, 0, 1});
  push("weights over bias", [&] { attention_weights(q, vk, weights.view, {.bias = bias}); },
       {"attention_weights: weights", "overlaps bias"});
  push("sum", [&] { attention_key_sums(q, vk, sums.view, {.lse = lse.view, .sum = lse.view}); },
       {"attention_key_sums: sum or workspace"});
  const auto untouched = [](const auto& tensor) {
    bool all = tensor.surroundings_untouched();
    for_each(tensor.view, [&](const T& e) { all = all && e.bits == half_sentinel; });
    return all;
  };
  check_illegal(calls,
                [&] { return untouched(out) && untouched(weights) && untouched(sums) && all_sentinels(lse.view); });
}

}  // namespace
}  // namespace headlane::test
