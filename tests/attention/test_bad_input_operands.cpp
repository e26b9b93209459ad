// The operands of attention and multi_head_attention, each illegal in every way; options are in
// test_bad_input_attention.cpp.
#include "support/illegal.hpp"
#include "support/mask_case.hpp"

#include <doctest/doctest.h>
#include <headlane/attention.hpp>

namespace headlane::test {
namespace {

const AttentionSizes sizes{
    .batch = 2, .q_heads = 4, .kv_heads = 2, .q_length = 5, .kv_length = 7, .head_dim = 8, .value_dim = 6};

// Legal operands, illegal calls, and memory for operands that overlap.
struct Operands {
  AttentionTensors t{sizes, 3};
  View<const float, 4> q = t.q.view, k = t.k.view, v = t.v.view;
  View<float, 4> out = t.out.view;
  AttentionOptions options = t.with_lse({});
  Tensor<1> shared{{1000}};
  std::vector<Illegal> calls;

  void check() const {
    check_illegal(calls, [&] {
      return all_sentinels(out) && t.out.surroundings_untouched() && all_sentinels(t.lse.view) &&
             t.lse.surroundings_untouched() && all_sentinels(shared.view);
    });
  }
};

TEST_CASE("attention: illegal views") {
  Operands o;
  const AttentionTensors& t = o.t;
  const View<const float, 4> q = o.q, k = o.k, v = o.v;
  const View<float, 4> out = o.out;
  const AttentionOptions options = o.options;
  add(o.calls, "attention", "q", wrong_views(q), [&](auto view) { attention(view, k, v, out, options); });
  add(o.calls, "attention", "k", wrong_views(k), [&](auto view) { attention(q, view, v, out, options); });
  add(o.calls, "attention", "v", wrong_views(v), [&](auto view) { attention(q, k, view, out, options); });
  add(o.calls, "attention", "out", wrong_outputs(out), [&](auto view) { attention(q, k, v, view, options); });
  add(o.calls, "attention", "lse", without_null(wrong_outputs(t.lse.view)),
      [&](auto view) { attention(q, k, v, out, {.lse = view}); });
  const Tensor<4> bias(score_shape(sizes));
  add(o.calls, "attention", "bias", without_null(wrong_views<const float, 4>(bias.view)),
      [&](auto view) { attention(q, k, v, out, with_bias(options, view)); });
  const Mask mask(score_shape(sizes));
  std::vector<Wrong<const bool, 4>> wrong_masks = without_null(wrong_views<const bool, 4>(mask.view));
  std::erase_if(wrong_masks, [](const auto& wrong) { return wrong.what == "misaligned"; });
  add(o.calls, "attention", "mask", wrong_masks, [&](auto view) { attention(q, k, v, out, with_mask(options, view)); });
  AttentionOptions negative = options;
  negative.num_threads = -3;
  o.calls.push_back({"attention, num_threads", [&] { attention(q, k, v, out, negative); }, {"attention", "-3"}});
  o.check();
}

TEST_CASE("attention: illegal numbers of heads and widths") {
  Operands o;
  const auto call = [](const AttentionSizes& s) {
    const AttentionTensors other(s, 3);
    attention(other.q.view, other.k.view, other.v.view, other.out.view);
  };
  for (const Index kv_heads : {2, 3, 5, 6, 8, 0}) {
    AttentionSizes s = sizes;
    s.q_heads = 7;
    s.kv_heads = kv_heads;
    o.calls.push_back({"attention, heads", [=] { call(s); }, {"attention", "q", "7", "k", std::to_string(kv_heads)}});
  }
  for (const Index dim : {0, 513, 1000}) {
    AttentionSizes wide = sizes, wide_values = sizes;
    for (AttentionSizes* s : {&wide, &wide_values}) s->q_heads = s->kv_heads = 2;
    wide.head_dim = wide_values.value_dim = dim;
    wide.value_dim = wide_values.head_dim = 8;
    o.calls.push_back({"attention, head_dim", [=] { call(wide); }, {"attention", "q", "512", std::to_string(dim)}});
    o.calls.push_back(
        {"attention, value_dim", [=] { call(wide_values); }, {"attention", "v", "512", std::to_string(dim)}});
  }
  o.check();
}

// The third row of the mask lies in the second row of out: strides of floats and of flags differ.
TEST_CASE("attention: out over a mask with strides of its own") {
  Operands o;
  const Tensor<1> mixed({40});
  float* m = mixed.view.data;
  const View<float, 4> spread_out(m, {1, 1, 3, 4}, {24, 24, 8, 1});
  const View<const bool, 4> spread_mask(reinterpret_cast<const bool*>(m) + 16, {1, 1, 3, 4}, {24, 24, 8, 1});
  const Tensor<4> three({1, 1, 3, 4}), four({1, 1, 4, 4});
  o.calls.push_back({"attention, out over a mask with strides of its own",
                     [&] { attention(three.view, four.view, four.view, spread_out, with_mask({}, spread_mask)); },
                     {"attention", "out", "mask", "overlap"}});
  o.check();
}

TEST_CASE("attention: out and lse over each input, and over each other") {
  Operands operands;
  const View<const float, 4> q = operands.q, k = operands.k, v = operands.v;
  const View<float, 4> out = operands.out;
  const auto add_call = [&](const char* output, const char* input, const std::function<void()>& call) {
    operands.calls.push_back(
        {std::string("attention, ") + output + " over " + input, call, {"attention", output, input, "overlap"}});
  };
  float* p = operands.shared.view.data;
  const View<const float, 4> on_q(p, q.shape), on_k(p, k.shape), on_v(p, v.shape), on_bias(p, score_shape(sizes));
  const View<float, 4> at_p(p, out.shape);
  for (const Index shift : {0, 1, 7}) {
    const View<float, 4> o(p + shift, out.shape);
    const View<const bool, 4> on_mask(reinterpret_cast<const bool*>(p) + shift, score_shape(sizes));
    AttentionOptions with;
    with.lse = View<float, 3>(p + shift, operands.t.lse.view.shape);
    const AttentionOptions with_both = with_bias(with, on_bias);
    add_call("out", "bias", [=] { attention(q, k, v, o, with_bias({}, on_bias)); });
    add_call("out", "mask", [=] { attention(q, k, v, o, with_mask({}, on_mask)); });
    add_call("lse", "bias", [=] { attention(q, k, v, out, with_both); });
    add_call("out", "q", [=] { attention(on_q, k, v, o); });
    add_call("out", "k", [=] { attention(q, on_k, v, o); });
    add_call("out", "v", [=] { attention(q, k, on_v, o); });
    add_call("lse", "q", [=] { attention(on_q, k, v, out, with); });
    add_call("lse", "k", [=] { attention(q, on_k, v, out, with); });
    add_call("lse", "v", [=] { attention(q, k, on_v, out, with); });
    add_call("lse", "out", [=] { attention(q, k, v, at_p, with); });
  }
  operands.check();
}

TEST_CASE("multi_head_attention: illegal calls") {
  Random random(4);
  const Tensor<3> q = random_tensor<3>({2, 5, 32}, random), k = random_tensor<3>({2, 7, 16}, random);
  const Tensor<3> v = random_tensor<3>({2, 7, 12}, random), out({2, 5, 24});
  const View<const float, 3> vq = q.view, vk = k.view, vv = v.view;
  const View<float, 3> vout = out.view;
  const char* name = "multi_head_attention";
  std::vector<Illegal> calls;
  add(calls, name, "q", wrong_views(vq), [=](auto view) { multi_head_attention(view, vk, vv, vout, 4); });
  add(calls, name, "k", wrong_views(vk), [=](auto view) { multi_head_attention(vq, view, vv, vout, 4); });
  add(calls, name, "v", wrong_views(vv), [=](auto view) { multi_head_attention(vq, vk, view, vout, 4); });
  add(calls, name, "out", wrong_outputs(vout), [=](auto view) { multi_head_attention(vq, vk, vv, view, 4); });
  const auto with_heads = [=](Index heads) { multi_head_attention(vq, vk, vv, vout, heads); };
  for (const Index heads : {Index{0}, Index{-1}, Index{3}, Index{5}, Index{33}, Index{64}, huge, -huge}) {
    calls.push_back({"multi_head, heads", [=] { with_heads(heads); }, {name, "heads", "32", std::to_string(heads)}});
  }
  const auto one = [=](Index heads) {
    multi_head_attention(vq.select(0, 0), vk.select(0, 0), vv.select(0, 0), vout.select(0, 0), heads);
  };
  for (const Index heads : {0, -1, 3, 33}) {
    calls.push_back({"multi_head of one sequence", [=] { one(heads); }, {name, "heads", "32", std::to_string(heads)}});
  }
  View<const float, 3> wide_q = vq;
  wide_q.shape[2] = huge;
  calls.push_back({"multi_head, huge width", [=] { multi_head_attention(wide_q, vk, vv, vout, huge); }, {name}});
  check_illegal(calls, [&] { return all_sentinels(vout) && out.surroundings_untouched(); });
}

TEST_CASE("enough illegal calls were made") {
  MESSAGE(illegal_calls(), " illegal calls");
  CHECK(illegal_calls() >= 300);
}

}  // namespace
}  // namespace headlane::test
