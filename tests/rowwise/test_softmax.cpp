// softmax and log-softmax against the oracle: lengths, ranks, strides, scale, in place, special
// values.
#include "support/scope.hpp"
#include "support/tolerance.hpp"

#include <headlane/softmax.hpp>

namespace headlane::test {
namespace {

// Compares every row of y with the oracle on the same row of x.
template <int Rank>
void compare_rows(const std::vector<float>& x, const View<float, Rank>& y, const SoftmaxOptions& options,
                  const std::string& text, std::uint64_t seed, Comparison::Kind kind = Comparison::Kind::data) {
  const Index n = y.size(-1);
  if (x.empty()) return;
  Comparison comparison(options.log ? "log_softmax" : "softmax", text, seed, kind);
  const std::vector<float> actual = elements(y);
  REQUIRE(actual.size() == x.size());
  for (Index first = 0; first < static_cast<Index>(x.size()); first += n) {
    const SoftmaxReference expected = softmax_reference({x.begin() + first, x.begin() + first + n}, options);
    for (Index j = 0; j < n; ++j) {
      const auto at = static_cast<std::size_t>(j);
      const double bound = options.log ? log_softmax_bound(n, expected.distance[at], expected.value[at])
                                       : softmax_bound(n, expected.distance[at], expected.value[at]);
      comparison.add({first / n, j}, actual[static_cast<std::size_t>(first + j)], expected.value[at], bound);
    }
  }
  comparison.finish();
}

template <int Rank>
struct RowsCase {
  std::array<Index, static_cast<std::size_t>(Rank)> shape;
  SoftmaxOptions options = {};
  std::uint64_t seed = 1;
  float spread = 4;  ///< standard deviation of x
  Layout layout_x = {}, layout_y = {};
};

template <int Rank>
std::string text_of(const RowsCase<Rank>& c) {
  std::ostringstream text;
  text << test::text_of(c.shape) << ", scale " << c.options.scale << ", spread " << c.spread << ", layout "
       << c.layout_x.name;
  return text.str();
}

// Against the oracle; where the layouts are the same also in place, which gives the same bits.
template <int Rank>
void check_softmax(const RowsCase<Rank>& c) {
  Random random(c.seed);
  const Tensor<Rank> x(c.shape, c.layout_x), y(c.shape, c.layout_y);
  for_each(x.view, [&](float& e) { e = c.spread * random.normal(); });
  const std::vector<float> values = elements(x.view);
  softmax(x.view, y.view, c.options);
  const std::string text = text_of(c);
  const bool one = c.shape.back() == 1;  // log 1 is 0
  const auto kind = one ? Comparison::Kind::special : Comparison::Kind::data;
  compare_rows(values, y.view, c.options, text, c.seed, kind);
  CHECK_MESSAGE(y.surroundings_untouched(), text);
  CHECK_MESSAGE(elements(x.view) == values, text);

  if (c.layout_x.name != c.layout_y.name) return;
  softmax(x.view, x.view, c.options);
  CHECK_MESSAGE(different_bits(x.view, y.view) == 0, text);
  CHECK_MESSAGE(x.surroundings_untouched(), text);
}

TEST_CASE("softmax: every row length and number of rows") {
  for (const bool log : {false, true}) {
    for (Index n = 0; n <= 80; ++n) check_softmax<2>({.shape = {5, n}, .options = {.log = log}, .seed = 10});
    for (const Index n : tail_sizes) check_softmax<2>({.shape = {3, n}, .options = {.log = log}, .seed = 11});
    for (const Index n : {1000, 2048, 4096, 4999, 5000})
      check_softmax<2>({.shape = {3, n}, .options = {.log = log}, .seed = 12});
    for (const Index rows : tail_sizes) check_softmax<2>({.shape = {rows, 19}, .options = {.log = log}, .seed = 13});
  }
}

TEST_CASE("softmax: scale, and rows that are flat, wide or far from 0") {
  for (const bool log : {false, true}) {
    for (const float scale : {1.0f, 0.125f, -1.0f, -0.7f, 3.0f, 0.0f}) {
      for (const float spread : {0.0f, 0.01f, 1.0f, 10.0f, 100.0f}) {
        check_softmax<2>({.shape = {7, 37}, .options = {.scale = scale, .log = log}, .seed = 21, .spread = spread});
        check_softmax<2>({.shape = {2, 700}, .options = {.scale = scale, .log = log}, .seed = 22, .spread = spread});
      }
    }
  }
}

TEST_CASE("softmax: a large offset common to the row cancels") {
  for (const float offset : {1000.0f, -1000.0f, 30000.0f}) {
    Random random(31);
    const Tensor<2> x({4, 100}), y({4, 100});
    for_each(x.view, [&](float& e) { e = offset + random.normal(); });
    for (const float scale : {1.0f, 0.7f, -0.3f}) {
      softmax(x.view, y.view, {.scale = scale});
      compare_rows(elements(x.view), y.view, {.scale = scale}, "offset " + std::to_string(offset), 31);
    }
  }
}

TEST_CASE("softmax: rank 1 to 8 and every layout") {
  for (const Layout& layout : layouts()) {
    for (const bool log : {false, true}) {
      check_softmax<1>({.shape = {67}, .options = {.log = log}, .seed = 41, .layout_x = layout, .layout_y = layout});
      check_softmax<2>({.shape = {9, 33}, .options = {.log = log}, .seed = 42, .layout_x = layout, .layout_y = layout});
      check_softmax<3>(
          {.shape = {3, 5, 17}, .options = {.log = log}, .seed = 43, .layout_x = layout, .layout_y = layout});
      check_softmax<4>(
          {.shape = {2, 3, 4, 21}, .options = {.log = log}, .seed = 44, .layout_x = layout, .layout_y = layout});
      check_softmax<5>(
          {.shape = {2, 1, 3, 2, 7}, .options = {.log = log}, .seed = 45, .layout_x = layout, .layout_y = layout});
      check_softmax<6>(
          {.shape = {2, 1, 2, 2, 3, 16}, .options = {.log = log}, .seed = 46, .layout_x = layout, .layout_y = layout});
      check_softmax<7>({.shape = {1, 2, 2, 1, 2, 2, 5},
                        .options = {.log = log},
                        .seed = 47,
                        .layout_x = layout,
                        .layout_y = layout});
      check_softmax<8>({.shape = {2, 1, 2, 1, 2, 1, 2, 19},
                        .options = {.log = log},
                        .seed = 48,
                        .layout_x = layout,
                        .layout_y = layout});
    }
    for (const Layout& other : layouts())
      check_softmax<3>(
          {.shape = {3, 4, 35}, .options = {.scale = 0.7f}, .seed = 49, .layout_x = layout, .layout_y = other});
  }
  for (const std::array<Index, 3>& shape : {std::array<Index, 3>{0, 4, 5}, {4, 0, 5}, {4, 5, 0}}) {
    check_softmax<3>({.shape = shape});
  }
}

TEST_CASE("softmax: along another axis, through a permuted view") {
  Random random(51);
  const Tensor<3> x = random_tensor<3>({3, 40, 6}, random), y({3, 40, 6});
  softmax(x.view.permuted({0, 2, 1}), y.view.permuted({0, 2, 1}));
  compare_rows(elements(x.view.permuted({0, 2, 1})), y.view.permuted({0, 2, 1}), {}, "permuted", 51);
}

TEST_CASE("softmax: input broadcast by stride 0") {
  Random random(52);
  const Tensor<1> x = random_tensor<1>({50}, random);
  const Tensor<2> y({4, 50});
  softmax(x.view.broadcast(0, 4), y.view);
  compare_rows(elements(View<const float, 2>(x.view.broadcast(0, 4))), y.view, {}, "broadcast", 52);
}

TEST_CASE("softmax: random shapes and options") {
  Random random(61);
  for (int i = 0; i < (slow_isa() ? 150 : 500); ++i) {
    const std::array<Index, 3> shape{random.integer(1, 4), random.integer(1, 9), random.integer(1, 300)};
    const SoftmaxOptions options{.scale = 2 * random.uniform(), .log = random.integer(0, 1) == 1};
    check_softmax<3>({.shape = shape,
                      .options = options,
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
            compare_rows(elements(x.view), y.view, {.scale = scale, .log = log}, special.name, 71,
                         Comparison::Kind::special);
            CHECK(different_bits(y.view.slice(0, 0, 1), clean.view.slice(0, 0, 1)) == 0);
            CHECK(different_bits(y.view.slice(0, 2, 3), clean.view.slice(0, 2, 3)) == 0);
          }
        }
      }
    }
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
