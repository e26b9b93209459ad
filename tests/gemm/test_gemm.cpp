// gemm against the oracle: sizes, strides, alpha and beta, and what NaN and infinity may reach.
#include "support/scope.hpp"
#include "support/tolerance.hpp"

#include <headlane/gemm.hpp>

namespace headlane::test {
namespace {

struct Sizes {
  Index m, n, k;
};

std::string text_of_case(const Sizes& s, const GemmOptions& o, const Layout& la, const Layout& lb, const Layout& lc) {
  std::ostringstream text;
  text << "m " << s.m << ", n " << s.n << ", k " << s.k << ", alpha " << o.alpha << ", beta " << o.beta << ", a "
       << la.name << ", b " << lb.name << ", c " << lc.name;
  return text.str();
}

void check_gemm(const Sizes& s, const GemmOptions& options = {}, std::uint64_t seed = 1, const Layout& layout_a = {},
                const Layout& layout_b = {}, const Layout& layout_c = {}) {
  Random random(seed);
  const Tensor<2> a = random_tensor<2>({s.m, s.k}, random, layout_a);
  const Tensor<2> b = random_tensor<2>({s.k, s.n}, random, layout_b);
  const Tensor<2> c = random_tensor<2>({s.m, s.n}, random, layout_c);
  const GemmReference expected = gemm_reference(a.view, b.view, c.view, options);
  gemm(a.view, b.view, c.view, options);

  const std::string text = text_of_case(s, options, layout_a, layout_b, layout_c);
  const bool all_zero = (s.k == 0 || options.alpha == 0) && options.beta == 0;
  Comparison comparison("gemm", text, seed, all_zero ? Comparison::Kind::special : Comparison::Kind::data);
  std::size_t at = 0;
  for_each_position(c.view.shape, [&](const auto& p) {
    const double bound = gemm_bound(s.k, expected.magnitude[at]);
    comparison.add({p[0], p[1]}, c.view(p[0], p[1]), expected.value[at], bound);
    ++at;
  });
  if (at > 0) comparison.finish();
  CHECK_MESSAGE(c.surroundings_untouched(), text);
}

TEST_CASE("gemm: every size along every dimension") {
  for (const Index size : tail_sizes) {
    check_gemm({size, 33, 17});
    check_gemm({size, 5, 64}, {}, 2);
    check_gemm({7, size, 19}, {}, 3);
    check_gemm({64, size, 3}, {}, 4);
    check_gemm({5, 37, size}, {}, 5);
    check_gemm({1, 16, size}, {}, 6);
    check_gemm({size, 1, size}, {}, 7);
  }
}

TEST_CASE("gemm: more than one block along k, many tiles along m and n") {
  for (const Index k : {511, 512, 513, 1024, 1100, 1537}) check_gemm({13, 35, k}, {0.7f, 1.3f});
  check_gemm({5000, 3, 5});
  check_gemm({3, 5000, 5});
  check_gemm({2100, 70, 3});
  check_gemm({129, 500, 513});
  if (!slow_isa()) check_gemm({500, 1023, 1023});
}

TEST_CASE("gemm: random shapes, layouts, alpha and beta") {
  Random random(11);
  const std::vector<float> factors{0.0f, 1.0f, -1.0f, 0.7f, 1.3f};
  const std::vector<Index> sizes(tail_sizes.begin() + 1, tail_sizes.begin() + 14);  // 1 … 129
  for (int i = 0; i < (slow_isa() ? 150 : 400); ++i) {
    const Sizes s{random.pick(sizes), random.pick(sizes), random.pick(sizes)};
    const GemmOptions options{random.pick(factors), random.pick(factors)};
    check_gemm(s, options, random.next() % 100000, random.pick(layouts()), random.pick(layouts()),
               random.pick(layouts()));
  }
}

TEST_CASE("gemm: every combination of layouts, and of alpha and beta") {
  for (const Layout& a : layouts()) {
    for (const Layout& b : layouts()) {
      for (const Layout& c : layouts()) check_gemm({9, 18, 21}, {1.3f, 0.7f}, 21, a, b, c);
    }
  }
  for (const float alpha : {0.0f, 1.0f, -1.0f, 0.7f, 1.3f}) {
    for (const float beta : {0.0f, 1.0f, -1.0f, 0.7f, 1.3f}) {
      check_gemm({19, 34, 23}, {alpha, beta}, 22);
      check_gemm({19, 34, 0}, {alpha, beta}, 23);
      check_gemm({19, 34, 600}, {alpha, beta}, 24, layouts()[1], layouts()[1], layouts()[1]);
    }
  }
}

TEST_CASE("gemm: broadcast inputs by stride 0") {
  Random random(31);
  const Tensor<2> row = random_tensor<2>({1, 40}, random), other = random_tensor<2>({40, 21}, random);
  const View<const float, 2> a(row.view.data, {6, 40}, {0, 1});
  const Tensor<2> c({6, 21}), once({1, 21});
  gemm(a, other.view, c.view);
  gemm(row.view, other.view, once.view);
  for (Index i = 0; i < 6; ++i) CHECK(different_bits(c.view.slice(0, i, i + 1), once.view) == 0);
}

TEST_CASE("gemm: c is not read if beta is 0, a and b are not read if alpha is 0") {
  for (const Index k : {0, 5, 600}) {
    Random random(51);
    const Tensor<2> a = random_tensor<2>({9, k}, random), b = random_tensor<2>({k, 35}, random);
    const Tensor<2> c({9, 35}), clean({9, 35});  // sentinels are NaN
    for_each(clean.view, [](float& x) { x = 0; });
    gemm(a.view, b.view, c.view);
    gemm(a.view, b.view, clean.view);
    CHECK(different_bits(c.view, clean.view) == 0);

    for (const float bad : {nan, infinity}) {
      for_each(a.view, [&](float& x) { x = bad; });
      for_each(b.view, [&](float& x) { x = bad; });
      for (const float beta : {0.0f, 1.0f, 0.7f}) {
        const Tensor<2> d = random_tensor<2>({9, 35}, random);
        const std::vector<float> before = elements(d.view);
        gemm(a.view, b.view, d.view, {.alpha = 0, .beta = beta});
        std::size_t at = 0;
        Index wrong = 0;
        for_each(d.view, [&](float x) { wrong += x == beta * before[at++] ? 0 : 1; });
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("gemm: NaN and infinity reach their row or column and nothing else") {
  constexpr Index m = 23, n = 41;
  for (const Index k : {17, 530}) {
    for (const float bad : {nan, infinity, -infinity}) {
      Random random(61);
      const Tensor<2> a = random_tensor<2>({m, k}, random), b = random_tensor<2>({k, n}, random);
      const Tensor<2> clean({m, n}), c({m, n});
      gemm(a.view, b.view, clean.view);
      const Index row = 11, column = 37, at = k - 1;
      const float a_before = a.view(row, at);
      a.view(row, at) = bad;
      gemm(a.view, b.view, c.view);
      Comparison of_row("gemm special", "bad element of a", 61, Comparison::Kind::special);
      for (Index i = 0; i < m; ++i) {
        const View<float, 2> others = c.view.slice(0, i, i + 1);
        if (i != row) CHECK(different_bits(others, clean.view.slice(0, i, i + 1)) == 0);
      }
      for (Index j = 0; j < n; ++j) of_row.add({row, j}, c.view(row, j), double{bad} * double{b.view(at, j)}, 0);
      of_row.finish();

      a.view(row, at) = a_before;
      b.view(at, column) = bad;
      gemm(a.view, b.view, c.view);
      Comparison of_column("gemm special", "bad element of b", 61, Comparison::Kind::special);
      for (Index i = 0; i < m; ++i) {
        of_column.add({i, column}, c.view(i, column), double{bad} * double{a.view(i, at)}, 0);
        c.view(i, column) = clean.view(i, column);
      }
      of_column.finish();
      CHECK(different_bits(c.view, clean.view) == 0);
    }
  }
}

TEST_CASE("gemm: signed zeros, denormals and overflow follow IEEE arithmetic") {
  Tensor<2> a({1, 1}), b({1, 17}), c({1, 17});
  for_each(b.view, [](float& x) { x = 0x1p-100f; });
  a.view(0, 0) = 0x1p-40f;  // 2^-140 is denormal and exact
  gemm(a.view, b.view, c.view);
  for (Index j = 0; j < 17; ++j) CHECK(c.view(0, j) == 0x1p-140f);
  a.view(0, 0) = 0x1p100f;
  for_each(b.view, [](float& x) { x = -0x1p100f; });
  gemm(a.view, b.view, c.view);
  for (Index j = 0; j < 17; ++j) CHECK(c.view(0, j) == -infinity);
}

}  // namespace
}  // namespace headlane::test
