// activate: errors on a dense sample of all floats, special values, any strides; the same bits
// everywhere.
#include "support/activation_case.hpp"
#include "support/bit_comparison.hpp"
#include "support/hash.hpp"
#include "support/rowwise_case.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>
#include <headlane/activation.hpp>
#include <headlane/runtime.hpp>

namespace headlane::test {
namespace {

float one(Activation activation, float x) {
  float y = 0;
  activate(View<const float, 1>(&x, {1}), View<float, 1>(&y, {1}), activation);
  return y;
}

TEST_CASE("activations: ULP error on a dense sample of all floats, within what is stated") {
  const std::uint32_t step = slow_isa() ? 5003 : 997;
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += step)
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  std::vector<float> y(x.size());
  const auto size = static_cast<Index>(x.size());
  for (const ActivationCase& c : activation_cases) {
    activate(View<const float, 1>(x.data(), {size}), View<float, 1>(y.data(), {size}), c.activation);
    double worst = 0, worst_share = 0;
    float at = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double error = activation_error(c, x[i], y[i]), share = error == 0 ? 0 : error / c.limit(double{x[i]});
      worst = std::max(worst, error);
      if (share > worst_share) at = x[i];
      worst_share = std::max(worst_share, share);
    }
    MESSAGE(std::string(c.name), ", isa ", isa(), ": at most ", worst, " ULP, ", worst_share, " of the limit (at ", at,
            ")");
    CHECK_MESSAGE(worst_share <= 1, std::string(c.name), " at ", at);
  }
}

// Where the pieces of tanh, up to 9.1, erf, up to 4, and gelu, up to 5.5, meet (tools/pieces.py).
TEST_CASE("activations: ULP error around cuts, within what is stated") {
  std::vector<float> cuts{5.5f}, x;
  for (const float top : {4.0f, 9.1f})
    for (const float u : {3.0f, 4.0f, 6.0f, 8.0f, 12.0f, 16.0f, 24.0f, 31.9999f, 32.0f})
      cuts.push_back((u - 2) * top / 30);
  for (int i = 0; i < 7; ++i) cuts.push_back(std::sqrt(12.0f + 8.0f * static_cast<float>(i)) - 2.74f);
  for (const float cut : cuts)
    for (std::int32_t near = -200; near <= 200; ++near) {
      x.push_back(std::bit_cast<float>(static_cast<std::int32_t>(bits_of(cut)) + near));
      x.push_back(-x.back());
    }
  std::vector<float> y(x.size());
  const auto size = static_cast<Index>(x.size());
  for (const ActivationCase& c : activation_cases) {
    activate(View<const float, 1>(x.data(), {size}), View<float, 1>(y.data(), {size}), c.activation);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double error = activation_error(c, x[i], y[i]);
      if (error > c.limit(double{x[i]}))
        FAIL_CHECK(std::string(c.name), " of ", x[i], " is ", error, " ULP off, isa ", isa());
    }
  }
}

TEST_CASE("activations: zeros, infinities, NaN, the smallest and the largest numbers") {
  constexpr float least = 0x1p-149f, most = std::numeric_limits<float>::max();
  for (const ActivationCase& c : activation_cases) {
    CHECK(std::isnan(one(c.activation, nan)));
    CHECK(std::isnan(one(c.activation, -nan)));
    CHECK(std::isnan(one(c.activation, std::bit_cast<float>(0x7f800001u))));
  }
  for (const Activation a : {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu}) {
    CHECK(one(a, infinity) == infinity);
    CHECK(one(a, most) == most);
    CHECK(one(a, -infinity) == 0);
    CHECK(one(a, -most) == 0);
    CHECK(one(a, 0.0f) == 0);
    CHECK(one(a, -0.0f) == 0);
    CHECK(one(a, 200.0f) == 200.0f);
  }
  for (const Activation a : {Activation::tanh, Activation::erf}) {
    CHECK(one(a, infinity) == 1);
    CHECK(one(a, -infinity) == -1);
    CHECK(one(a, 12.0f) == 1);
    CHECK(one(a, -12.0f) == -1);
    CHECK(bits_of(one(a, 0.0f)) == 0);
    CHECK(bits_of(one(a, -0.0f)) == 0x80000000u);
  }
  CHECK(one(Activation::tanh, least) == least);
  CHECK(one(Activation::tanh, -least) == -least);
  CHECK(one(Activation::relu, least) == least);
  CHECK(one(Activation::sigmoid, infinity) == 1);
  CHECK(one(Activation::sigmoid, -infinity) == 0);
  CHECK(one(Activation::sigmoid, 0.0f) == 0.5f);
}

