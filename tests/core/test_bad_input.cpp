// Every argument of every function, wrong in every way: std::invalid_argument that names the function, the argument and
// the sizes, and nothing written. The calls are generated: each kind of error for each operand.
#include "support/illegal.hpp"
#include "support/mask_case.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

namespace headlane::test {
namespace {

TEST_CASE("gemm: illegal calls") {
  Random random(1);
  const Tensor<2> a = random_tensor<2>({5, 7}, random), b = random_tensor<2>({7, 9}, random), c({5, 9});
  const View<const float, 2> va = a.view, vb = b.view;
  std::vector<Illegal> calls;
  for (const GemmOptions& options : {GemmOptions{}, GemmOptions{0, 1}}) {
    add(calls, "gemm", "a", wrong_views(va), [=, &c](auto view) { gemm(view, vb, c.view, options); });
    add(calls, "gemm", "b", wrong_views(vb), [=, &c](auto view) { gemm(va, view, c.view, options); });
    add(calls, "gemm", "c", wrong_outputs(c.view), [=](auto view) { gemm(va, vb, view, options); });
  }
  const PackedMatrix packed(vb);
  const Tensor<1> bias({9});
  const Tensor<2> residual({5, 9});
  const auto with = [](const View<const float, 1>& v, const View<const float, 2>& r) {
    GemmOptions options;
    options.bias = v;
    options.residual = r;
    return options;
  };
  add(calls, "gemm", "a", wrong_views(va), [=, &c, &packed](auto view) { gemm(view, packed, c.view); });
  add(calls, "gemm", "c", wrong_outputs(c.view), [=, &packed](auto view) { gemm(va, packed, view); });
  add(calls, "gemm", "bias", wrong_views<const float, 1>(bias.view), [=, &c](auto view) {
    if (view.data == nullptr) throw std::invalid_argument("gemm: bias null means none");
    gemm(va, vb, c.view, with(view, {}));
  });
  add(calls, "gemm", "residual", wrong_views<const float, 2>(residual.view), [=, &c](auto view) {
    if (view.data == nullptr) throw std::invalid_argument("gemm: residual null means none");
    gemm(va, vb, c.view, with({}, view));
  });
  const float* at = vb.data;
  for (const View<const float, 2>& view : {View<const float, 2>(nullptr, {7, 9}),
                                           misaligned(vb),
                                           with_size(vb, 0, -1),
                                           with_size(vb, 1, -huge),
                                           with_stride(vb, 0, huge),
                                           {at, {huge, huge}}})
    calls.push_back({"PackedMatrix", [=] { static_cast<void>(PackedMatrix(view)); }, {"PackedMatrix", "b"}});
  calls.push_back({"PackedMatrix, num_threads",
                   [=] { static_cast<void>(PackedMatrix(vb, -1)); },
                   {"PackedMatrix", "num_threads", "-1"}});
  GemmOptions no_activation;
  no_activation.activation = static_cast<Activation>(9);
  calls.push_back({"gemm, activation", [=, &c] { gemm(va, vb, c.view, no_activation); }, {"gemm", "activation", "9"}});
  // c on a, on b: the same memory, shifted by an element, the last element only.
  const Tensor<1> shared({200});
  float* p = shared.view.data;
  for (const Index shift : {0, 1, 44}) {
    calls.push_back(
        {"gemm, c over a", [=] { gemm({p + shift, {5, 7}}, vb, {p, {5, 9}}); }, {"gemm", "c", "a", "overlap"}});
    calls.push_back(
        {"gemm, c over b", [=] { gemm(va, {p + shift, {7, 9}}, {p, {5, 9}}); }, {"gemm", "c", "b", "overlap"}});
  }
  calls.push_back(
      {"gemm, num_threads", [=, &c] { gemm(va, vb, c.view, {.num_threads = -1}); }, {"gemm", "num_threads", "-1"}});
  for (const Index shift : {0, 8, 44}) {
    const GemmOptions over_bias = with(View<const float, 1>(p + shift, {9}), {});
    const GemmOptions over_residual = with({}, View<const float, 2>(p + shift, {5, 9}));
    calls.push_back(
        {"gemm, c over bias", [=] { gemm(va, vb, {p, {5, 9}}, over_bias); }, {"gemm", "c", "bias", "overlap"}});
    calls.push_back({"gemm, c over residual",
                     [=] { gemm(va, vb, {p, {5, 9}}, over_residual); },
                     {"gemm", "c", "residual", "overlap"}});
  }
  calls.push_back(
      {"gemm, c interleaved with a", [=] { gemm({p, {5, 7}, {14, 2}}, vb, {p + 2, {5, 9}, {14, 1}}); }, {"gemm"}});
  check_illegal(calls,
                [&] { return all_sentinels(c.view) && c.surroundings_untouched() && all_sentinels(shared.view); });
}

TEST_CASE("softmax: illegal calls") {
  Random random(2);
  const Tensor<3> x = random_tensor<3>({3, 4, 5}, random), y({3, 4, 5});
  const View<const float, 3> vx = x.view;
  std::vector<Illegal> calls;
  add(calls, "softmax", "x", wrong_views(vx), [&](auto view) { softmax(view, y.view); });
  add(calls, "softmax", "y", wrong_outputs(y.view), [=](auto view) { softmax(vx, view, {.scale = 2, .log = true}); });
  calls.push_back({"softmax, ranks", [&] { softmax(vx, y.view.select(0, 0)); }, {"softmax", "x", "y", "3", "2"}});
  calls.push_back(
      {"softmax, no view", [&] { softmax(AnyView<const float>(), AnyView<float>()); }, {"softmax", "x", "0"}});
  calls.push_back(
      {"softmax, num_threads", [&] { softmax(vx, y.view, {.num_threads = -2}); }, {"softmax", "num_threads", "-2"}});
  const Tensor<1> shared({100});
  float* p = shared.view.data;
  for (const Index shift : {1, -1, 4, 59}) {
    calls.push_back({"softmax, y over x",
                     [=] { softmax(View<const float, 3>(p + 1 + shift, {3, 4, 5}), View<float, 3>(p + 1, {3, 4, 5})); },
                     {"softmax", "x", "y", "overlap"}});
  }
  calls.push_back({"softmax, y is x transposed",
                   [=] { softmax(View<const float, 2>(p, {5, 5}).transposed(), View<float, 2>(p, {5, 5})); },
                   {"softmax", "overlap"}});
  check_illegal(calls,
                [&] { return all_sentinels(y.view) && y.surroundings_untouched() && all_sentinels(shared.view); });
}

TEST_CASE("activate: illegal calls") {
  Random random(2);
  const Tensor<3> x = random_tensor<3>({3, 4, 5}, random), y({3, 4, 5});
  const View<const float, 3> vx = x.view;
  std::vector<Illegal> calls;
  add(calls, "activate", "x", wrong_views(vx), [&](auto view) { activate(view, y.view, Activation::gelu); });
  add(calls, "activate", "y", wrong_outputs(y.view), [=](auto view) { activate(vx, view, Activation::relu); });
  calls.push_back({"activate, ranks",
                   [&] { activate(vx, y.view.select(0, 0), Activation::relu); },
                   {"activate", "x", "y", "3", "2"}});
  for (const int wrong : {0, 8, 255}) {
    calls.push_back({"activate, activation",
                     [&, wrong] { activate(vx, y.view, static_cast<Activation>(wrong)); },
                     {"activate", "activation", std::to_string(wrong)}});
  }
  calls.push_back({"activate, num_threads",
                   [&] { activate(vx, y.view, Activation::silu, {.num_threads = -2}); },
                   {"activate", "num_threads", "-2"}});
  const Tensor<1> shared({100});
  float* p = shared.view.data;
  for (const Index shift : {1, -1, 4, 59}) {
    const View<const float, 3> from(p + 1 + shift, {3, 4, 5});
    calls.push_back({"activate, y over x",
                     [=] { activate(from, View<float, 3>(p + 1, {3, 4, 5}), Activation::tanh); },
                     {"activate", "x", "y", "overlap"}});
  }
  check_illegal(calls,
                [&] { return all_sentinels(y.view) && y.surroundings_untouched() && all_sentinels(shared.view); });
}

TEST_CASE("attention: illegal calls") {
  const AttentionTensors t(
      {.batch = 2, .q_heads = 4, .kv_heads = 2, .q_length = 5, .kv_length = 7, .head_dim = 8, .value_dim = 6}, 3);
  const View<const float, 4> q = t.q.view, k = t.k.view, v = t.v.view;
  const View<float, 4> out = t.out.view;
  const AttentionOptions options = t.with_lse({});
  std::vector<Illegal> calls;
  add(calls, "attention", "q", wrong_views(q), [=](auto view) { attention(view, k, v, out, options); });
  add(calls, "attention", "k", wrong_views(k), [=](auto view) { attention(q, view, v, out, options); });
  add(calls, "attention", "v", wrong_views(v), [=](auto view) { attention(q, k, view, out, options); });
  add(calls, "attention", "out", wrong_outputs(out), [=](auto view) { attention(q, k, v, view, options); });
  add(calls, "attention", "lse", wrong_outputs(t.lse.view), [=](auto view) {
    AttentionOptions wrong;
    wrong.lse = view;
    if (view.data == nullptr) throw std::invalid_argument("attention: lse null means not wanted");
    attention(q, k, v, out, wrong);
  });
  const Tensor<4> bias(score_shape(
      {.batch = 2, .q_heads = 4, .kv_heads = 2, .q_length = 5, .kv_length = 7, .head_dim = 8, .value_dim = 6}));
  add(calls, "attention", "bias", wrong_views<const float, 4>(bias.view), [=](auto view) {
    if (view.data == nullptr) throw std::invalid_argument("attention: bias null means none");
    attention(q, k, v, out, with_bias(options, view));
  });
  const Mask mask(score_shape(
      {.batch = 2, .q_heads = 4, .kv_heads = 2, .q_length = 5, .kv_length = 7, .head_dim = 8, .value_dim = 6}));
  std::vector<Wrong<const bool, 4>> wrong_masks = wrong_views<const bool, 4>(mask.view);
  std::erase_if(wrong_masks, [](const auto& wrong) { return wrong.what == "null" || wrong.what == "misaligned"; });
  add(calls, "attention", "mask", wrong_masks, [=](auto view) { attention(q, k, v, out, with_mask(options, view)); });
  AttentionOptions negative = options;
  negative.num_threads = -3;
  calls.push_back({"attention, num_threads", [=] { attention(q, k, v, out, negative); }, {"attention", "-3"}});
  const auto heads = [&](Index q_heads, Index kv_heads) {
    const AttentionTensors other({.batch = 2,
                                  .q_heads = q_heads,
                                  .kv_heads = kv_heads,
                                  .q_length = 5,
                                  .kv_length = 7,
                                  .head_dim = 8,
                                  .value_dim = 6},
                                 3);
    attention(other.q.view, other.k.view, other.v.view, other.out.view);
  };
  for (const Index kv_heads : {2, 3, 5, 6, 8, 0}) {
    calls.push_back(
        {"attention, heads", [=] { heads(7, kv_heads); }, {"attention", "q", "7", "k", std::to_string(kv_heads)}});
  }
  const auto dims = [&](Index head_dim, Index value_dim) {
    const AttentionTensors other(
        {.batch = 2, .q_heads = 2, .q_length = 5, .kv_length = 7, .head_dim = head_dim, .value_dim = value_dim}, 3);
    attention(other.q.view, other.k.view, other.v.view, other.out.view);
  };
  // Steps of floats and steps of flags are not the same: the third row of flags lies in the second row of out.
  const Tensor<1> mixed({40});
  float* m = mixed.view.data;
  const View<float, 4> spread_out(m, {1, 1, 3, 4}, {24, 24, 8, 1});
  const View<const bool, 4> spread_mask(reinterpret_cast<const bool*>(m) + 16, {1, 1, 3, 4}, {24, 24, 8, 1});
  const Tensor<4> three({1, 1, 3, 4}), four({1, 1, 4, 4});
  const View<const float, 4> three_view = three.view, four_view = four.view;
  calls.push_back({"attention, out over a mask of other steps",
                   [=] { attention(three_view, four_view, four_view, spread_out, with_mask({}, spread_mask)); },
                   {"attention", "out", "mask", "overlap"}});
  for (const Index dim : {0, 513, 1000}) {
    calls.push_back({"attention, head_dim", [=] { dims(dim, 8); }, {"attention", "q", "512", std::to_string(dim)}});
    calls.push_back({"attention, value_dim", [=] { dims(8, dim); }, {"attention", "v", "512", std::to_string(dim)}});
  }
  // out and lse over each input, and over each other.
  const Tensor<1> shared({1000});
  float* p = shared.view.data;
  const View<const float, 4> on_q(p, q.shape), on_k(p, k.shape), on_v(p, v.shape);
  for (const Index shift : {0, 1, 7}) {
    const View<float, 4> o(p + shift, out.shape);
    const View<const float, 4> on_bias(p, bias.view.shape);
    calls.push_back({"attention, out over bias",
                     [=] { attention(q, k, v, o, with_bias({}, on_bias)); },
                     {"attention", "out", "bias", "overlap"}});
    const View<const bool, 4> on_mask(reinterpret_cast<const bool*>(p) + shift, mask.view.shape);
    calls.push_back({"attention, out over mask",
                     [=] { attention(q, k, v, o, with_mask({}, on_mask)); },
                     {"attention", "out", "mask", "overlap"}});
    AttentionOptions over_bias = with_bias({}, on_bias);
    over_bias.lse = View<float, 3>(p + shift, t.lse.view.shape);
    calls.push_back({"attention, lse over bias",
                     [=] { attention(q, k, v, out, over_bias); },
                     {"attention", "lse", "bias", "overlap"}});
    AttentionOptions with;
    with.lse = View<float, 3>(p + shift, t.lse.view.shape);
    const View<float, 4> at_p(p, out.shape);
    calls.push_back({"attention, out over q", [=] { attention(on_q, k, v, o); }, {"attention", "out", "q", "overlap"}});
    calls.push_back({"attention, out over k", [=] { attention(q, on_k, v, o); }, {"attention", "out", "k", "overlap"}});
    calls.push_back({"attention, out over v", [=] { attention(q, k, on_v, o); }, {"attention", "out", "v", "overlap"}});
    calls.push_back(
        {"attention, lse over q", [=] { attention(on_q, k, v, out, with); }, {"attention", "lse", "q", "overlap"}});
    calls.push_back(
        {"attention, lse over k", [=] { attention(q, on_k, v, out, with); }, {"attention", "lse", "k", "overlap"}});
    calls.push_back(
        {"attention, lse over v", [=] { attention(q, k, on_v, out, with); }, {"attention", "lse", "v", "overlap"}});
    calls.push_back(
        {"attention, lse over out", [=] { attention(q, k, v, at_p, with); }, {"attention", "lse", "out", "overlap"}});
  }
  check_illegal(calls, [&] {
    return all_sentinels(out) && t.out.surroundings_untouched() && all_sentinels(t.lse.view) &&
           t.lse.surroundings_untouched() && all_sentinels(shared.view);
  });
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

TEST_CASE("View: illegal calls") {
  const std::vector<float> memory(60);
  const View<const float, 3> view(memory.data(), {3, 4, 5});
  std::vector<Illegal> calls;
  const auto add_call = [&](const char* function, const std::vector<std::string>& words, std::function<void()> call) {
    std::vector<std::string> all = words;
    all.push_back(std::string("View::") + function);
    calls.push_back(
        {std::string("View::") + function + " " + (words.empty() ? "" : words.front()), std::move(call), all});
  };
  for (const Index end : {Index{5}, Index{-1}, huge}) {
    add_call("slice", {std::to_string(end), "end"}, [=] { (void)view.slice(1, 0, end); });
  }
  for (const Index begin : {Index{3}, Index{-1}, -huge}) {
    add_call("slice", {std::to_string(begin), "begin"}, [=] { (void)view.slice(1, begin, 2); });
  }
  for (const Index i : {Index{4}, Index{-1}, huge}) {
    add_call("select", {std::to_string(i), "position"}, [=] { (void)view.select(1, i); });
  }
  for (const Index inner : {Index{0}, Index{-1}, Index{3}, Index{6}, huge}) {
    add_call("split", {"inner"}, [=] { (void)view.split(2, inner); });
  }
  for (const int axis : {3, -4, 100}) {
    const std::string text = std::to_string(axis < 0 ? axis + 3 : axis);
    for (const auto& call : std::vector<std::function<void()>>{
             [=] { (void)view.size(axis); }, [=] { (void)view.stride(axis); }, [=] { (void)view.slice(axis, 0, 1); },
             [=] { (void)view.select(axis, 0); }, [=] { (void)view.split(axis, 1); }}) {
      calls.push_back({"View, axis " + text, call, {"View::", "axis", text}});
    }
    calls.push_back({"View::permuted, axis", [=] { (void)view.permuted({0, axis, 1}); }, {"View::permuted", "axis"}});
  }
  for (const int axis : {-1, 4}) add_call("broadcast", {"axis"}, [=] { (void)view.broadcast(axis, 2); });
  add_call("permuted", {"twice"}, [=] { (void)view.permuted({0, 1, 1}); });
  add_call("permuted", {"twice"}, [=] { (void)view.permuted({2, 2, 2}); });
  check_illegal(calls, [] { return true; });
}

TEST_CASE("calls that look odd but are legal") {
  const Tensor<2> c({3, 4});
  const View<const float, 2> nothing(nullptr, {3, 0}), none(nullptr, {0, 4});
  gemm(nothing, none, c.view);
  for_each(c.view, [](float x) { CHECK(x == 0); });
  gemm({nullptr, {0, 5}}, {nullptr, {5, 0}}, {nullptr, {0, 0}});
  softmax(View<const float, 2>(nullptr, {0, 5}), View<float, 2>(nullptr, {0, 5}));
  attention({nullptr, {0, 1, 1, 1}}, {nullptr, {0, 1, 1, 1}}, {nullptr, {0, 1, 1, 1}}, {nullptr, {0, 1, 1, 1}});
  // An axis of one element may have any stride.
  Tensor<1> x({5}), y({5});
  for_each(x.view, [](float& e) { e = 1; });
  constexpr Index least = std::numeric_limits<Index>::min();
  for (const Index stride : {Index{0}, huge, -huge, least}) {
    softmax(View<const float, 2>(x.view.data, {1, 5}, {stride, 1}), View<float, 2>(y.view.data, {1, 5}, {stride, 1}));
    CHECK(y.view(0) == 0.2f);
    const Tensor<2> product({40, 5});
    gemm(View<const float, 2>(x.view.data, {40, 1}, {0, stride}),
         View<const float, 2>(x.view.data, {1, 5}, {stride, 1}), product.view);
    CHECK(product.view(39, 4) == 1);
  }
  // Columns of one buffer interleave and do not overlap: q, k, v and out side by side.
  Random random(5);
  const Tensor<2> packed = random_tensor<2>({6, 32}, random), out({6, 8});
  const auto part = [&](Index i) { return packed.view.slice(1, 8 * i, 8 * i + 8); };
  multi_head_attention(part(0), part(1), part(2), out.view, 2);
  multi_head_attention(part(0), part(1), part(2), part(3), 2);
  CHECK(different_bits(part(3), out.view) == 0);
  // All three inputs may be the same.
  multi_head_attention(part(0), part(0), part(0), out.view, 2);
}

TEST_CASE("enough illegal calls were made") {
  MESSAGE(illegal_calls(), " illegal calls");
  CHECK(illegal_calls() >= 150);
}

}  // namespace
}  // namespace headlane::test
