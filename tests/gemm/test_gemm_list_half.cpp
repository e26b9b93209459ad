// Lists of products of bfloat16 and float16: the bits of a float32 product of each, rounded once.
#include "support/half_tensor.hpp"
#include "support/illegal.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <deque>
#include <span>
#include <string>
#include <vector>

namespace headlane::test {
namespace {

template <class T>
HalfTensor<T, 2> random_half(const std::array<Index, 2>& shape, Random& random, const Layout& layout = {}) {
  return HalfTensor<T, 2>(random_tensor<2>(shape, random).view, layout);
}

/// A product of a list, m x k x n, and what it should be.
template <class T>
struct OfList {
  HalfTensor<T, 2> a, b, c;
  Tensor<2> expected, residual;
  PackedMatrix packed;
  GemmProblemOf<T> problem;

  OfList(const std::array<Index, 3>& s, Random& random, bool is_packed)
      : a(random_half<T>({s[0], s[1]}, random, random.pick(layouts()))),
        b(random_half<T>({s[1], s[2]}, random, random.pick(layouts()))),
        c(random_half<T>({s[0], s[2]}, random, random.pick(layouts()))),
        expected(c.widened()),
        residual(random_tensor<2>({s[0], s[2]}, random)) {
    problem = {.a = a.view, .b = b.view, .c = c.view};
    problem.options.alpha = random.pick(std::vector<float>{0, 1, 0.7f});
    problem.options.beta = random.pick(std::vector<float>{0, 1, 0.3f});
    if (s[0] % 2 == 0) problem.options.residual = residual.view;
    gemm(a.widened().view, b.widened().view, expected.view, problem.options);
    if (!is_packed) return;
    packed = PackedMatrix(b.widened().view);
    problem.packed = &packed;
    problem.b = {};
  }
};

TEST_CASE_TEMPLATE("gemm_batch of a list of 16-bit numbers: the rounded products of float32", T, bfloat16, float16) {
  for (const int threads : {1, 3})
    for (int round = 0; round < 10; ++round) {
      Random random(static_cast<std::uint64_t>(round));
      std::deque<OfList<T>> all;
      std::vector<GemmProblemOf<T>> problems;
      for (const std::array<Index, 3>& s :
           {std::array<Index, 3>{1, 1, 1}, {40, 129, 65}, {0, 5, 3}, {6, 0, 9}, {5, 3, 0}, {33, 70, 18}, {2, 9, 40}}) {
        all.emplace_back(s, random, round % 2 == 1);
        problems.push_back(all.back().problem);
      }
      gemm_batch(problems, threads);
      for (const OfList<T>& one : all) {
        INFO(name_of_half<T>(), ", round ", round, ", ", threads, " threads, isa ", isa());
        CHECK(different_from_rounded(one.c.view, one.expected.view) == 0);
        CHECK(one.c.surroundings_untouched());
      }
    }
  gemm_batch(std::span<const GemmProblemOf<T>>());
}

TEST_CASE_TEMPLATE("lists of 16-bit products: illegal calls", T, bfloat16, float16) {
  Random random(1);
  const HalfTensor<T, 2> a = random_half<T>({5, 7}, random), b = random_half<T>({7, 9}, random), c({5, 9}),
                         other({5, 9});
  const View<const T, 2> va = a.view, vb = b.view;
  const View<T, 2> vc = c.view, over(const_cast<T*>(vb.data), {5, 9});
  std::vector<Illegal> calls;
  const auto push = [&](const std::string& what, const std::function<void()>& call,
                        const std::vector<std::string>& words) { calls.push_back({what, call, words}); };
  const auto list = [=](const View<const T, 2>& x, const View<T, 2>& y) {
    const std::array<GemmProblemOf<T>, 2> problems{{{.a = va, .b = vb, .c = vc}, {.a = x, .b = vb, .c = y}}};
    gemm_batch(problems);
  };
  for (const auto& wrong : wrong_views(va))
    push("list, a " + wrong.what, [=, to = other.view] { list(wrong.view, to); }, {"gemm_batch: problem 1: "});
  push("list, c twice", [=] { list(va, vc); }, {"gemm_batch: problem 0: c", "overlaps c"});
  push("list, c over b", [=] { list(va, over); }, {"gemm_batch: problem 1: c", "overlaps b"});
  push("list, c over residual",
       [=, to = other.view] {
         GemmProblemOf<T> p{.a = va, .b = vb, .c = to};
         p.options.residual = {reinterpret_cast<const float*>(to.data), {5, 9}, {0, 0}};
         gemm_batch(std::span<const GemmProblemOf<T>>(&p, 1));
       },
       {"gemm_batch: problem 0: c", "overlaps residual"});
  push("list, threads", [=] { gemm_batch(std::span<const GemmProblemOf<T>>(), -1); },
       {"gemm_batch: num_threads is -1"});
  check_illegal(calls, [&] {
    bool untouched = c.surroundings_untouched() && other.surroundings_untouched();
    for (const View<T, 2>& view : {vc, other.view})
      for_each(view, [&](const T& x) { untouched = untouched && x.bits == half_sentinel; });
    return untouched;
  });
}

}  // namespace
}  // namespace headlane::test
