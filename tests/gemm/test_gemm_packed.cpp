// gemm with a packed operand and with epilogues: bit-identical to the plain call and to separate
// calls.
#include "support/gemm_case.hpp"
#include "support/scope.hpp"
#include "support/tolerance.hpp"

#include <headlane/activation.hpp>
#include <headlane/gemm.hpp>

#include <thread>

namespace headlane::test {
namespace {

constexpr Activation every_activation[] = {Activation::none,      Activation::relu, Activation::gelu,
                                           Activation::gelu_tanh, Activation::silu, Activation::sigmoid,
                                           Activation::tanh,      Activation::erf};

// The same by separate calls and loops.
void finish_apart(const View<float, 2>& c, const GemmOptions& options) {
  for_each_position(c.shape, [&](const auto& p) {
    if (options.bias.data != nullptr) c(p[0], p[1]) += options.bias(p[1]);
  });
  if (options.activation != Activation::none) activate(c, c, options.activation);
  for_each_position(c.shape, [&](const auto& p) {
    if (options.residual.data != nullptr) c(p[0], p[1]) += options.residual(p[0], p[1]);
  });
}

std::string describe(Index m, Index n, Index k, const Layout& layout) {
  return text_of(std::array<Index, 3>{m, n, k}) + ", layout " + layout.name + ", isa " + std::string(isa());
}

TEST_CASE("gemm: a packed operand gives the bits of the plain one") {
  Random random(1);
  Index compared = 0, different = 0;
  std::string first;
  for (int i = 0; i < (slow_isa() ? 60 : 400); ++i) {
    const Index m = random.integer(0, 70), n = random.integer(0, 150),
                k = i % 10 == 0 ? random.integer(500, 1100) : random.integer(0, 70);
    const Layout& layout = random.pick(layouts());
    const GemmInputs plain(m, n, k, layout), packed(m, n, k, layout);
    const std::vector<float> factors{0, 1, -1, 0.7f, 1.3f};
    GemmOptions options;
    options.alpha = random.pick(factors);
    options.beta = random.pick(factors);
    options.num_threads = static_cast<int>(random.integer(0, 3));
    const PackedMatrix b(packed.b.view, {.num_threads = static_cast<int>(random.integer(0, 3))});
    CHECK(b.rows() == k);
    CHECK(b.columns() == n);
    gemm(plain.a.view, plain.b.view, plain.c.view, options);
    gemm(packed.a.view, b, packed.c.view, options);
    const Index here = different_bits(packed.c.view, plain.c.view);
    if (here != 0 && different == 0) first = describe(m, n, k, layout);
    different += here;
    compared += m * n;
    CHECK(packed.c.surroundings_untouched());
  }
  CHECK(compared > 10000);
  CHECK_MESSAGE(different == 0, different, " elements; the first: ", first);
}

TEST_CASE("gemm: a packed operand gives the bits of the plain one, larger products") {
  for (const auto& [m, n, k] : std::vector<std::array<Index, 3>>{
           {33, 300, 130}, {100, 1100, 130}, {500, 300, 130}, {1000, 300, 130}, {33, 1100, 600}, {500, 1100, 600}}) {
    if (slow_isa() && m * n * k > 20000000) continue;
    for (const Layout& layout : {layouts()[0], layouts()[1]}) {
      const GemmInputs plain(m, n, k, layout), packed(m, n, k, layout);
      const PackedMatrix b(packed.b.view);
      const GemmOptions options{.alpha = 0.7f,
                                .bias = plain.bias.view,
                                .activation = Activation::relu,
                                .residual = plain.residual.view,
                                .num_threads = 1};
      gemm(plain.a.view, plain.b.view, plain.c.view, options);
      for (const int threads : {1, 2, 3, 4, 7}) {
        if (slow_isa() && threads % 2 == 0) continue;
        GemmOptions here = options;
        here.num_threads = threads;
        gemm(packed.a.view, b, packed.c.view, here);
        CHECK_MESSAGE(different_bits(packed.c.view, plain.c.view) == 0, describe(m, n, k, layout), ", ", threads,
                      " threads");
        gemm(packed.a.view, packed.b.view, packed.c.view, here);
        CHECK_MESSAGE(different_bits(packed.c.view, plain.c.view) == 0, describe(m, n, k, layout), ", ", threads,
                      " threads, plain");
      }
    }
  }
}

TEST_CASE("gemm: few rows of a large packed operand, which prefetch it") {
  // Of the last four, an odd number of panels of the last block of rows is half of an L2.
  for (const auto& [n, k] : std::vector<std::array<Index, 2>>{
           {300, 300}, {257, 600}, {129, 1100}, {1000, 70}, {1100, 129}, {700, 192}, {900, 235}, {520, 641}}) {
    const GemmInputs large(1, n, k);
    const PackedMatrix b(large.b.view);
    for (Index m = 2; m <= 25; m += slow_isa() ? 11 : 1) {
      const GemmInputs in(m, n, k), plain(m, n, k);
      const GemmOptions options{.alpha = 0.7f,
                                .beta = 1.3f,
                                .bias = in.bias.view,
                                .residual = in.residual.view,
                                .num_threads = 1 + static_cast<int>(m % 2)};
      gemm(in.a.view, b, in.c.view, options);
      gemm(plain.a.view, large.b.view, plain.c.view, options);
      CHECK_MESSAGE(different_bits(in.c.view, plain.c.view) == 0, describe(m, n, k, {}));
      CHECK(in.c.surroundings_untouched());
    }
  }
}

TEST_CASE("gemm: bias, activation and residual give the bits of separate calls") {
  Random random(2);
  Index different = 0, cases = 0;
  std::string first;
  for (int i = 0; i < (slow_isa() ? 150 : 1000); ++i) {
    const Index m = random.integer(1, 40), n = random.integer(1, 90),
                k = i % 20 == 0 ? random.integer(500, 1100) : random.integer(0, 40);
    const Layout& layout = random.pick(layouts());
    const GemmInputs together(m, n, k, layout), apart(m, n, k, layout);
    GemmOptions options;
    options.alpha = random.pick(std::vector<float>{0, 1, 0.7f});
    options.beta = random.pick(std::vector<float>{0, 0, 1, -0.5f});
    gemm(apart.a.view, apart.b.view, apart.c.view, options);
    const Index which = random.integer(0, 7);
    if ((which & 1) != 0) options.bias = together.bias.view;
    if ((which & 2) != 0) options.residual = together.residual.view;
    if ((which & 4) != 0) options.activation = every_activation[random.integer(0, 7)];
    options.num_threads = static_cast<int>(random.integer(0, 3));
    finish_apart(apart.c.view, options);
    if (i % 2 == 0) gemm(together.a.view, together.b.view, together.c.view, options);
    else gemm(together.a.view, PackedMatrix(together.b.view), together.c.view, options);
    const Index here = different_bits(together.c.view, apart.c.view);
    if (here != 0 && different == 0) first = describe(m, n, k, layout);
    different += here;
    ++cases;
    CHECK(together.c.surroundings_untouched());
  }
  CHECK(cases > 100);
  CHECK_MESSAGE(different == 0, different, " elements; the first: ", first);
}

TEST_CASE("gemm: what follows whole blocks along k, and no product at all") {
  for (const Index k : {0, 512, 1024}) {
    for (const auto& [m, n] : std::vector<std::array<Index, 2>>{{1, 33}, {17, 300}, {40, 520}}) {
      for (const float alpha : {0.0f, 0.7f}) {
        for (const Layout& layout : {layouts()[0], layouts()[1], layouts()[2]}) {
          const GemmInputs together(m, n, k, layout), apart(m, n, k, layout);
          GemmOptions options{.alpha = alpha, .beta = 1.3f};
          gemm(apart.a.view, apart.b.view, apart.c.view, options);
          options.bias = together.bias.view;
          options.activation = Activation::tanh;
          options.residual = together.residual.view;
          finish_apart(apart.c.view, options);
          gemm(together.a.view, together.b.view, together.c.view, options);
          CHECK_MESSAGE(different_bits(together.c.view, apart.c.view) == 0, describe(m, n, k, layout), ", alpha ",
                        alpha);
          CHECK(together.c.surroundings_untouched());
        }
      }
    }
  }
}

TEST_CASE("gemm: every activation at the end, at sizes around a tile") {
  for (const Activation activation : every_activation) {
    for (const Index m : {1, 5, 6, 7, 12, 13, 25}) {
      for (const Index n : {1, 15, 16, 17, 31, 32, 33, 48, 63, 65}) {
        const GemmInputs together(m, n, 9), apart(m, n, 9);
        GemmOptions options;
        gemm(apart.a.view, apart.b.view, apart.c.view, options);
        options.bias = together.bias.view;
        options.activation = activation;
        finish_apart(apart.c.view, options);
        gemm(together.a.view, together.b.view, together.c.view, options);
        CHECK_MESSAGE(different_bits(together.c.view, apart.c.view) == 0, describe(m, n, 9, {}));
      }
    }
  }
}

TEST_CASE("gemm: one packed operand in every instruction set, whichever packed it") {
  for (const auto packer : available_isas()) {
    for (const Index n : {1, 16, 33, 100}) {
      const GemmInputs plain(19, n, 700);
      gemm(plain.a.view, plain.b.view, plain.c.view);
      const IsaScope packing(packer);
      const PackedMatrix b(plain.b.view);
      for (const auto user : available_isas()) {
        const IsaScope scope(user);
        const Tensor<2> c({19, n});
        gemm(plain.a.view, b, c.view);
        CHECK_MESSAGE(different_bits(c.view, plain.c.view) == 0, std::string(packer), " packed, ", std::string(user),
                      " used");
      }
    }
  }
}

TEST_CASE("gemm: several threads of the caller use one packed operand at once") {
  const GemmInputs t(64, 96, 600);
  gemm(t.a.view, t.b.view, t.c.view);
  const PackedMatrix b(t.b.view);
  std::vector<Tensor<2>> results;
  for (int i = 0; i < 4; ++i) results.emplace_back(std::array<Index, 2>{64, 96});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int repeat = 0; repeat < 20; ++repeat)
        gemm(t.a.view, b, results[static_cast<std::size_t>(i)].view, {.num_threads = 1 + i % 2});
    });
  for (std::thread& thread : threads) thread.join();
  for (const Tensor<2>& result : results) CHECK(different_bits(result.view, t.c.view) == 0);
}

