// gemm_batch of a list: bit-identical to a gemm call for each product, whatever the sizes of the
// others.
#include "support/allocation_count.hpp"
#include "support/scope.hpp"
#include "support/tolerance.hpp"

#include <headlane/gemm_batch.hpp>

#include <memory>

namespace headlane::test {
namespace {

const std::vector<float> factors{0, 1, -1, 0.7f, 1.3f};

/// A product of a list, and what it should be.
struct OfList {
  Tensor<2> a, b, c, expected, residual;
  Tensor<1> bias;
  PackedMatrix packed;
  bool is_packed;
  GemmOptions options;

  OfList(Index m, Index n, Index k, Random& random)
      : a({m, k}, random.pick(layouts())),
        b({k, n}, random.pick(layouts())),
        c({m, n}, random.pick(layouts())),
        expected({m, n}),
        residual({m, n}, random.pick(layouts())),
        bias({n}),
        is_packed(random.integer(0, 2) == 0) {
    for (const auto* t : {&a, &b, &c, &residual}) fill_normal(t->view, random);
    fill_normal(bias.view, random);
    copy<2>(c.view, expected.view);
    options = {.alpha = random.pick(factors),
               .beta = random.pick(factors),
               .activation = static_cast<Activation>(random.integer(0, 7))};
    if (random.integer(0, 1) == 0) options.bias = bias.view;
    if (random.integer(0, 1) == 0) options.residual = residual.view;
    gemm(a.view, b.view, expected.view, options);
    if (is_packed) packed = PackedMatrix(b.view);
  }
  [[nodiscard]] GemmProblem problem() const {
    const View<const float, 2> none;
    return {a.view, is_packed ? none : b.view, is_packed ? &packed : nullptr, c.view, options};
  }
};

// The list by `threads`; `sizes` of its products.
void check_list(const std::vector<std::array<Index, 3>>& sizes, int threads, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::unique_ptr<OfList>> all;
  std::vector<GemmProblem> problems;
  for (const auto& [m, n, k] : sizes) all.push_back(std::make_unique<OfList>(m, n, k, random));
  for (const auto& one : all) problems.push_back(one->problem());
  gemm_batch(problems, threads);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Index different = different_bits(all[i]->c.view, all[i]->expected.view);
    const bool right = different == 0 && all[i]->c.surroundings_untouched();
    CHECK_MESSAGE(right, different, " elements of problem ", i, " of ", all.size(), ", sizes ", text_of(sizes[i]),
                  ", layout of c ", text_of(all[i]->c.view.strides), ", ", threads, " threads, seed ", seed, ", isa ",
                  isa());
  }
}

TEST_CASE("gemm_batch: a list gives the bits of a call for each product") {
  Random random(51);
  for (std::uint64_t seed = 0; seed < (slow_isa() ? 20 : 100); ++seed) {
    std::vector<std::array<Index, 3>> sizes;
    for (Index i = random.integer(0, 12); i > 0; --i)  // some are empty
      sizes.push_back({random.integer(0, 9) * random.integer(1, 9), random.integer(0, 9) * random.integer(1, 15),
                       random.integer(0, 9) * random.integer(1, 9)});
    for (const int threads : {1, 2, 3, 4}) check_list(sizes, threads, seed);
  }
}

TEST_CASE("gemm_batch: no list, and lists in which nothing is to be done") {
  gemm_batch(std::span<const GemmProblem>());
  for (const int threads : {0, 1, 4}) check_list({}, threads, 55);
  for (const int threads : {0, 1, 4}) check_list({{0, 0, 0}, {0, 3, 4}, {3, 0, 4}}, threads, 56);
  for (const int threads : {0, 1, 4}) check_list({{30, 300, 0}, {3, 4, 0}}, threads, 57);
}

TEST_CASE("gemm_batch: one large product among many small ones, and more threads than tasks") {
  std::vector<std::array<Index, 3>> sizes(40, {3, 17, 9});
  sizes[7] = {300, 500, 520};
  sizes[20] = {0, 5, 5};
  sizes[21] = {5, 0, 5};
  sizes[22] = {5, 5, 0};
  for (const int threads : {1, 2, 3, 4, 0}) check_list(sizes, threads, 61);
  for (const int threads : {2, 4, 16}) check_list({{2, 3, 20000}, {3, 16, 20000}}, threads, 62);
  for (const int threads : {2, 16}) check_list({{1, 1, 50000}}, threads, 63);
}

#if !defined(HEADLANE_TEST_SANITIZED)
TEST_CASE("gemm_batch: a list allocates nothing once warm") {
  Random random(71);
  std::vector<std::unique_ptr<OfList>> all;
  std::vector<GemmProblem> problems;
  for (Index i = 0; i < 6; ++i) all.push_back(std::make_unique<OfList>(40 + 10 * i, 80, 90, random));
  for (const auto& one : all) problems.push_back(one->problem());
  for (const int threads : {1, 2, 3}) {
    CHECK_MESSAGE(allocates_nothing_once_warm([&] { gemm_batch(problems, threads); }), threads, " threads");
  }
}
#endif

}  // namespace
}  // namespace headlane::test
