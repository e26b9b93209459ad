// Illegal calls: each argument of each function, with each kind of error, must throw
// std::invalid_argument with a message that names the function, the argument and the sizes, and
// write nothing. Other functions have test_bad_input_*.cpp in their folders.
#include "support/illegal.hpp"
#include "support/mask_case.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

namespace headlane::test {
namespace {

GemmOptions with(const View<const float, 1>& bias, const View<const float, 2>& residual) {
  GemmOptions options;
  options.bias = bias;
  options.residual = residual;
  return options;
}

TEST_CASE("gemm: illegal calls") {
  Random random(1);
  const Tensor<2> a = random_tensor<2>({5, 7}, random), b = random_tensor<2>({7, 9}, random), c({5, 9});
  const View<const float, 2> va = a.view, vb = b.view;
  std::vector<Illegal> calls;
  for (const GemmOptions& options : {GemmOptions{}, GemmOptions{.alpha = 0, .beta = 1}}) {
    add(calls, "gemm", "a", wrong_views(va), [=, &c](auto view) { gemm(view, vb, c.view, options); });
    add(calls, "gemm", "b", wrong_views(vb), [=, &c](auto view) { gemm(va, view, c.view, options); });
    add(calls, "gemm", "c", wrong_outputs(c.view), [=](auto view) { gemm(va, vb, view, options); });
  }
  const PackedMatrix packed(vb);
  const Tensor<1> bias({9});
  const Tensor<2> residual({5, 9});
  add(calls, "gemm", "a", wrong_views(va), [=, &c, &packed](auto view) { gemm(view, packed, c.view); });
  add(calls, "gemm", "c", wrong_outputs(c.view), [=, &packed](auto view) { gemm(va, packed, view); });
  add(calls, "gemm", "bias", without_null(wrong_views<const float, 1>(bias.view)),
      [=, &c](auto view) { gemm(va, vb, c.view, with(view, {})); });
  add(calls, "gemm", "residual", without_null(wrong_views<const float, 2>(residual.view)),
      [=, &c](auto view) { gemm(va, vb, c.view, with({}, view)); });
  const float* at = vb.data;
  for (const View<const float, 2>& view : {View<const float, 2>(nullptr, {7, 9}),
                                           misaligned(vb),
                                           with_size(vb, 0, -1),
                                           with_size(vb, 1, -huge),
                                           with_stride(vb, 0, huge),
                                           {at, {huge, huge}}})
    calls.push_back({"PackedMatrix", [=] { static_cast<void>(PackedMatrix(view)); }, {"PackedMatrix", "b"}});
  calls.push_back({"PackedMatrix, num_threads",
                   [=] { static_cast<void>(PackedMatrix(vb, {.num_threads = -1})); },
                   {"PackedMatrix", "num_threads", "-1"}});
  calls.push_back({"PackedMatrix, type",
                   [=] { static_cast<void>(PackedMatrix(vb, {.type = static_cast<DType>(9)})); },
                   {"PackedMatrix", "type", "9"}});
  GemmOptions no_activation;
  no_activation.activation = static_cast<Activation>(9);
  calls.push_back({"gemm, activation", [=, &c] { gemm(va, vb, c.view, no_activation); }, {"gemm", "activation", "9"}});
  calls.push_back(
      {"gemm, num_threads", [=, &c] { gemm(va, vb, c.view, {.num_threads = -1}); }, {"gemm", "num_threads", "-1"}});
  check_illegal(calls, [&] { return all_sentinels(c.view) && c.surroundings_untouched(); });
}

TEST_CASE("gemm: c over each operand") {
  Random random(1);
  const Tensor<2> a = random_tensor<2>({5, 7}, random), b = random_tensor<2>({7, 9}, random), c({5, 9});
  const View<const float, 2> va = a.view, vb = b.view;
  std::vector<Illegal> calls;
  // The same memory, shifted by an element, and only the last element in common.
  const Tensor<1> shared({200});
  float* p = shared.view.data;
  for (const Index shift : {0, 1, 44}) {
    calls.push_back(
        {"gemm, c over a", [=] { gemm({p + shift, {5, 7}}, vb, {p, {5, 9}}); }, {"gemm", "c", "a", "overlap"}});
    calls.push_back(
        {"gemm, c over b", [=] { gemm(va, {p + shift, {7, 9}}, {p, {5, 9}}); }, {"gemm", "c", "b", "overlap"}});
  }
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

TEST_CASE("unusual calls that are legal") {
  const Tensor<2> c({3, 4});
  const View<const float, 2> nothing(nullptr, {3, 0}), none(nullptr, {0, 4});
  gemm(nothing, none, c.view);
  for_each(c.view, [](float x) { CHECK(x == 0); });
  gemm(View<const float, 2>(nullptr, {0, 5}), {nullptr, {5, 0}}, {nullptr, {0, 0}});
  softmax(View<const float, 2>(nullptr, {0, 5}), View<float, 2>(nullptr, {0, 5}));
  attention(View<const float, 4>(nullptr, {0, 1, 1, 1}), {nullptr, {0, 1, 1, 1}}, {nullptr, {0, 1, 1, 1}},
            {nullptr, {0, 1, 1, 1}});
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
  // Columns of one buffer interleave without overlap: q, k, v and out side by side.
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
  CHECK(illegal_calls() >= 300);
}

}  // namespace
}  // namespace headlane::test
