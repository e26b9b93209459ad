// A residual of bfloat16 or float16: the bits of one that is widened beforehand, in each function
// that takes one, for operands of any type.
#include "support/half_tensor.hpp"
#include "support/illegal.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <array>
#include <deque>
#include <string>
#include <tuple>
#include <vector>

namespace headlane::test {
namespace {

/// A residual in 16 bits, and the same widened.
template <class T, int Rank>
struct Residual {
  HalfTensor<T, Rank> half;
  Tensor<Rank> wide;

  Residual(const std::array<Index, static_cast<std::size_t>(Rank)>& shape, Random& random, const Layout& layout = {})
      : half(random_tensor<Rank>(shape, random).view, layout), wide(half.widened()) {}
};

template <class View>
void require_same(const View& actual, const View& expected, const std::string& what) {
  CHECK_MESSAGE(different_bits(actual, expected) == 0, what, ", isa ", isa());
}

TEST_CASE_TEMPLATE("a residual of 16 bits: gemm of float32 in any layout, packed as any type", T, bfloat16, float16) {
  struct Stored {
    DType type, activations;
  };
  const std::vector<Stored> all{{DType::float32, DType::float32},
                                {DType::bfloat16, DType::bfloat16},
                                {DType::float16, DType::float32},
                                {DType::int8, DType::int8},
                                {DType::int4_group32, DType::int8}};
  for (const std::array<Index, 3>& s : {std::array<Index, 3>{1, 1, 1}, {37, 140, 50}, {5, 0, 33}, {70, 530, 65}})
    for (const Layout& layout : layouts()) {
      const auto [m, k, n] = std::tuple(s[0], s[1], s[2]);
      Random random(static_cast<std::uint64_t>(m));
      const Tensor<2> a = random_tensor<2>({m, k}, random), b = random_tensor<2>({k, n}, random);
      const Tensor<2> before = random_tensor<2>({m, n}, random);
      const Tensor<1> bias = random_tensor<1>({n}, random);
      const Residual<T, 2> residual({m, n}, random, layout);
      const auto product = [&](const FloatingView<2>& added, const PackedMatrix* packed, GemmOptions options) {
        Tensor<2> c({m, n}, layout);
        for_each_position(c.view.shape, [&](const auto& at) { c.view(at[0], at[1]) = before.view(at[0], at[1]); });
        options.residual = added;
        packed != nullptr ? gemm(a.view, *packed, c.view, options) : gemm(a.view, b.view, c.view, options);
        CHECK(c.surroundings_untouched());
        return c;
      };
      for (const int threads : {1, 3}) {
        const GemmOptions options{
            .beta = 0.3f, .bias = bias.view, .activation = Activation::gelu, .num_threads = threads};
        const std::string what = name_of_half<T>() + ", " + layout.name + ", " + std::to_string(m) + " rows";
        require_same(product(residual.half.view, nullptr, options).view,
                     product(residual.wide.view, nullptr, options).view, what);
        for (const Stored& stored : all) {
          const PackedMatrix packed(b.view, {.type = stored.type});
          GemmOptions own = options;
          own.activations = stored.activations;
          require_same(product(residual.half.view, &packed, own).view, product(residual.wide.view, &packed, own).view,
                       what + ", " + name_of(stored.type));
        }
      }
      CHECK(residual.half.surroundings_untouched());
    }
}

/// Products of type C with a residual of type T.
template <class T, class C>
void check_halves(Index m, Index k, Index n) {
  Random random(2);
  const HalfTensor<C, 2> a(random_tensor<2>({m, k}, random).view), b(random_tensor<2>({k, n}, random).view);
  const PackedMatrix packed(b.widened().view, {.type = DType::int8});
  const Residual<T, 2> residual({m, n}, random, {.name = "padded transposed", .order = Order::columns, .padding = 3});
  const auto compare = [&](const auto& run) {
    const HalfTensor<C, 2> c({m, n}), expected({m, n});
    run(c.view, residual.half.view);
    run(expected.view, residual.wide.view);
    CHECK_MESSAGE(different_from_rounded(c.view, expected.view) == 0, name_of_half<C>(), " + ", name_of_half<T>(),
                  ", isa ", isa());
  };
  for (const int threads : {1, 3}) {
    compare([&](const auto& c, const FloatingView<2>& added) {
      gemm(a.view, b.view, c, {.residual = added, .num_threads = threads});
    });
    compare([&](const auto& c, const FloatingView<2>& added) {
      gemm(a.view, packed, c, {.residual = added, .activations = DType::int8, .num_threads = threads});
    });
  }
}

TEST_CASE_TEMPLATE("a residual of 16 bits: products of 16-bit numbers of either type", T, bfloat16, float16) {
  check_halves<T, bfloat16>(33, 70, 40);
  check_halves<T, float16>(33, 70, 40);
  if (!slow_isa()) check_halves<T, bfloat16>(700, 3, 6000);  // more rows than are widened at a time
}

TEST_CASE_TEMPLATE("a residual of 16 bits: gemm_batch, one for each product, one for all and one row for all", T,
                   bfloat16, float16) {
  const Index count = 3, m = 21, k = 70, n = 50;
  Random random(3);
  const Tensor<3> a = random_tensor<3>({count, m, k}, random), b = random_tensor<3>({count, k, n}, random);
  const HalfTensor<float16, 3> half_a(a.view), half_b(b.view);
  const PackedMatrix packed(b.view.select(0, 0));
  for (const Layout& layout : layouts()) {
    const Residual<T, 3> residual({count, m, n}, random, layout);
    const auto compare = [&](const char* what, const auto& choose) {
      const FloatingView<3> half = choose(residual.half.view), wide = choose(residual.wide.view);
      const Tensor<3> c({count, m, n}), expected({count, m, n});
      const HalfTensor<float16, 3> half_c({count, m, n}), half_expected({count, m, n});
      for (const int threads : {1, 3}) {
        const std::string where = std::string(what) + ", " + layout.name;
        gemm_batch(a.view, b.view, c.view, {.residual = half, .num_threads = threads});
        gemm_batch(a.view, b.view, expected.view, {.residual = wide, .num_threads = threads});
        require_same(c.view, expected.view, where);
        gemm_batch(a.view, packed, c.view, {.residual = half, .num_threads = threads});
        gemm_batch(a.view, packed, expected.view, {.residual = wide, .num_threads = threads});
        require_same(c.view, expected.view, where + ", packed");
        gemm_batch(half_a.view, half_b.view, half_c.view, {.residual = half, .num_threads = threads});
        gemm_batch(half_a.view, half_b.view, half_expected.view, {.residual = wide, .num_threads = threads});
        CHECK(different_from_rounded(half_c.view, half_expected.view) == 0);
      }
    };
    compare("each", [](const auto& view) { return view; });
    compare("one", [&](const auto& view) { return view.select(0, 1).broadcast(0, count); });
    compare("one row",
            [&](const auto& view) { return view.select(0, 1).select(0, 2).broadcast(0, m).broadcast(0, count); });
  }
}

TEST_CASE_TEMPLATE("a residual of 16 bits: lists of products of float32 and of 16 bits, some without one", C, float,
                   bfloat16, float16) {
  using Half = std::conditional_t<std::is_same_v<C, float>, bfloat16, C>;
  const std::vector<std::array<Index, 3>> sizes{{1, 1, 1}, {40, 129, 65}, {0, 5, 3}, {6, 0, 9},
                                                {5, 3, 0}, {33, 70, 18},  {2, 9, 40}};
  for (const int threads : {1, 3}) {
    Random random(4);
    std::deque<Tensor<2>> floats;
    std::deque<HalfTensor<Half, 2>> halves;
    const auto tensor = [&](Index rows, Index columns) -> View<C, 2> {
      floats.push_back(random_tensor<2>({rows, columns}, random));
      if constexpr (std::is_same_v<C, float>) return floats.back().view;
      else return halves.emplace_back(floats.back().view).view;
    };
    std::deque<Residual<bfloat16, 2>> bfloats;
    std::deque<Residual<float16, 2>> float16s;
    std::vector<GemmProblemOf<C>> given, widened;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto [m, k, n] = std::tuple(sizes[i][0], sizes[i][1], sizes[i][2]);
      given.push_back({.a = tensor(m, k), .b = tensor(k, n), .c = tensor(m, n)});
      widened.push_back(given.back());
      widened.back().c = tensor(m, n);
      const Layout& layout = random.pick(layouts());
      const Residual<bfloat16, 2>& one = bfloats.emplace_back(std::array{m, n}, random, layout);
      const Residual<float16, 2>& other = float16s.emplace_back(std::array{m, n}, random, layout);
      if (i % 4 == 3) continue;
      const auto set = [&](GemmProblemOf<C>& p, const auto& view) { p.options.residual = view; };
      i % 4 == 0 ? set(given.back(), one.half.view) : set(given.back(), other.half.view);
      i % 4 == 0 ? set(widened.back(), one.wide.view) : set(widened.back(), other.wide.view);
      if (i % 4 == 2) given.back().options.residual = widened.back().options.residual;  // of float32
    }
    gemm_batch(given, threads);
    gemm_batch(widened, threads);
    for (std::size_t i = 0; i < sizes.size(); ++i)
      for_each_position(given[i].c.shape, [&](const auto& at) {
        CHECK(bits_of(static_cast<float>(given[i].c(at[0], at[1]))) ==
              bits_of(static_cast<float>(widened[i].c(at[0], at[1]))));
      });
  }
}

TEST_CASE_TEMPLATE("a residual of 16 bits: Linear", T, bfloat16, float16) {
  Random random(5);
  const Tensor<2> weight = random_tensor<2>({50, 35}, random);
  const Linear linear(StateDict{{"weight", weight.view}});
  const Tensor<3> x = random_tensor<3>({2, 21, 35}, random), y({2, 21, 50}), expected({2, 21, 50});
  const HalfTensor<bfloat16, 3> half_x(x.view), half_y({2, 21, 50}), half_expected({2, 21, 50});
  for (const Layout& layout : layouts()) {
    const Residual<T, 3> residual({2, 21, 50}, random, layout);
    linear.forward(x.view, y.view, {.residual = residual.half.view, .num_threads = 2});
    linear.forward(x.view, expected.view, {.residual = residual.wide.view});
    require_same(y.view, expected.view, std::string("Linear, ") + layout.name);
    linear.forward(half_x.view, half_y.view, {.residual = residual.half.view, .num_threads = 2});
    linear.forward(half_x.view, half_expected.view, {.residual = residual.wide.view});
    CHECK(different_from_rounded(half_y.view, half_expected.view) == 0);
  }
}

TEST_CASE_TEMPLATE("a residual of 16 bits between guard pages", T, bfloat16, float16) {
  Random random(6);
  GuardedBuffer of_residual(4096);
  for (const Index n : {1, 15, 16, 17, 33, 65})
    for (const Place where : {Place::start, Place::end}) {
      const Tensor<2> a = random_tensor<2>({5, 7}, random), b = random_tensor<2>({7, n}, random), c({5, n}),
                      expected({5, n});
      const Residual<T, 2> residual({5, n}, random);
      gemm(a.view, b.view, c.view, {.residual = placed(of_residual, residual.half.view, where)});
      gemm(a.view, b.view, expected.view, {.residual = residual.wide.view});
      require_same(c.view, expected.view, "n = " + std::to_string(n));
    }
}

TEST_CASE_TEMPLATE("a residual of 16 bits: nothing, however large, and one element for all", T, bfloat16, float16) {
  constexpr Index most = std::numeric_limits<Index>::max();
  const T one(2.0f);
  const View<const float, 2> a(nullptr, {huge, 0}), b(nullptr, {0, 0});
  const View<float, 2> nothing(nullptr, {huge, 0});
  const GemmOptions options{.residual = View<const T, 2>(&one, {huge, 0}, {most, most})};
  gemm(a, b, nothing, options);
  const GemmProblem problem{.a = a, .b = b, .c = nothing, .options = options};
  gemm_batch(std::span(&problem, 1));
  const Tensor<2> c({300, 400});
  gemm(View<const float, 2>(nullptr, {300, 0}), {nullptr, {0, 400}}, c.view,
       {.residual = View<const T, 2>(&one, {300, 400}, {0, 0})});
  for_each(c.view, [](float x) { CHECK(x == 2); });
}

TEST_CASE_TEMPLATE("a residual of 16 bits: illegal calls", T, bfloat16, float16) {
  Random random(7);
  const Tensor<2> a = random_tensor<2>({5, 7}, random), b = random_tensor<2>({7, 9}, random), c({5, 9});
  const HalfTensor<T, 2> residual({5, 9});
  const View<const float, 2> va = a.view, vb = b.view;
  const View<float, 2> vc = c.view;
  const Linear linear(StateDict{{"weight", vb.transposed()}});
  const auto one = [](const auto& view) { return view.broadcast(0, 1); };
  const auto list = [=](const View<const T, 2>& view) {
    const GemmProblem problem{.a = va, .b = vb, .c = vc, .options = {.residual = view}};
    gemm_batch(std::span(&problem, 1));
  };
  std::vector<Illegal> calls;
  const auto wrong = without_null(wrong_views(View<const T, 2>(residual.view)));
  add(calls, "gemm", "residual", wrong, [=](auto view) { gemm(va, vb, vc, {.residual = view}); });
  add(calls, "gemm_batch", "residual", wrong,
      [=](auto view) { gemm_batch(one(va), one(vb), one(vc), {.residual = one(view)}); });
  add(calls, "gemm_batch: problem 0", "residual", wrong, list);
  add(calls, "Linear::forward", "residual", wrong,
      [=, &linear](auto view) { linear.forward(one(va), one(vc), {.residual = one(view)}); });
  // The last two bytes of c, and its first ones.
  for (const Index first : {Index{89}, Index{-44}}) {
    const View<const T, 2> over(reinterpret_cast<const T*>(vc.data) + first, {5, 9});
    const auto push = [&](const std::string& function, const std::function<void()>& call) {
      calls.push_back({function + ", c over residual", call, {function, "of shape [", "overlaps residual"}});
    };
    push("gemm: c", [=] { gemm(va, vb, vc, {.residual = over}); });
    push("gemm_batch: c", [=] { gemm_batch(one(va), one(vb), one(vc), {.residual = one(over)}); });
    push("gemm_batch: problem 0: c", [=] { list(over); });
    push("Linear::forward: y", [=, &linear] { linear.forward(one(va), one(vc), {.residual = one(over)}); });
  }
  check_illegal(calls, [&] { return all_sentinels(vc) && c.surroundings_untouched(); });
  CHECK(calls.size() == 8 + 4 * wrong.size());
}

}  // namespace
}  // namespace headlane::test
