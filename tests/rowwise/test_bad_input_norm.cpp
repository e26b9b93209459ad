// Illegal calls of layer_norm and rms_norm; see test_bad_input.cpp.
#include "support/illegal.hpp"
#include "support/norm_case.hpp"

#include <doctest/doctest.h>

namespace headlane::test {
namespace {

// Legal operands of one of the functions, and illegal calls.
struct Operands {
  bool centred;
  const char* name = centred ? "layer_norm" : "rms_norm";
  Random random{1};
  Tensor<3> x = random_tensor<3>({3, 4, 5}, random), y{{3, 4, 5}}, sum{{3, 4, 5}}, shared{{6, 7, 8}};
  Tensor<1> vector = random_tensor<1>({5}, random);
  std::vector<Illegal> calls{};

  template <class Member, class Value>
  [[nodiscard]] NormCall with(Member NormCall::* member, const Value& value) const {
    NormCall call{.centred = centred, .x = View<const float, 3>(x.view), .y = y.view};
    call.*member = value;
    return call;
  }
  void push(const std::string& what, const NormCall& call, std::vector<std::string> words) {
    words.emplace_back(name);
    calls.push_back({std::string(name) + ", " + what, [=] { call.run(); }, words});
  }
  void check(Index min_count) const {
    check_illegal(calls, [&] {
      return all_sentinels(y.view) && all_sentinels(sum.view) && all_sentinels(shared.view) &&
             y.surroundings_untouched() && sum.surroundings_untouched() && shared.surroundings_untouched();
    });
    CHECK(std::ssize(calls) >= min_count);
  }
};

TEST_CASE("norms: illegal views") {
  for (const bool centred : {true, false}) {
    Operands o{centred};
    const View<const float, 3> x = o.x.view;
    const View<const float, 1> vector = o.vector.view;
    add(o.calls, o.name, "x", wrong_views(x), [&](auto view) { o.with(&NormCall::x, view).run(); });
    add(o.calls, o.name, "y", wrong_outputs(o.y.view), [&](auto view) { o.with(&NormCall::y, view).run(); });
    add(o.calls, o.name, "residual", without_null(wrong_views(x)),
        [&](auto view) { o.with(&NormCall::residual, view).run(); });
    add(o.calls, o.name, "sum", without_null(wrong_outputs(o.sum.view)),
        [&](auto view) { o.with(&NormCall::sum, view).run(); });
    add(o.calls, o.name, "weight", without_null(wrong_views(vector)),
        [&](auto view) { o.with(&NormCall::weight, view).run(); });
    if (centred)
      add(o.calls, o.name, "bias", without_null(wrong_views(vector)),
          [&](auto view) { o.with(&NormCall::bias, view).run(); });
    o.push("ranks", o.with(&NormCall::y, View<float, 3>(o.y.view).select(0, 0)), {"x", "y", "3", "2"});
    o.push("rank of residual", o.with(&NormCall::residual, x.select(0, 0)), {"residual", "2", "3"});
    o.push("rank of sum", o.with(&NormCall::sum, View<float, 3>(o.sum.view).select(0, 0)), {"sum", "2", "3"});
    o.push("no view", NormCall{.centred = centred}, {"x", "0"});
    o.push("num_threads", o.with(&NormCall::num_threads, -2), {"num_threads", "-2"});
    for (const float eps : {-1.0f, nan, infinity, -infinity}) o.push("eps", o.with(&NormCall::eps, eps), {"eps"});
    o.check(80);
  }
}

// Shifted by some elements, and with only the last element in common.
TEST_CASE("norms: y and sum over each other, and over inputs") {
  for (const bool centred : {true, false}) {
    Operands o{centred};
    float* p = o.shared.view.data + 100;
    const View<float, 3> at(p, {3, 4, 5});
    for (const Index shift : {-59, -5, -1, 1, 30, 59}) {
      const View<float, 3> other(p + shift, {3, 4, 5});
      NormCall y_over_x = o.with(&NormCall::y, at), y_over_residual = y_over_x;
      y_over_x.x = y_over_residual.residual = other;
      o.push("y over x", y_over_x, {"x", "y", "overlap"});
      o.push("y over residual", y_over_residual, {"residual", "y", "overlap"});
      NormCall sum_over_x = o.with(&NormCall::sum, at), sum_over_residual = sum_over_x;
      sum_over_x.x = sum_over_residual.residual = other;
      o.push("sum over x", sum_over_x, {"x", "sum", "overlap"});
      o.push("sum over residual", sum_over_residual, {"residual", "sum", "overlap"});
    }
    for (const Index shift : {-59, 0, 1, 59}) {
      NormCall call = o.with(&NormCall::y, at);
      call.sum = View<float, 3>(p + shift, {3, 4, 5});
      o.push("y over sum", call, {"y", "sum", "overlap"});
      call.x = at;
      o.push("in place, y over sum", call, {"sum", "overlap"});
    }
    for (const Index shift : {-4, 0, 30, 59}) {
      const View<const float, 1> over(p + shift, {5});
      for (const auto member : {&NormCall::weight, &NormCall::bias}) {
        if (!centred && member == &NormCall::bias) continue;
        NormCall y_over = o.with(member, over), sum_over = y_over;
        y_over.y = sum_over.sum = at;
        o.push("y over a vector", y_over, {"y", "overlap", member == &NormCall::bias ? "bias" : "weight"});
        o.push("sum over a vector", sum_over, {"sum", "overlap", member == &NormCall::bias ? "bias" : "weight"});
      }
    }
    o.check(centred ? 48 : 40);
  }
}

TEST_CASE("norms: unusual calls that are legal") {
  for (const bool centred : {true, false}) {
    NormCall call{.centred = centred,
                  .x = View<const float, 3>(nullptr, {huge, huge, 0}),
                  .y = View<float, 3>(nullptr, {huge, huge, 0})};
    call.run();
    call.x = View<const float, 2>(nullptr, {0, 5});
    call.y = View<float, 2>(nullptr, {0, 5});
    call.run();
    // An axis of one element may have any stride, the last one too.
    constexpr Index least = std::numeric_limits<Index>::min();
    const std::vector<float> x{3, -4, 5, 1};
    std::vector<float> y(4), again(4), sum(4);
    NormCall{.centred = centred, .x = View<const float, 1>(x.data(), {4}), .y = View<float, 1>(y.data(), {4})}.run();
    for (const Index stride : {Index{0}, huge, -huge, least}) {
      NormCall one{.centred = centred,
                   .x = View<const float, 3>(x.data(), {1, 4, 1}, {stride, 1, stride}),
                   .y = View<float, 3>(again.data(), {1, 4, 1}, {stride, 1, -(stride / 2)})};
      one.run();
      NormCall row{.centred = centred,
                   .x = View<const float, 3>(x.data(), {1, 1, 4}, {stride, stride, 1}),
                   .y = View<float, 3>(again.data(), {1, 1, 4}, {stride / 4, stride, 1})};
      row.sum = View<float, 3>(sum.data(), {1, 1, 4}, {stride, stride / 2, 1});
      row.run();
      CHECK(again == y);
      CHECK(sum == x);
    }
  }
}

}  // namespace
}  // namespace headlane::test
