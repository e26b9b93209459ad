// Illegal calls of gemm_batch, in both forms, and gemm_gated; see test_bad_input.cpp.
#include "support/illegal.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

namespace headlane::test {
namespace {

TEST_CASE("gemm_batch: illegal calls") {
  Random random(1);
  const char* const f = "gemm_batch";
  const Tensor<3> a = random_tensor<3>({3, 5, 7}, random), b = random_tensor<3>({3, 7, 9}, random), c({3, 5, 9});
  const Tensor<3> residual({3, 5, 9});
  const Tensor<2> bias({3, 9});
  const View<const float, 3> va = a.view, vb = b.view;
  const PackedMatrix packed(vb.select(0, 0)), other(vb.select(0, 0).transposed());
  std::vector<Illegal> calls;
  for (const float alpha : {0.0f, 1.0f}) {
    const GemmBatchOptions options{.alpha = alpha, .beta = 1};
    add(calls, f, "a", wrong_views(va), [=, &c](auto view) { gemm_batch(view, vb, c.view, options); });
    add(calls, f, "b", wrong_views(vb), [=, &c](auto view) { gemm_batch(va, view, c.view, options); });
    add(calls, f, "c", wrong_outputs(c.view), [=](auto view) { gemm_batch(va, vb, view, options); });
    add(calls, f, "a", wrong_views(va), [=, &c, &packed](auto view) { gemm_batch(view, packed, c.view, options); });
    add(calls, f, "c", wrong_outputs(c.view), [=, &packed](auto view) { gemm_batch(va, packed, view, options); });
  }
  add(calls, f, "bias", without_null(wrong_views<const float, 2>(bias.view)),
      [=, &c](auto view) { gemm_batch(va, vb, c.view, {.bias = view}); });
  add(calls, f, "residual", without_null(wrong_views<const float, 3>(residual.view)),
      [=, &c](auto view) { gemm_batch(va, vb, c.view, {.residual = view}); });
  calls.push_back(
      {"gemm_batch, packed sizes", [=, &c, &other] { gemm_batch(va, other, c.view); }, {f, "a", "b", "7", "9"}});
  calls.push_back({"gemm_batch, num_threads",
                   [=, &c] { gemm_batch(va, vb, c.view, {.num_threads = -3}); },
                   {f, "num_threads", "-3"}});
  calls.push_back({"gemm_batch, activation",
                   [=, &c] { gemm_batch(va, vb, c.view, {.activation = static_cast<Activation>(9)}); },
                   {f, "activation", "9"}});
  check_illegal(calls, [&] { return all_sentinels(c.view) && c.surroundings_untouched(); });
}

// Entirely, shifted, and in the last element only; and the matrices of a batch over each other.
TEST_CASE("gemm_batch: c over each operand, and over itself") {
  Random random(1);
  const char* const f = "gemm_batch";
  const Tensor<3> a = random_tensor<3>({3, 5, 7}, random), b = random_tensor<3>({3, 7, 9}, random);
  const View<const float, 3> va = a.view, vb = b.view;
  std::vector<Illegal> calls;
  const Tensor<1> shared({1000});
  float* p = shared.view.data;
  const View<float, 3> over(p, {3, 5, 9});
  for (const Index shift : {0, 1, 45, 134}) {
    const float* q = p + shift;
    calls.push_back({"gemm_batch, c over a",
                     [=] { gemm_batch({q, {3, 5, 7}}, vb, over); },
                     {f, "c of shape", "overlaps a of shape"}});
    calls.push_back({"gemm_batch, c over b",
                     [=] { gemm_batch(va, {q, {3, 7, 9}}, over); },
                     {f, "c of shape", "overlaps b of shape"}});
    calls.push_back({"gemm_batch, c over one b",
                     [=] { gemm_batch(va, {q, {3, 7, 9}, {0, 9, 1}}, over); },
                     {f, "c of shape", "overlaps b of shape"}});
    calls.push_back({"gemm_batch, c over bias",
                     [=] { gemm_batch(va, vb, over, {.bias = {q, {3, 9}}}); },
                     {f, "c of shape", "overlaps bias of shape"}});
    calls.push_back({"gemm_batch, c over residual",
                     [=] { gemm_batch(va, vb, over, {.residual = {q, {3, 5, 9}}}); },
                     {f, "c of shape", "overlaps residual of shape"}});
  }
  for (const Index step : {0, 1, 9, 44})
    calls.push_back(
        {"gemm_batch, c over itself", [=] { gemm_batch(va, vb, {p, {3, 5, 9}, {step, 9, 1}}); }, {f, "c", "overlap"}});
  check_illegal(calls, [&] { return all_sentinels(shared.view); });
}

/// Five legal products, one of which a test makes illegal.
struct List {
  Random random{2};
  Tensor<2> a = random_tensor<2>({5, 7}, random), b = random_tensor<2>({7, 9}, random), residual{{5, 9}};
  Tensor<1> bias{{9}};
  Tensor<3> c{{5, 5, 9}};
  PackedMatrix packed{b.view}, other{a.view};

