// gemm in bulk: 12,000 random shapes of integers, whose products are exact in any order; real
// numbers, bit by bit as the header computes them; and their error in units of
// eps · (|alpha| Σ|a||b| + |beta| |c|).
#include "support/scope.hpp"
#include "support/tolerance.hpp"

#include <headlane/gemm.hpp>

#include <cmath>
#include <set>
#include <string>

namespace headlane::test {
namespace {

struct Case {
  Index m, n, k;
  std::uint64_t seed;
  GemmOptions options = {};
  Layout a = {}, b = {}, c = {};

  [[nodiscard]] std::string text() const {
    std::ostringstream text;
    text << "m " << m << ", n " << n << ", k " << k << ", alpha " << options.alpha << ", beta " << options.beta << ", "
         << options.num_threads << " threads, a " << a.name << ", b " << b.name << ", c " << c.name << ", isa " << isa()
         << ", seed " << seed;
    return text.str();
  }
};

// Most sizes are small, every tenth shape has sizes up to 200, and some have several blocks along k
// or a b that is packed on the way.
Case random_case(Index i, Random& random) {
  const std::vector<float> factors{0, 1, -1, 0.7f, 1.3f};
  const Index most = i % 10 == 0 ? 200 : i % 10 < 4 ? 40 : 14;
  Case s{.m = random.integer(0, most),
         .n = random.integer(0, most),
         .k = random.integer(0, most),
         .seed = random.next() % 1000000};
  if (i % 200 == 1) s.k = random.integer(500, 1100);
  if (i % 200 == 2)
    s = {.m = random.integer(33, 70), .n = random.integer(100, 700), .k = random.integer(100, 600), .seed = s.seed};
  s.options = {.alpha = random.pick(factors),
               .beta = random.pick(factors),
               .num_threads = static_cast<int>(random.integer(0, 4))};
  for (Layout* layout : {&s.a, &s.b, &s.c}) *layout = random.pick(layouts());
  return s;
}

/// [m, n] sums of products of dense operands, from row p of b on at most 512 rows.
template <class T>
void add_products(const Case& s, Index first, const std::vector<T>& a, const std::vector<T>& b, std::vector<T>& sums) {
  std::fill(sums.begin(), sums.end(), T{0});
  for (Index i = 0; i < s.m; ++i)
    for (Index p = first; p < std::min<Index>(first + 512, s.k); ++p) {
      const T factor = a[static_cast<std::size_t>(i * s.k + p)];
      const T* row = b.data() + p * s.n;
      T* sum = sums.data() + i * s.n;
      for (Index j = 0; j < s.n; ++j) sum[j] += factor * row[j];
    }
}

/// c as the header computes it; the chains are integers below 2^24.
std::vector<float> expected_integers(const Case& s, const std::vector<float>& a, const std::vector<float>& b,
                                     std::vector<float> c) {
  for (float& x : c) x = s.options.beta == 0 ? 0.0f : s.options.beta * x;
  std::vector<float> chains(c.size());
  for (Index first = 0; first < s.k && s.options.alpha != 0; first += 512) {
    add_products(s, first, a, b, chains);
    for (std::size_t i = 0; i < c.size(); ++i) c[i] = std::fma(s.options.alpha, chains[i], c[i]);
  }
  return c;
}

TEST_CASE("gemm: integers give the one exact value, bit by bit") {
  Random random(41);
  const Index shapes = slow_isa() ? 2000 : 12000;
  Index compared = 0, differing = 0, stray = 0;
  std::string first;
  std::set<std::string> combinations;
  for (Index i = 0; i < shapes; ++i) {
    const Case s = random_case(i, random);
    combinations.insert(std::string(s.a.name) + "," + s.b.name + "," + s.c.name);
    Random values(s.seed);
    const Tensor<2> a({s.m, s.k}, s.a), b({s.k, s.n}, s.b), c({s.m, s.n}, s.c);
    for (const auto* t : {&a, &b, &c}) fill_integers(t->view, values, 8);
    const std::vector<float> expected = expected_integers(s, elements(a.view), elements(b.view), elements(c.view));
    gemm(a.view, b.view, c.view, s.options);
    std::size_t at = 0;
    for_each_position(c.view.shape, [&](const auto& p) {
      const float x = c.view(p[0], p[1]), y = expected[at++];
      if (bits_of(x) == bits_of(y) || differing++ > 0) return;
      first = s.text() + ", index " + text_of(p) + ": " + std::to_string(x) + ", expected " + std::to_string(y);
    });
    compared += static_cast<Index>(at);
    stray += c.surroundings_untouched() ? 0 : 1;
  }
  MESSAGE("exact gemm, isa ", isa(), ": ", shapes, " shapes, ", compared, " elements, ", differing, " differ");
  CHECK(compared > 300 * shapes);
  CHECK((slow_isa() || combinations.size() == layouts().size() * layouts().size() * layouts().size()));
  CHECK_MESSAGE(differing == 0, "the first: ", first);
  CHECK(stray == 0);
}

TEST_CASE("gemm: real numbers have the bits of the formula in the header") {
  Random random(43);
  Index several_chains = 0, several_blocks = 0;
  for (Index i = 0; i < (slow_isa() ? 100 : 300); ++i) {
    Case s = random_case(i, random);
    if (i % 3 == 0) s.k = random.pick(std::vector<Index>{127, 128, 129, 255, 256, 257, 384, 511, 512, 513, 640, 1100});
    several_chains += s.k > 128 ? 1 : 0;
    several_blocks += s.k > 512 ? 1 : 0;
    Random values(s.seed);
    const Tensor<2> a = random_tensor<2>({s.m, s.k}, values, s.a), b = random_tensor<2>({s.k, s.n}, values, s.b);
    const Tensor<2> c = random_tensor<2>({s.m, s.n}, values, s.c);
    const std::vector<float> left = elements(a.view), right = elements(b.view), before = elements(c.view);
    gemm(a.view, b.view, c.view, s.options);
    std::size_t at = 0;
    for_each_position(c.view.shape, [&](const auto& p) {
      const auto row = [&](Index depth) { return left[static_cast<std::size_t>(p[0] * s.k + depth)]; };
      const auto column = [&](Index depth) { return right[static_cast<std::size_t>(depth * s.n + p[1])]; };
      const float expected = gemm_element(s.k, row, column, s.options, before[at++]);
      CHECK_MESSAGE(bits_of(c.view(p[0], p[1])) == bits_of(expected), s.text(), ", index ", text_of(p));
    });
  }
  CHECK((several_chains > 20 && several_blocks > 5));
}

TEST_CASE("gemm: the error of real numbers in units of eps") {
  Random random(42);
  const Index shapes = slow_isa() ? 200 : 1000;
  constexpr double eps = 0x1p-23;
  double worst[2] = {0, 0};  // one block along k, several
  std::string where[2];
  for (Index i = 0; i < shapes; ++i) {
    Case s = random_case(i, random);
    if (i % 50 == 3) s.k = random.integer(513, 1600);
    Random values(s.seed);
    const Tensor<2> a = random_tensor<2>({s.m, s.k}, values, s.a), b = random_tensor<2>({s.k, s.n}, values, s.b);
    const Tensor<2> c = random_tensor<2>({s.m, s.n}, values, s.c);
    const GemmReference expected = gemm_reference(a.view, b.view, c.view, s.options);
    gemm(a.view, b.view, c.view, s.options);
    Comparison comparison("gemm, sweep", s.text(), s.seed, Comparison::Kind::special);
    std::size_t at = 0;
    for_each_position(c.view.shape, [&](const auto& p) {
      const double x = c.view(p[0], p[1]), magnitude = expected.magnitude[at];
      comparison.add({p[0], p[1]}, c.view(p[0], p[1]), expected.value[at], gemm_bound(s.k, magnitude));
      const double ratio = magnitude > 0 ? std::abs(x - expected.value[at]) / (eps * magnitude) : 0;
      const std::size_t which = s.k > 512 ? 1 : 0;
      if (ratio > worst[which]) {
        worst[which] = ratio;
        where[which] = s.text() + ", index " + text_of(p);
      }
      ++at;
    });
    if (at > 0) comparison.finish();
  }
  for (const std::size_t which : {0u, 1u})
    MESSAGE("gemm, ", shapes, " shapes, k ", std::string(which == 0 ? "up to 512" : "from 513 on"),
            ": worst error / (2^-23 (|alpha| sum |a||b| + |beta| |c|)) is ", worst[which], ": ", where[which]);
  // Far inside the bound, and an error there must be.
  for (const double ratio : worst) CHECK((ratio > 0.1 && ratio < 20));
}

}  // namespace
}  // namespace headlane::test
