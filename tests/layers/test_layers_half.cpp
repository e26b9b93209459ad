// Layers on tensors of bfloat16 and float16: the rounded result of float32, in any layout, in place
// where float32 is.
#include "support/half_tensor.hpp"
#include "support/illegal.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <string>

namespace headlane::test {
namespace {

/// The tensors of all three layers.
struct Weights {
  Tensor<2> first, second;
  Tensor<1> bias, of_norm;

  static Weights random(Index d_model, Index d_ff) {
    Random random(2);
    return {random_tensor<2>({d_ff, d_model}, random), random_tensor<2>({d_model, d_ff}, random),
            random_tensor<1>({d_ff}, random), random_tensor<1>({d_model}, random)};
  }
  [[nodiscard]] StateDict dict() const {
    return {{"linear1.weight", first.view},
            {"linear1.bias", bias.view},
            {"linear2.weight", second.view},
            {"norm.weight", of_norm.view}};
  }
};

/// run(x, y, threads) of both types, and of a single tensor where it may be in place.
template <class T, class F>
void check(const std::string& name, Index in, Index out, bool in_place, const F& run) {
  Random random(3);
  for (const Layout& layout : layouts())
    for (const int threads : {1, 3}) {
      const HalfTensor<T, 3> x(random_tensor<3>({2, 41, in}, random).view, layout), y({2, 41, out}, layout);
      const Tensor<3> wide = x.widened(), expected({2, 41, out});
      run(View<const float, 3>(wide.view), expected.view, 1);
      run(View<const T, 3>(x.view), y.view, threads);
      INFO(name, ", ", name_of_half<T>(), ", ", layout.name, ", ", threads, " threads, isa ", isa());
      CHECK(different_from_rounded(y.view, expected.view) == 0);
      CHECK((y.surroundings_untouched() && x.surroundings_untouched()));
      if (!in_place) continue;
      run(View<const T, 3>(x.view), x.view, threads);
      CHECK(different_from_rounded(x.view, expected.view) == 0);
    }
}

TEST_CASE_TEMPLATE("layers on 16-bit numbers: the rounded result of float32", T, bfloat16, float16) {
  const Index d_model = 35, d_ff = 70;
  const Weights w = Weights::random(d_model, d_ff);
  const StateDict dict = w.dict();
  Random random(4);
  const Tensor<3> residual = random_tensor<3>({2, 41, d_ff}, random);
  for (const DType weights : {DType::float32, DType::bfloat16, DType::int8}) {
    const Linear linear(dict, "linear1.", weights);
    check<T>("Linear", d_model, d_ff, false, [&](const auto& x, const auto& y, int threads) {
      linear.forward(x, y, {.activation = Activation::gelu, .residual = residual.view, .num_threads = threads});
    });
    const FeedForward feed_forward(dict, "", {.weights = weights});
    check<T>("FeedForward", d_model, d_model, true,
             [&](const auto& x, const auto& y, int threads) { feed_forward.forward(x, y, threads); });
  }
  for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
    const Normalization norm(dict, "norm.", kind, 1e-5f);
    check<T>("Normalization", d_model, d_model, true,
             [&](const auto& x, const auto& y, int threads) { norm.forward(x, y, threads); });
  }
}

TEST_CASE_TEMPLATE("layers on 16-bit numbers: nothing, and illegal calls", T, bfloat16, float16) {
  const Weights w = Weights::random(6, 9);
  const StateDict dict = w.dict();
  const Linear linear(dict, "linear1.");
  const FeedForward feed_forward(dict, "");
  const Normalization norm(dict, "norm.", NormKind::rms, 0);
  linear.forward(View<const T, 3>(nullptr, {huge, 0, 6}), View<T, 3>(nullptr, {huge, 0, 9}));
  feed_forward.forward(View<const T, 3>(nullptr, {0, huge, 6}), View<T, 3>(nullptr, {0, huge, 6}));
  const HalfTensor<T, 3> x({2, 3, 6}), y({2, 3, 9}), same({2, 3, 6});
  const View<const T, 3> in = x.view;
  std::vector<Illegal> calls;
  for (const auto& wrong : wrong_views(in)) {
    const View<const T, 3> view = wrong.view;
    calls.push_back(
        {"Linear, x " + wrong.what, [=, &linear, &y] { linear.forward(view, y.view); }, {"Linear::forward: x"}});
    calls.push_back({"FeedForward, x " + wrong.what,
                     [=, &feed_forward, &same] { feed_forward.forward(view, same.view); },
                     {"FeedForward::forward: x"}});
  }
  const auto push = [&](const std::string& what, const std::function<void()>& call,
                        const std::vector<std::string>& words) { calls.push_back({what, call, words}); };
  push("width", [&] { norm.forward(y.view, y.view); }, {"Normalization::forward: x is [2, 3, 9]", "rows of 6"});
  push("y", [&] { linear.forward(in, same.view); }, {"Linear::forward: y is [2, 3, 6]", "rows of 9"});
  push("y over x", [&] { linear.forward(y.view.slice(2, 0, 6), y.view); }, {"Linear::forward: y", "overlaps x"});
  const View<const float, 3> over(reinterpret_cast<const float*>(y.view.data), {2, 3, 9}, {0, 0, 0});
  push("residual", [&, over] { linear.forward(in, y.view, {.residual = over}); },
       {"Linear::forward: y", "overlaps residual"});
  push("threads", [&] { feed_forward.forward(in, same.view, -1); }, {"FeedForward::forward: num_threads is -1"});
  check_illegal(calls, [&] {
    bool untouched = true;
    for (const View<T, 3>& view : {y.view, same.view})
      for_each(view, [&](const T& e) { untouched = untouched && e.bits == half_sentinel; });
    return untouched;
  });
}

}  // namespace
}  // namespace headlane::test