  [[nodiscard]] std::vector<GemmProblem> problems() const {
    std::vector<GemmProblem> all;
    for (Index i = 0; i < 5; ++i) all.push_back({.a = a.view, .b = b.view, .c = c.view.select(0, i)});
    return all;
  }
  /// The call with problem `number` as `change` leaves it.
  template <class F>
  void call(std::size_t number, F change) const {
    std::vector<GemmProblem> all = problems();
    change(all[number]);
    gemm_batch(all);
  }
};

TEST_CASE("gemm_batch: illegal lists") {
  const List list;
  std::vector<Illegal> calls;
  const char* const f = "gemm_batch";
  for (const std::size_t number : {std::size_t{0}, std::size_t{3}, std::size_t{4}}) {
    const std::string problem = std::string(f) + ": problem " + std::to_string(number) + ": ";
    const char* const start = problem.c_str();
    add(calls, start, "a", wrong_views<const float, 2>(list.a.view),
        [=, &list](auto view) { list.call(number, [&](GemmProblem& p) { p.a = view; }); });
    add(calls, start, "b", wrong_views<const float, 2>(list.b.view),
        [=, &list](auto view) { list.call(number, [&](GemmProblem& p) { p.b = view; }); });
    add(calls, start, "c", wrong_outputs(list.c.view.select(0, static_cast<Index>(number))),
        [=, &list](auto view) { list.call(number, [&](GemmProblem& p) { p.c = view; }); });
    add(calls, start, "bias", without_null(wrong_views<const float, 1>(list.bias.view)),
        [=, &list](auto view) { list.call(number, [&](GemmProblem& p) { p.options.bias = view; }); });
    add(calls, start, "residual", without_null(wrong_views<const float, 2>(list.residual.view)),
        [=, &list](auto view) { list.call(number, [&](GemmProblem& p) { p.options.residual = view; }); });
    const auto push = [&](const char* what, auto change, std::vector<std::string> words) {
      words.push_back(problem);
      calls.push_back({problem + what, [=, &list] { list.call(number, change); }, words});
    };
    push("activation", [](GemmProblem& p) { p.options.activation = static_cast<Activation>(9); }, {"activation", "9"});
    push("packed sizes", [&](GemmProblem& p) { p.packed = &list.other; }, {"a", "b", "7", "5"});
    // With operands of its own.
    push("c over its a", [&](GemmProblem& p) { p.a = {p.c.data + 44, {5, 7}}; }, {"c of shape", "overlaps a of shape"});
    push("c over its b", [&](GemmProblem& p) { p.b = {p.c.data, {7, 9}}; }, {"c of shape", "overlaps b of shape"});
    push("c over its bias", [&](GemmProblem& p) { p.options.bias = {p.c.data + 9, {9}}; },
         {"c of shape", "overlaps bias of shape"});
  }
  calls.push_back({"num_threads", [&] { gemm_batch(list.problems(), -1); }, {f, "num_threads", "-1"}});
  check_illegal(calls, [&] { return all_sentinels(list.c.view) && list.c.surroundings_untouched(); });
}

TEST_CASE("gemm_batch: lists in which a c overlaps an operand of another problem") {
  const List list;
  std::vector<Illegal> calls;
  for (std::size_t i = 0; i < 5; ++i) {
    for (std::size_t j = 0; j < 5; ++j) {
      if (i == j) continue;
      // Problem j reads or writes the c of problem i, at least its last element: the message has
      // the first c that does.
      const auto push = [&](const char* what, const char* name, auto change, std::size_t number) {
        const std::string text =
            std::string(what) + " of problem " + std::to_string(j) + " over c of problem " + std::to_string(i);
        const auto call = [&list, i, j, change] {
          const View<float, 2> c = list.c.view.select(0, static_cast<Index>(i));
          list.call(j, [&](GemmProblem& p) { change(p, c); });
        };
        calls.push_back({text, call, {"gemm_batch: problem " + std::to_string(number) + ": ", name, "overlap"}});
      };
      using Problem = GemmProblem;
      using Other = View<float, 2>;
      push("a", "a", [](Problem& p, const Other& c) { p.a = {c.data, {5, 7}}; }, i);
      push("b", "b", [](Problem& p, const Other& c) { p.b = {c.data + 44, {7, 9}, {0, 0}}; }, i);
      push("bias", "bias", [](Problem& p, const Other& c) { p.options.bias = {c.data + 36, {9}}; }, i);
      push("residual", "residual", [](Problem& p, const Other& c) { p.options.residual = c; }, i);
      push("c", "c", [](Problem& p, const Other& c) { p.c = c; }, std::min(i, j));
    }
  }
  check_illegal(calls, [&] { return all_sentinels(list.c.view) && list.c.surroundings_untouched(); });
}

TEST_CASE("gemm_batch: unusual lists that are legal") {
  const List list;
  Random random(3);
  const Tensor<2> buffer = random_tensor<2>({5, 40}, random), expected({5, 9});
  const View<float, 2> a = buffer.view.slice(1, 0, 7);
  gemm(a, list.b.view, expected.view);
  std::vector<GemmProblem> all;  // columns of one buffer: three c beside the a of all
  for (Index i = 0; i < 3; ++i)
    all.push_back({.a = a, .b = list.b.view, .c = buffer.view.slice(1, 7 + 9 * i, 16 + 9 * i)});
  all[1].packed = &list.packed;
  all[1].b = misaligned(View<const float, 2>(list.b.view));                         // not looked at
  all[2].options.num_threads = -1;                                                  // nor this
  all.push_back({.a = {a.data, {0, 7}}, .b = list.b.view, .c = {a.data, {0, 9}}});  // no elements, none to overlap
  gemm_batch(all);
  for (Index i = 0; i < 3; ++i) CHECK(different_bits(all[static_cast<std::size_t>(i)].c, expected.view) == 0);
}

TEST_CASE("gemm_gated: illegal calls") {
  Random random(4);
  const char* const f = "gemm_gated";
  const Tensor<2> a = random_tensor<2>({5, 7}, random), gate = random_tensor<2>({7, 9}, random), c({5, 9});
  const Tensor<2> up = random_tensor<2>({7, 9}, random);
  const Tensor<1> bias({9});
  const View<const float, 2> va = a.view, vg = gate.view, vu = up.view;
  const PackedMatrix pg(vg), pu(vu), less_rows(vg.slice(0, 0, 6)), less_columns(vg.slice(1, 0, 8));
  std::vector<Illegal> calls;
  add(calls, f, "a", wrong_views(va), [=, &c](auto view) { gemm_gated(view, vg, vu, c.view); });
  add(calls, f, "gate", wrong_views(vg), [=, &c](auto view) { gemm_gated(va, view, vu, c.view); });
  add(calls, f, "up", wrong_views(vu), [=, &c](auto view) { gemm_gated(va, vg, view, c.view); });
  add(calls, f, "c", wrong_outputs(c.view), [=](auto view) { gemm_gated(va, vg, vu, view); });
  add(calls, f, "a", wrong_views(va), [=, &c, &pg, &pu](auto view) { gemm_gated(view, pg, pu, c.view); });
  add(calls, f, "c", wrong_outputs(c.view), [=, &pg, &pu](auto view) { gemm_gated(va, pg, pu, view); });
  add(calls, f, "gate_bias", without_null(wrong_views<const float, 1>(bias.view)),
      [=, &c](auto view) { gemm_gated(va, vg, vu, c.view, {.gate_bias = view}); });
  add(calls, f, "up_bias", without_null(wrong_views<const float, 1>(bias.view)),
      [=, &c, &pg, &pu](auto view) { gemm_gated(va, pg, pu, c.view, {.up_bias = view}); });
  for (const PackedMatrix* wrong : {&less_rows, &less_columns}) {
    const std::string size = wrong == &less_rows ? "6" : "8";
    calls.push_back(
        {"gemm_gated, packed gate", [=, &c, &pu] { gemm_gated(va, *wrong, pu, c.view); }, {f, "gate", size}});
    calls.push_back({"gemm_gated, packed up", [=, &c, &pg] { gemm_gated(va, pg, *wrong, c.view); }, {f, "up", size}});
  }
  calls.push_back({"gemm_gated, num_threads",
                   [=, &c] { gemm_gated(va, vg, vu, c.view, {.num_threads = -1}); },
                   {f, "num_threads", "-1"}});
  calls.push_back({"gemm_gated, activation",
                   [=, &c] { gemm_gated(va, vg, vu, c.view, {.activation = static_cast<Activation>(9)}); },
                   {f, "activation", "9"}});
  const Tensor<1> shared({200});
  float* p = shared.view.data;
  const View<float, 2> over(p, {5, 9});
  for (const Index shift : {0, 1, 44}) {
    const float* q = p + shift;
    const auto push = [&](const char* name, auto call) {
      calls.push_back(
          {std::string("gemm_gated, c over ") + name, call, {f, "c of shape", std::string("overlaps ") + name}});
    };
    push("a", [=] { gemm_gated({q, {5, 7}}, vg, vu, over); });
    push("a", [=, &pg, &pu] { gemm_gated({q, {5, 7}}, pg, pu, over); });
    push("gate", [=] { gemm_gated(va, View<const float, 2>{q, {7, 9}}, vu, over); });
    push("up", [=] { gemm_gated(va, vg, View<const float, 2>{q, {7, 9}}, over); });
    push("gate_bias", [=] { gemm_gated(va, vg, vu, over, {.gate_bias = {q, {9}}}); });
    push("up_bias", [=] { gemm_gated(va, vg, vu, over, {.up_bias = {q, {9}}}); });
  }
  check_illegal(calls,
                [&] { return all_sentinels(c.view) && c.surroundings_untouched() && all_sentinels(shared.view); });
}

TEST_CASE("enough illegal calls were made") {
  MESSAGE(illegal_calls(), " illegal calls");
  CHECK(illegal_calls() >= 500);
}

}  // namespace
}  // namespace headlane::test
