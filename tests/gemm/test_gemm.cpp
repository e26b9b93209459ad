// gemm against the oracle: sizes, strides, alpha and beta; how far NaN and infinity propagate.
#include "support/scope.hpp"
#include "support/tolerance.hpp"

#include <headlane/gemm.hpp>

namespace headlane::test {
namespace {

struct GemmCase {
  Index m, n, k;
  GemmOptions options = {};
  std::uint64_t seed = 1;
  Layout layout_a = {}, layout_b = {}, layout_c = {};
};

std::string text_of(const GemmCase& s) {
  std::ostringstream text;
  text << "m " << s.m << ", n " << s.n << ", k " << s.k << ", alpha " << s.options.alpha << ", beta " << s.options.beta
       << ", a " << s.layout_a.name << ", b " << s.layout_b.name << ", c " << s.layout_c.name;
  return text.str();
}

void check_gemm(const GemmCase& s) {
  Random random(s.seed);
  const Tensor<2> a = random_tensor<2>({s.m, s.k}, random, s.layout_a);
  const Tensor<2> b = random_tensor<2>({s.k, s.n}, random, s.layout_b);
  const Tensor<2> c = random_tensor<2>({s.m, s.n}, random, s.layout_c);
  const GemmReference expected = gemm_reference(a.view, b.view, c.view, s.options);
  gemm(a.view, b.view, c.view, s.options);

  const bool all_zero = (s.k == 0 || s.options.alpha == 0) && s.options.beta == 0;
  Comparison comparison("gemm", text_of(s), s.seed, all_zero ? Comparison::Kind::special : Comparison::Kind::data);
  std::size_t at = 0;
  for_each_position(c.view.shape, [&](const auto& p) {
    const double bound = gemm_bound(s.k, expected.magnitude[at]);
    comparison.add({p[0], p[1]}, c.view(p[0], p[1]), expected.value[at], bound);
    ++at;
  });
  if (at > 0) comparison.finish();
  CHECK_MESSAGE(c.surroundings_untouched(), text_of(s));
}

TEST_CASE("gemm: every size along every dimension") {
  for (const Index size : tail_sizes) {
    check_gemm({.m = size, .n = 33, .k = 17});
    check_gemm({.m = size, .n = 5, .k = 64, .seed = 2});
    check_gemm({.m = 7, .n = size, .k = 19, .seed = 3});
    check_gemm({.m = 64, .n = size, .k = 3, .seed = 4});
    check_gemm({.m = 5, .n = 37, .k = size, .seed = 5});
    check_gemm({.m = 1, .n = 16, .k = size, .seed = 6});
    check_gemm({.m = size, .n = 1, .k = size, .seed = 7});
  }
}

TEST_CASE("gemm: more than one block along k, many tiles along m and n") {
  for (const Index k : {511, 512, 513, 1024, 1100, 1537})
    check_gemm({.m = 13, .n = 35, .k = k, .options = {.alpha = 0.7f, .beta = 1.3f}});
  check_gemm({.m = 5000, .n = 3, .k = 5});
  check_gemm({.m = 3, .n = 5000, .k = 5});
  check_gemm({.m = 2100, .n = 70, .k = 3});
  check_gemm({.m = 129, .n = 500, .k = 513});
  for (Index m = 11; m <= 25; ++m) check_gemm({.m = m, .n = 270, .k = 130});  // few rows, b beyond 128 KiB
  if (!slow_isa()) check_gemm({.m = 500, .n = 1023, .k = 1023});
}

TEST_CASE("gemm: random shapes, layouts, alpha and beta") {
  Random random(11);
  const std::vector<float> factors{0.0f, 1.0f, -1.0f, 0.7f, 1.3f};
  const std::vector<Index> sizes(tail_sizes.begin() + 1, tail_sizes.begin() + 14);  // 1 … 129
  for (int i = 0; i < (slow_isa() ? 150 : 400); ++i) {
    check_gemm({.m = random.pick(sizes),
                .n = random.pick(sizes),
                .k = random.pick(sizes),
                .options = {.alpha = random.pick(factors), .beta = random.pick(factors)},
                .seed = random.next() % 100000,
                .layout_a = random.pick(layouts()),
                .layout_b = random.pick(layouts()),
                .layout_c = random.pick(layouts())});
  }
}

TEST_CASE("gemm: every combination of layouts, and of alpha and beta") {
  for (const Layout& a : layouts()) {
    for (const Layout& b : layouts()) {
      for (const Layout& c : layouts())
        check_gemm({.m = 9,
                    .n = 18,
                    .k = 21,
                    .options = {.alpha = 1.3f, .beta = 0.7f},
                    .seed = 21,
                    .layout_a = a,
                    .layout_b = b,
                    .layout_c = c});
    }
  }
  for (const float alpha : {0.0f, 1.0f, -1.0f, 0.7f, 1.3f}) {
    for (const float beta : {0.0f, 1.0f, -1.0f, 0.7f, 1.3f}) {
      check_gemm({.m = 19, .n = 34, .k = 23, .options = {.alpha = alpha, .beta = beta}, .seed = 22});
      check_gemm({.m = 19, .n = 34, .k = 0, .options = {.alpha = alpha, .beta = beta}, .seed = 23});
      check_gemm({.m = 19,
                  .n = 34,
                  .k = 600,
                  .options = {.alpha = alpha, .beta = beta},
                  .seed = 24,
                  .layout_a = layouts()[1],
                  .layout_b = layouts()[1],
                  .layout_c = layouts()[1]});
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