TEST_CASE("activations: odd and even parts") {
  Random random(3);
  for (int i = 0; i < 2000; ++i) {
    const float x = 4 * random.normal();
    for (const Activation a : {Activation::tanh, Activation::erf}) CHECK(one(a, -x) == -one(a, x));
    CHECK(one(Activation::relu, x) == std::max(x, 0.0f));
    CHECK(one(Activation::sigmoid, x) + one(Activation::sigmoid, -x) == doctest::Approx(1).epsilon(1e-6));
  }
}

// activate on some threads, and in place: the bits of one element at a time.
template <int Rank>
void add_bits(const ActivationCase& c, const RowsCase<Rank>& rows, BitComparison& bits) {
  Random random(rows.seed);
  const Tensor<Rank> x(rows.shape, rows.layout_x), y(rows.shape, rows.layout_y), expected(rows.shape);
  for_each(x.view, [&](float& e) { e = rows.spread * random.normal(); });
  for_each_position(rows.shape, [&](const auto& at) {
    expected.view.data[offset_of(at, expected.view.strides)] =
        one(c.activation, x.view.data[offset_of(at, x.view.strides)]);
  });
  const std::string text = std::string(c.name) + " " + text_of(rows);
  for (const int threads : {1, 3}) {
    activate(x.view, y.view, c.activation, {.num_threads = threads});
    bits.add(y.view, expected.view, text);
  }
  activate(x.view, x.view, c.activation);
  bits.add(x.view, expected.view, text + ", in place");
  CHECK_MESSAGE((x.surroundings_untouched() && y.surroundings_untouched()), text);
}

TEST_CASE("activate: any view, in place, any instruction set and number of threads: the same bits") {
  const std::vector<std::array<Index, 3>> shapes{{1, 1, 1},   {2, 3, 17},   {5, 1, 33},
                                                 {4, 30, 70}, {1, 2, 9001}, {0, 3, 4}};
  std::vector<Layout> all = layouts();
  all.push_back({.name = "middle", .order = Order::middle});
  BitComparison bits;
  for (const ActivationCase& c : activation_cases) {
    for_each_layout([&](const auto& rows) { add_bits(c, rows, bits); });
    Random random(5);
    for (const auto& shape : shapes)
      for (const Layout& layout : all)
        add_bits<3>(c, {.shape = shape, .spread = 3, .layout_x = layout, .layout_y = random.pick(all)}, bits);
  }
  bits.finish("activate", 3800);
}

// gelu has a formula for x < -5.5, which is computed where an element nearby needs it.
TEST_CASE("activate: gelu of an element has the same bits beside any others") {
  const float below = std::nextafter(-5.5f, -6.0f), above = std::nextafter(-5.5f, 0.0f);
  std::vector<float> others{below, -6.0f, -12.0f, -20.0f, -infinity, nan, -nan, infinity};
  for (const float x : {-5.5f, below, above, -5.4f, -1.0f, -0.0f, 0.7f, 5.5f, nan, infinity}) others.push_back(x);
  Random random(7);
  BitComparison bits;
  for (const Index size : {1, 7, 16, 33, 64, 150})
    for (Index at = 0; at < size; ++at) {
      const Tensor<1> x({size}), y({size}), expected({size});
      for_each(x.view, [&](float& e) { e = random.normal(); });
      x.view.data[at] = random.pick(others);
      x.view.data[size - 1 - at] = random.pick(others);
      for (Index i = 0; i < size; ++i) expected.view.data[i] = one(Activation::gelu, x.view.data[i]);
      activate(x.view, y.view, Activation::gelu, {.num_threads = 1});
      bits.add(y.view, expected.view, "size " + std::to_string(size) + ", at " + std::to_string(at));
    }
  bits.finish("gelu beside others", 271);
}

// A change belongs in the changelog.
TEST_CASE("activations: the checked-in hash") {
  Hash hash;
  for (const ActivationCase& c : activation_cases)
    for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 142811)
      hash.add(one(c.activation, std::bit_cast<float>(static_cast<std::uint32_t>(bits))));
  CHECK(hash.value() == 12177709306393621579u);
}

}  // namespace
}  // namespace headlane::test
