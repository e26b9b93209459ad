// Sinusoidal encodings: the formulas of worked example D, added to data, any strides; the same bits
// everywhere.
#include "support/allocation_count.hpp"
#include "support/guard.hpp"
#include "support/position_case.hpp"

#include <doctest/doctest.h>

namespace headlane::test {
namespace {

// Against the formula, PE(pos, i), in long double.
void compare_formula(const SinusoidalOptions& options, Index length, Index d_model, const Layout& layout = {}) {
  const Tensor<2> y({length, d_model}, layout);
  sinusoidal_encoding(y.view, options);
  Comparison comparison("sinusoidal_encoding", text_of(y.view.shape), 0, Comparison::Kind::special);
  const Index factor = options.exponent == SinusoidalExponent::paper ? 2 : 4, sines = (d_model + 1) / 2;
  for (Index i = 0; i < length; ++i) {
    for (Index c = 0; c < d_model; ++c) {
      const bool cosine = options.interleaved ? c % 2 == 1 : c >= sines;
      const Index j = options.interleaved ? c / 2 : c % sines, position = options.offset + i;
      const long double angle = static_cast<long double>(position) * frequency_of(options.base, factor, j, d_model);
      const auto exact = static_cast<double>(cosine ? std::cos(angle) : std::sin(angle));
      comparison.add({i, c}, y.view(i, c), exact,
                     2 * sin_cos_limit * unit * std::abs(exact) + absolute_limit(position));
    }
  }
  comparison.finish();
  CHECK(y.surroundings_untouched());
}

TEST_CASE("sinusoidal_encoding: worked example D, the paper's formula and the tutorial's") {
  const Tensor<2> y({50, 512});
  for (const bool doubled : {false, true}) {
    sinusoidal_encoding(y.view, {.exponent = doubled ? SinusoidalExponent::doubled : SinusoidalExponent::paper});
    double worst = 0;
    for (Index pos = 0; pos < 50; ++pos) {
      for (Index i = 0; i < 512; i += 2) {  // even i: the paper's 2j
        const double exponent = static_cast<double>(doubled ? 2 * i : i) / 512,
                     angle = static_cast<double>(pos) / std::pow(10000.0, exponent);
        worst = std::max(worst, std::abs(double{y.view(pos, i)} - std::sin(angle)));
        worst = std::max(worst, std::abs(double{y.view(pos, i + 1)} - std::cos(angle)));
      }
    }
    CHECK(worst < 0x1p-23);
  }
}

TEST_CASE("sinusoidal_encoding against the formula: sizes, offsets, bases, orders") {
  for (const Index length : {1, 2, 3, 5, 70}) {
    for (const Index d_model : {1, 2, 3, 31, 32, 33, 64, 65, 100}) {
      for (const bool interleaved : {true, false}) {
        compare_formula({.interleaved = interleaved}, length, d_model);
        compare_formula(
            {.offset = 12345, .base = 500.5, .exponent = SinusoidalExponent::doubled, .interleaved = interleaved},
            length, d_model, layouts()[static_cast<std::size_t>(d_model % 8)]);
      }
    }
  }
}

TEST_CASE("add_sinusoidal_encoding: one fma with the encoding, in place too, any rank and strides") {
  Random random(1);
  for (const Layout& layout : layouts()) {
    for (const bool interleaved : {true, false}) {
      for (const float scale : {1.0f, 0.0f, -0.7f}) {
        const Tensor<3> x = random_tensor<3>({3, 41, 67}, random, layout), y({3, 41, 67}, layout);
        const Tensor<2> table({41, 67});
        SinusoidalOptions options{.offset = 100, .interleaved = interleaved};
        sinusoidal_encoding(table.view, options);
        options.scale = scale;
        add_sinusoidal_encoding(x.view, y.view, options);
        Index wrong = 0;
        const float factor = scale == 0 ? std::sqrt(67.0f) : scale;
        for_each_position(x.view.shape, [&](const auto& at) {
          const float expected = std::fma(x.view.data[offset_of(at, x.view.strides)], factor, table.view(at[1], at[2]));
          wrong += bits_of(y.view.data[offset_of(at, y.view.strides)]) == bits_of(expected) ? 0 : 1;
        });
        CHECK(wrong == 0);
        CHECK(y.surroundings_untouched());
        add_sinusoidal_encoding(View<const float, 3>(x.view), x.view, options);
        CHECK(different_bits(x.view, y.view) == 0);
        CHECK(x.surroundings_untouched());
        const Tensor<2> one({41, 67});
        add_sinusoidal_encoding(y.view.select(0, 1), one.view, options);  // rank 2
        add_sinusoidal_encoding(y.view, y.view, options);
        CHECK(different_bits(one.view, y.view.select(0, 1)) == 0);
      }
    }
  }
}

TEST_CASE("sinusoidal encodings: the same bits for every instruction set, number of threads, offset and slice") {
  Random random(2);
  for (const Index d_model : {512, 37}) {
    const Index length = 700;
    const Tensor<2> all({length, d_model});
    {
      const IsaScope scope(available_isas().front());
      sinusoidal_encoding(all.view, {.offset = -20, .num_threads = 1});
    }
    const Tensor<2> x = random_tensor<2>({length, d_model}, random), sums({length, d_model});
    add_sinusoidal_encoding(x.view, sums.view, {.offset = -20, .num_threads = 1});
    for (const int threads : {1, 2, 3, 7}) {
      const Tensor<2> y({length, d_model});
      sinusoidal_encoding(y.view, {.offset = -20, .num_threads = threads});
      CHECK(different_bits(y.view, all.view) == 0);
      add_sinusoidal_encoding(x.view, y.view, {.offset = -20, .num_threads = threads});
      CHECK(different_bits(y.view, sums.view) == 0);
    }
    for (const Index first : {0, 1, 20, 333, 699}) {
      const Index rows = std::min<Index>(first % 7 + 1, length - first);
      const Tensor<2> some({rows, d_model});
      sinusoidal_encoding(some.view, {.offset = first - 20});
      CHECK(different_bits(some.view, all.view.slice(0, first, first + rows)) == 0);
    }
  }
}

TEST_CASE("sinusoidal encodings between guard pages") {
  GuardedRows<2> guarded;
  Guarded<2> encoding;
  everywhere([&](Index length, Index gap, Place where) {
    Random random(static_cast<std::uint64_t>(length));
    const SinusoidalOptions options{.offset = 3, .interleaved = gap % 2 == 0};
    const Tensor<2> x = random_tensor<2>({3, length}, random), y({3, length}), sum({3, length});
    sinusoidal_encoding(y.view, options);
    for (const bool vary : {false, true}) {
      encoding.place(x.view, vary ? layout_of(length, gap, 2) : Layout{}, gap, where);
      sinusoidal_encoding(encoding.view, options);
      guarded.counts.add(different_bits(encoding.view, y.view) == 0, encoding.buffer.surroundings_untouched(),
                         text_of_case("sinusoidal_encoding", length, gap, where));
    }
    add_sinusoidal_encoding(x.view, sum.view, options);
    guarded.check(
        "add_sinusoidal_encoding", x.view, sum.view, length, gap, where,
        [&](const View<float, 2>& from, const View<float, 2>& to) { add_sinusoidal_encoding(from, to, options); });
  });
  guarded.counts.finish("sinusoidal encodings");
}

TEST_CASE("sinusoidal encodings and rotary embeddings allocate nothing once warm") {
  const Tensor<4> x({2, 3, 40, 36}, layouts()[4]);
  for_each(x.view, [](float& e) { e = 1; });
  CHECK(allocates_nothing_once_warm([&] { sinusoidal_encoding(x.view.select(0, 0).select(0, 0)); }));
  CHECK(allocates_nothing_once_warm([&] { add_sinusoidal_encoding(x.view, x.view); }));
  CHECK(allocates_nothing_once_warm([&] { rotary_embedding(x.view, x.view); }));
}

}  // namespace
}  // namespace headlane::test
