// gemm_gated: bit-identical to two gemm calls, multiplied; how far NaN and infinity propagate; k =
// 0.
#include "support/allocation_count.hpp"
#include "support/scope.hpp"
#include "support/tolerance.hpp"

#include <headlane/gemm_gated.hpp>

namespace headlane::test {
namespace {

constexpr Activation every_activation[] = {Activation::none,      Activation::relu, Activation::gelu,
                                           Activation::gelu_tanh, Activation::silu, Activation::sigmoid,
                                           Activation::tanh,      Activation::erf};

struct Sizes {
  Index m, n, k;
};

struct Inputs {
  Tensor<2> a, gate, up, c;
  Tensor<1> gate_bias, up_bias;
  Inputs(const Sizes& s, std::uint64_t seed, const Layout& la = {}, const Layout& lg = {}, const Layout& lu = {},
         const Layout& lc = {})
      : a({s.m, s.k}, la),
        gate({s.k, s.n}, lg),
        up({s.k, s.n}, lu),
        c({s.m, s.n}, lc),
        gate_bias({s.n}, {.name = "stride 2", .step = 2}),
        up_bias({s.n}) {
    Random random(seed);
    for (const auto* t : {&a, &gate, &up, &c}) fill_normal(t->view, random);
    for (const auto* t : {&gate_bias, &up_bias}) fill_normal(t->view, random);
  }
  /// `which`: 1: gate_bias, 2: up_bias.
  [[nodiscard]] GemmGatedOptions options(Activation activation, int which, int threads = 0) const {
    GemmGatedOptions result{.activation = activation, .num_threads = threads};
    if ((which & 1) != 0) result.gate_bias = gate_bias.view;
    if ((which & 2) != 0) result.up_bias = up_bias.view;
    return result;
  }
  /// The same by separate calls.
  [[nodiscard]] Tensor<2> apart(const GemmGatedOptions& options) const {
    Tensor<2> result(c.view.shape);
    const Tensor<2> factor(c.view.shape);
    gemm(a.view, gate.view, result.view, {.bias = options.gate_bias, .activation = options.activation});
    gemm(a.view, up.view, factor.view, {.bias = options.up_bias});
    for_each_position(c.view.shape, [&](const auto& p) { result.view(p[0], p[1]) *= factor.view(p[0], p[1]); });
    return result;
  }
};

struct Call {
  Activation activation;
  int which;  ///< as in Inputs::options
  int threads = 1;
  bool packed = false;
  std::string text = "dense";
};

void check(const Sizes& s, const Inputs& t, const Call& call) {
  const auto& [activation, which, threads, packed, text] = call;
  const GemmGatedOptions options = t.options(activation, which, threads);
  const Tensor<2> expected = t.apart(options);
  if (packed) gemm_gated(t.a.view, PackedMatrix(t.gate.view), PackedMatrix(t.up.view), t.c.view, options);
  else gemm_gated(t.a.view, t.gate.view, t.up.view, t.c.view, options);
  const Index different = different_bits(t.c.view, expected.view);
  CHECK_MESSAGE(different == 0, different, " elements, ", text_of(std::array<Index, 3>{s.m, s.n, s.k}), ", activation ",
                static_cast<int>(activation), ", biases ", which, ", ", threads, " threads, packed ", packed, ", ",
                text, ", isa ", isa());
  CHECK_MESSAGE(t.c.surroundings_untouched(), text);
}

TEST_CASE("gemm_gated: random sizes and layouts give the bits of separate calls") {
  Random random(1);
  for (int i = 0; i < (slow_isa() ? 120 : 800); ++i) {
    const Index most = i % 8 == 0 ? 140 : 24;
    const Sizes s{.m = random.integer(0, most),
                  .n = random.integer(0, most),
                  .k = i % 20 == 1 ? random.integer(500, 1100) : random.integer(0, most)};
    const std::array<Layout, 4> l{random.pick(layouts()), random.pick(layouts()), random.pick(layouts()),
                                  random.pick(layouts())};
    const auto seed = static_cast<std::uint64_t>(i);
    std::string text = "seed " + std::to_string(seed);
    for (const Layout& layout : l) text += std::string(", ") + layout.name;
    check(s, Inputs(s, seed, l[0], l[1], l[2], l[3]),
          {.activation = every_activation[random.integer(0, 7)],
           .which = static_cast<int>(random.integer(0, 3)),
           .threads = static_cast<int>(random.integer(0, 4)),
           .packed = i % 2 == 0,
           .text = text});
  }
}

// Blocks of 192 × 128; parts of several threads.
TEST_CASE("gemm_gated: several blocks along each size") {
  for (const Sizes& s : {Sizes{.m = 193, .n = 130, .k = 40},
                         {.m = 400, .n = 129, .k = 20},
                         {.m = 30, .n = 300, .k = 513},
                         {.m = 200, .n = 131, .k = 600},
                         {.m = 1, .n = 260, .k = 1100}}) {
    for (const bool packed : {false, true}) {
      for (const int threads : {1, 2, 3, 4})
        check(s, Inputs(s, 11), {.activation = Activation::silu, .which = 3, .threads = threads, .packed = packed});
      check(s, Inputs(s, 12, layouts()[3], layouts()[1], layouts()[4], layouts()[6]),
            {.activation = Activation::gelu, .which = 3, .threads = 2, .packed = packed, .text = "strided"});
    }
  }
}

TEST_CASE("gemm_gated: every activation at sizes around a tile") {
  for (const Activation activation : every_activation) {
    for (const Index m : {1, 5, 12, 13, 25}) {
      for (const Index n : {1, 15, 16, 17, 32, 33, 65}) {
        const Sizes s{.m = m, .n = n, .k = 9};
        check(s, Inputs(s, 21),
              {.activation = activation, .which = static_cast<int>((m + n) % 4), .packed = n % 2 == 0});
      }
    }
  }
}

TEST_CASE("gemm_gated: against the oracle") {
  const Sizes s{.m = 20, .n = 40, .k = 600};
  const Inputs t(s, 31);
  gemm_gated(t.a.view, t.gate.view, t.up.view, t.c.view, t.options(Activation::none, 0));
  const Tensor<2> zero({20, 40});
  const GemmReference gate = gemm_reference(t.a.view, t.gate.view, zero.view, {}),
                      up = gemm_reference(t.a.view, t.up.view, zero.view, {});
  Comparison comparison("gemm_gated", "[20, 40, 600], no activation", 31);
  std::size_t at = 0;
  for_each_position(t.c.view.shape, [&](const auto& p) {
    const double g = gate.value[at], u = up.value[at];
    const double of_gate = gemm_bound(s.k, gate.magnitude[at]), of_up = gemm_bound(s.k, up.magnitude[at]);
    const double bound = std::abs(g) * of_up + std::abs(u) * of_gate + of_gate * of_up;
    comparison.add({p[0], p[1]}, t.c.view(p[0], p[1]), g * u, bound + unit * (std::abs(g * u) + bound));
    ++at;
  });
  comparison.finish();
}

TEST_CASE("gemm_gated: a row with NaN or infinity reaches that row of c only") {
  for (const float bad : {nan, infinity, -infinity}) {
    for (const Index row : {0, 11, 195}) {
      const Sizes s{.m = 200, .n = 140, .k = 30};
      const Inputs clean(s, 41), t(s, 41);
      const GemmGatedOptions options = t.options(Activation::silu, 3);
      gemm_gated(clean.a.view, clean.gate.view, clean.up.view, clean.c.view, options);
      t.a.view(row, 29) = bad;
      for_each(t.c.view, [](float& x) { x = nan; });  // never read
      const Tensor<2> expected = t.apart(options);
      gemm_gated(t.a.view, t.gate.view, t.up.view, t.c.view, options);
      CHECK(different_bits(t.c.view, expected.view) == 0);
      Index finite = 0;
      for (Index j = 0; j < s.n; ++j) finite += std::isfinite(t.c.view(row, j)) && t.c.view(row, j) != 0 ? 1 : 0;
      CHECK(finite == 0);  // silu of -infinity is 0 or NaN times infinity
      copy<2>(clean.c.view.slice(0, row, row + 1), t.c.view.slice(0, row, row + 1));
      CHECK_MESSAGE(different_bits(t.c.view, clean.c.view) == 0, "row ", row, ", isa ", isa());
    }
  }
}

TEST_CASE("gemm_gated: k = 0, without data, and nothing to do") {
  const Inputs t({.m = 5, .n = 140, .k = 0}, 51);
  const View<const float, 2> a(nullptr, {5, 0}), weights(nullptr, {0, 140});
  for (const bool packed : {false, true}) {
    for (const int which : {0, 1, 2, 3}) {
      const GemmGatedOptions options = t.options(Activation::sigmoid, which);
      const Tensor<2> expected = t.apart(options);
      for_each(t.c.view, [](float& x) { x = nan; });
      if (packed) gemm_gated(a, PackedMatrix(weights), PackedMatrix(weights), t.c.view, options);
      else gemm_gated(a, weights, weights, t.c.view, options);
      CHECK(different_bits(t.c.view, expected.view) == 0);
      if (which == 3) CHECK(t.c.view(4, 139) != 0);
    }
  }
  gemm_gated({nullptr, {0, 5}}, {nullptr, {5, 0}}, View<const float, 2>(nullptr, {5, 0}), {nullptr, {0, 0}});
}

#if !defined(HEADLANE_TEST_SANITIZED)
TEST_CASE("gemm_gated: no allocation once warm") {
  const Inputs t({.m = 210, .n = 140, .k = 600}, 61);
  const PackedMatrix gate(t.gate.view), up(t.up.view);
  for (const int threads : {1, 2, 3}) {
    const auto run = [&] {
      gemm_gated(t.a.view, t.gate.view, t.up.view, t.c.view, t.options(Activation::silu, 3, threads));
      gemm_gated(t.a.view, gate, up, t.c.view, t.options(Activation::silu, 3, threads));
    };
    CHECK_MESSAGE(allocates_nothing_once_warm(run), threads, " threads");
  }
}
#endif

}  // namespace
}  // namespace headlane::test
