// layer_norm and rms_norm: every argument wrong in every way, as in test_bad_input.cpp.
#include "support/illegal.hpp"

#include <doctest/doctest.h>
#include <headlane/norm.hpp>

namespace headlane::test {
namespace {

// One call of either function.
struct Call {
  bool centred;
  AnyView<const float> x;
  AnyView<float> y;
  float eps = 1;
  View<const float, 1> weight = {}, bias = {};
  AnyView<const float> residual = {};
  AnyView<float> sum = {};
  int num_threads = 0;

  void run() const {
    if (centred) layer_norm(x, y, {eps, weight, bias, residual, sum, num_threads});
    else rms_norm(x, y, {eps, weight, residual, sum, num_threads});
  }
};

TEST_CASE("norms: illegal calls") {
  Random random(1);
  const Tensor<3> x = random_tensor<3>({3, 4, 5}, random), y({3, 4, 5}), sum({3, 4, 5}), shared({6, 7, 8});
  const Tensor<1> vector = random_tensor<1>({5}, random);
  const View<const float, 3> vx = x.view;
  const View<const float, 1> vvector = vector.view;
  std::vector<Illegal> calls;
  for (const bool centred : {true, false}) {
    const char* name = centred ? "layer_norm" : "rms_norm";
    const Call good{centred, vx, y.view};
    const auto null_is_none = [=](const void* data) {
      if (data == nullptr)
        throw std::invalid_argument(std::string(name) + ": weight, bias, residual, sum: null means none");
    };
    const auto with = [=](auto Call::* member, auto view) {
      Call call = good;
      call.*member = view;
      return call;
    };
    add(calls, name, "x", wrong_views(vx), [=](auto view) { with(&Call::x, view).run(); });
    add(calls, name, "y", wrong_outputs(y.view), [=](auto view) { with(&Call::y, view).run(); });
    add(calls, name, "residual", wrong_views(vx), [=](auto view) {
      null_is_none(view.data);
      with(&Call::residual, view).run();
    });
    add(calls, name, "sum", wrong_outputs(sum.view), [=](auto view) {
      null_is_none(view.data);
      with(&Call::sum, view).run();
    });
    add(calls, name, "weight", wrong_views(vvector), [=](auto view) {
      null_is_none(view.data);
      with(&Call::weight, view).run();
    });
    if (centred)
      add(calls, name, "bias", wrong_views(vvector), [=](auto view) {
        null_is_none(view.data);
        with(&Call::bias, view).run();
      });
    const auto push = [&](const std::string& what, const Call& call, std::vector<std::string> words) {
      words.emplace_back(name);
      calls.push_back({std::string(name) + ", " + what, [=] { call.run(); }, words});
    };
    push("ranks", with(&Call::y, View<float, 3>(y.view).select(0, 0)), {"x", "y", "3", "2"});
    push("rank of residual", with(&Call::residual, vx.select(0, 0)), {"residual", "2", "3"});
    push("rank of sum", with(&Call::sum, View<float, 3>(sum.view).select(0, 0)), {"sum", "2", "3"});
    push("no view", Call{centred, {}, {}}, {"x", "0"});
    push("num_threads", with(&Call::num_threads, -2), {"num_threads", "-2"});
    for (const float eps : {-1.0f, nan, infinity, -infinity}) push("eps", with(&Call::eps, eps), {"eps"});
    // Outputs over each other and over what is read, shifted by some elements or the last one only.
    float* p = shared.view.data + 100;
    const View<float, 3> at(p, {3, 4, 5});
    for (const Index shift : {-59, -5, -1, 1, 30, 59}) {
      const View<float, 3> other(p + shift, {3, 4, 5});
      Call call = with(&Call::y, at);
      call.x = other;
      push("y over x", call, {"x", "y", "overlap"});
      call = with(&Call::y, at);
      call.residual = other;
      push("y over residual", call, {"residual", "y", "overlap"});
      call = with(&Call::sum, at);
      call.x = other;
      push("sum over x", call, {"x", "sum", "overlap"});
      call = with(&Call::sum, at);
      call.residual = other;
      push("sum over residual", call, {"residual", "sum", "overlap"});
    }
    for (const Index shift : {-59, 0, 1, 59}) {
      Call call = with(&Call::y, at);
      call.sum = View<float, 3>(p + shift, {3, 4, 5});
      push("y over sum", call, {"y", "sum", "overlap"});
      call.x = at;
      push("in place, y over sum", call, {"sum", "overlap"});
    }
    for (const Index shift : {-4, 0, 30, 59}) {
      const View<const float, 1> over(p + shift, {5});
      for (const auto member : {&Call::weight, &Call::bias}) {
        if (!centred && member == &Call::bias) continue;
        Call call = with(member, over);
        call.y = at;
        push("y over a vector", call, {"y", "overlap", member == &Call::bias ? "bias" : "weight"});
        call = with(member, over);
        call.sum = at;
        push("sum over a vector", call, {"sum", "overlap", member == &Call::bias ? "bias" : "weight"});
      }
    }
  }
  check_illegal(calls, [&] {
    return all_sentinels(y.view) && all_sentinels(sum.view) && all_sentinels(shared.view) &&
           y.surroundings_untouched() && sum.surroundings_untouched() && shared.surroundings_untouched();
  });
  CHECK(illegal_calls() >= 250);
}

TEST_CASE("norms: calls that look odd but are legal") {
  for (const bool centred : {true, false}) {
    Call call{centred, View<const float, 3>(nullptr, {huge, huge, 0}), View<float, 3>(nullptr, {huge, huge, 0})};
    call.run();
    call.x = View<const float, 2>(nullptr, {0, 5});
    call.y = View<float, 2>(nullptr, {0, 5});
    call.run();
    // An axis of one element may have any stride, the last one too.
    constexpr Index least = std::numeric_limits<Index>::min();
    const std::vector<float> x{3, -4, 5, 1};
    std::vector<float> y(4), again(4), sum(4);
    Call{centred, View<const float, 1>(x.data(), {4}), View<float, 1>(y.data(), {4})}.run();
    for (const Index stride : {Index{0}, huge, -huge, least}) {
      Call one{centred, View<const float, 3>(x.data(), {1, 4, 1}, {stride, 1, stride}),
               View<float, 3>(again.data(), {1, 4, 1}, {stride, 1, -(stride / 2)})};
      one.run();
      Call row{centred, View<const float, 3>(x.data(), {1, 1, 4}, {stride, stride, 1}),
               View<float, 3>(again.data(), {1, 1, 4}, {stride / 4, stride, 1})};
      row.sum = View<float, 3>(sum.data(), {1, 1, 4}, {stride, stride / 2, 1});
      row.run();
      CHECK(again == y);
      CHECK(sum == x);
    }
  }
}

}  // namespace
}  // namespace headlane::test
