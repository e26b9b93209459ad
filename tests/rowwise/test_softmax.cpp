// softmax and log-softmax against the oracle: lengths, ranks, strides, scale, in place, special
// values.
#include "support/rowwise_case.hpp"
#include "support/scope.hpp"
#include "support/softmax_case.hpp"

#include <bit>
#include <limits>

namespace headlane::test {
namespace {

// Compares every row of y with the oracle on the same row of x.
template <int Rank>
void compare_softmax(const std::vector<float>& x, const View<float, Rank>& y, const SoftmaxOptions& options,
                     const std::string& text, std::uint64_t seed, Comparison::Kind kind = Comparison::Kind::data) {
  compare_rows(Comparison(name_of(options), text, seed, kind), x, y, expected_softmax(options));
}

// Against the oracle, in place too.
template <int Rank>
void check_softmax(const SoftmaxOptions& options, const RowsCase<Rank>& c) {
  Random random(c.seed);
  const Tensor<Rank> x(c.shape, c.layout_x), y(c.shape, c.layout_y);
  for_each(x.view, [&](float& e) { e = c.mean + c.spread * random.normal(); });
  const std::string text = text_of(c) + ", scale " + std::to_string(options.scale);
  INFO(text);
  check_rows(
      Comparison(name_of(options), text, c.seed, kind_of(c)), elements(x.view), x, y,
      [&](const View<float, Rank>& from, const View<float, Rank>& to) { softmax(from, to, options); },
      expected_softmax(options));
}

TEST_CASE("softmax: every row length and number of rows") {
  for (const bool log : {false, true})
    for_each_row_length([&](const auto& rows) { check_softmax({.log = log}, rows); });
}

TEST_CASE("softmax: rank 1 to 8 and every layout") {
  for (const bool log : {false, true})
    for (const float scale : {1.0f, 0.7f})
      for_each_layout([&](const auto& rows) { check_softmax({.scale = scale, .log = log}, rows); });
}

TEST_CASE("softmax: scale, and rows that are flat, wide or far from 0") {
  for (const bool log : {false, true}) {
    for (const float scale : {1.0f, 0.125f, -1.0f, -0.7f, 3.0f, 0.0f}) {
      for (const float spread : {0.0f, 0.01f, 1.0f, 10.0f, 100.0f}) {
        check_softmax<2>({.scale = scale, .log = log}, {.shape = {7, 37}, .seed = 21, .spread = spread});
        check_softmax<2>({.scale = scale, .log = log}, {.shape = {2, 700}, .seed = 22, .spread = spread});
      }
    }
  }
}

TEST_CASE("softmax: a large offset common to the row cancels") {
  for (const float offset : {1000.0f, -1000.0f, 30000.0f})
    for (const float scale : {1.0f, 0.7f, -0.3f})
      check_softmax<2>({.scale = scale}, {.shape = {4, 100}, .seed = 31, .mean = offset, .spread = 1});
}

TEST_CASE("softmax: scores whose rounding is larger than their distances") {
  for (const bool log : {false, true})
    for (const float offset : {0x1p26f, 2e8f, 1.4e9f, -1e10f, 3e38f, std::numeric_limits<float>::lowest()})
      for (const float scale : {0.7f, -0.3f}) {
        const float spread = std::abs(offset) < 1e38f ? std::abs(offset) * 0x1p-22f : 0.0f;
        check_softmax<2>({.scale = scale, .log = log},
                         {.shape = {4, 100}, .seed = 32, .mean = offset, .spread = spread});
        Random random(33);
        Tensor<1> x({100}), y({100}), masked({100});
        for_each(x.view, [&](float& e) { e = offset + spread * random.normal(); });
        const bool visible = true;
        softmax(x.view, y.view, {.scale = scale, .log = log});
        softmax(x.view, masked.view, {.scale = scale, .log = log, .mask = View<const bool, 1>(&visible, {100}, {0})});
        INFO(name_of({.log = log}), " of ", offset, ", scale ", scale);
        CHECK(different_bits(masked.view, y.view) == 0);
      }
}

TEST_CASE("softmax: along another axis, through a permuted view") {
  Random random(51);
  const Tensor<3> x = random_tensor<3>({3, 40, 6}, random), y({3, 40, 6});
  softmax(x.view.permuted({0, 2, 1}), y.view.permuted({0, 2, 1}));
  compare_softmax(elements(x.view.permuted({0, 2, 1})), y.view.permuted({0, 2, 1}), {}, "permuted", 51);
}

TEST_CASE("softmax: input broadcast by stride 0") {
  Random random(52);
  const Tensor<1> x = random_tensor<1>({50}, random);
  const Tensor<2> y({4, 50});
  softmax(x.view.broadcast(0, 4), y.view);
  compare_softmax(elements(View<const float, 2>(x.view.broadcast(0, 4))), y.view, {}, "broadcast", 52);
}

TEST_CASE("softmax: random shapes and options") {
  Random random(61);
  for (int i = 0; i < (slow_isa() ? 150 : 500); ++i) {
    const std::array<Index, 3> shape{random.integer(1, 4), random.integer(1, 9), random.integer(1, 300)};
    const SoftmaxOptions options{.scale = 2 * random.uniform(), .log = random.integer(0, 1) == 1};
    check_softmax<3>(options, {.shape = shape,
                               .seed = random.next() % 100000,
                               .spread = 8,
                               .layout_x = random.pick(layouts()),
                               .layout_y = random.pick(layouts())});
  }
}

TEST_CASE("softmax: special values stay in their row") {
  struct Special {
    const char* name;
    std::vector<float> values;
  };
  const std::vector<Special> specials{{"NaN", {nan}},
                                      {"+inf", {infinity}},
                                      {"-inf", {-infinity}},
                                      {"+inf and -inf", {infinity, -infinity}},
                                      {"NaN and +inf", {nan, infinity}},
                                      {"NaN and -inf", {nan, -infinity}},
                                      {"denormals", {0x1p-149f, -0x1p-130f}},
                                      {"largest", {0x1.fffffep127f, -0x1.fffffep127f}}};
  for (const Special& special : specials) {
    for (const float scale : {1.0f, 0.5f, -1.0f}) {
      for (const bool log : {false, true}) {
        for (const Index n : {2, 15, 16, 17, 40, 700}) {
          for (const Index at : {Index{0}, n / 2, n - 1}) {
            Random random(71);
            const Tensor<2> x = random_tensor<2>({3, n}, random), y({3, n}), clean({3, n});
            softmax(x.view, clean.view, {.scale = scale, .log = log});
            for (std::size_t i = 0; i < special.values.size(); ++i) {
              x.view(1, (at + static_cast<Index>(i)) % n) = special.values[i];
            }
            softmax(x.view, y.view, {.scale = scale, .log = log});
            compare_softmax(elements(x.view), y.view, {.scale = scale, .log = log}, special.name, 71,
                            Comparison::Kind::special);
            CHECK(different_bits(y.view.slice(0, 0, 1), clean.view.slice(0, 0, 1)) == 0);
            CHECK(different_bits(y.view.slice(0, 2, 3), clean.view.slice(0, 2, 3)) == 0);
          }
        }
      }
    }
  }
}

TEST_CASE("softmax: a row of NaN has the bits of the NaN on every instruction set") {
  const auto given = std::bit_cast<std::uint32_t>(nan);
  for (Index n = 1; n <= 70; ++n) {
    const Tensor<1> x({n}), y({n});
    for (Index j = 0; j < n; ++j) x.view(j) = nan;
    softmax(x.view, y.view);
    Index wrong = 0;
    for (Index j = 0; j < n; ++j) wrong += std::bit_cast<std::uint32_t>(y.view(j)) == given ? 0 : 1;
    CHECK_MESSAGE(wrong == 0, "isa ", isa(), ", length ", n);
  }
}

TEST_CASE("softmax: one element far above all others, wherever it stands") {
  for (const Index n : {5, 40, 70, 200, 300}) {
    for (Index at = 0; at < n; ++at) {
      Random random(81);
      const Tensor<1> x = random_tensor<1>({n}, random), y({n});
      x.view(at) = 300;
      softmax(x.view, y.view);
      Index wrong = 0;
      for (Index j = 0; j < n; ++j) wrong += y.view(j) == (j == at ? 1.0f : 0.0f) ? 0 : 1;
      CHECK_MESSAGE(wrong == 0, "isa ", isa(), ", length ", n, ", at ", at);
    }
  }
}

TEST_CASE("softmax: rows of -inf only, NaN only, one finite element") {
  for (const bool log : {false, true}) {
    for (const float scale : {1.0f, 0.25f}) {
      for (const float value : {-infinity, nan, infinity}) {
        for (const Index n : {1, 5, 16, 33, 600}) {
          const Tensor<1> x({n}), y({n});
          for_each(x.view, [&](float& e) { e = value; });
          softmax(x.view, y.view, {.scale = scale, .log = log});
          for_each(y.view, [](float e) { CHECK(std::isnan(e)); });
          if (value != -infinity) continue;
          x.view(n - 1) = 3;
          softmax(x.view, y.view, {.scale = scale, .log = log});
          for (Index j = 0; j < n - 1; ++j) CHECK(y.view(j) == (log ? -infinity : 0.0f));
          CHECK(y.view(n - 1) == (log ? 0.0f : 1.0f));
        }
      }
    }
  }
}

}  // namespace
}  // namespace headlane::test