TEST_CASE("PackedMatrix: moves, empty ones, size") {
  const GemmInputs t(3, 40, 7);
  PackedMatrix b(t.b.view);
  CHECK(b.bytes() == 7 * 64 * sizeof(float));
  const auto* data = static_cast<const float*>(b.data());
  PackedMatrix moved = std::move(b);
  CHECK(moved.data() == data);
  CHECK(moved.columns() == 40);
  const PackedMatrix nothing;
  CHECK(nothing.rows() == 0);
  CHECK(nothing.bytes() == 0);
  const Tensor<2> c({3, 0});
  gemm(View<const float, 2>(nullptr, {3, 0}), nothing, c.view);
  const PackedMatrix no_rows(View<const float, 2>(nullptr, {0, 5}));
  const Tensor<2> zeros({3, 5});
  gemm(View<const float, 2>(nullptr, {3, 0}), no_rows, zeros.view);
  for_each(zeros.view, [](float x) { CHECK(bits_of(x) == 0); });
}

TEST_CASE("PackedMatrix: unpack gives back the matrix, in any strides") {
  for (const auto& [k, n] :
       std::vector<std::array<Index, 2>>{{0, 0}, {3, 0}, {0, 5}, {1, 1}, {7, 33}, {513, 31}, {1100, 70}}) {
    std::vector<float> b(static_cast<std::size_t>(k * n));
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i);
    const PackedMatrix packed(View<const float, 2>(b.data(), {k, n}));
    std::vector<float> dense(b.size(), nan), turned(b.size(), nan);
    packed.unpack({dense.data(), {k, n}});
    CHECK(dense == b);
    packed.unpack(View<float, 2>(turned.data(), {n, k}).transposed());
    for (Index i = 0; i < k; ++i)
      for (Index j = 0; j < n; ++j)
        CHECK(turned[static_cast<std::size_t>(j * k + i)] == b[static_cast<std::size_t>(i * n + j)]);
    CHECK_THROWS_WITH_AS(packed.unpack({dense.data(), {k + 1, n}}), doctest::Contains("PackedMatrix::unpack: out"),
                         std::invalid_argument);
  }
  std::vector<float> one(1);
  CHECK_THROWS_AS(PackedMatrix(View<const float, 2>(one.data(), {1, 1})).unpack({one.data(), {1, 2}, {0, 0}}),
                  std::invalid_argument);
}

TEST_CASE("gemm: NaN in an unread c, and what a bias, residual or row with NaN reaches") {
  const GemmInputs t(20, 50, 30);
  for_each(t.c.view, [](float& x) { x = nan; });
  t.bias.view(7) = nan;
  t.residual.view(3, 9) = nan;
  for_each(t.a.view.slice(0, 11, 12), [](float& x) { x = infinity; });
  gemm(t.a.view, t.b.view, t.c.view,
       {.bias = t.bias.view, .activation = Activation::gelu, .residual = t.residual.view});
  for_each_position(t.c.view.shape, [&](const auto& p) {
    const bool touched = p[1] == 7 || (p[0] == 3 && p[1] == 9) || p[0] == 11;
    if (!touched) CHECK(std::isfinite(t.c.view(p[0], p[1])));
    if (p[1] == 7 || (p[0] == 3 && p[1] == 9)) CHECK(std::isnan(t.c.view(p[0], p[1])));
  });
}

}  // namespace
}  // namespace headlane::test
