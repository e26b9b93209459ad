// The library's own sin and cos against long double: rotating the pair (1, 0) returns exactly (cos,
// sin), and encodings consist of them.
#include "support/position_case.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>

namespace headlane::test {
namespace {

constexpr float half_pi = 1.57079632679489662f;

struct SinCos {
  std::vector<float> cos, sin;
};

// Sine and cosine of position · frequency for each frequency.
SinCos sin_cos_of(Index position, const std::vector<float>& frequencies) {
  const auto n = static_cast<Index>(frequencies.size());
  std::vector<float> x(2 * frequencies.size(), 0.0f), y(x.size());
  std::fill_n(x.begin(), frequencies.size(), 1.0f);
  RotaryOptions options;
  options.offset = position;
  options.frequencies = {frequencies.data(), {n}};
  rotary_embedding(View<const float, 4>(x.data(), {1, 1, 1, 2 * n}), View<float, 4>(y.data(), {1, 1, 1, 2 * n}),
                   options);
  return {{y.begin(), y.begin() + n}, {y.begin() + n, y.end()}};
}

void compare(SinCosErrors& errors, Index position, const std::vector<float>& frequencies) {
  const SinCos y = sin_cos_of(position, frequencies);
  for (std::size_t j = 0; j < frequencies.size(); ++j) {
    const long double angle = static_cast<long double>(position) * static_cast<long double>(frequencies[j]);
    errors.add(y.sin[j], angle, false, position);
    errors.add(y.cos[j], angle, true, position);
  }
}

TEST_CASE("sin and cos: a dense sample of all angles that are floats") {
  SinCosErrors errors;
  const std::uint32_t step = slow_isa() ? 15013 : 3001, last = bits_of(65536.0f);
  std::vector<float> frequencies;
  for (std::uint32_t bits = bits_of(0x1p-30f); bits <= last; bits += step) {
    frequencies.push_back(std::bit_cast<float>(bits) * (bits % 2 == 0 ? 1.0f : -1.0f));
    if (frequencies.size() < 4096 && bits + step <= last) continue;
    compare(errors, 1, frequencies);
    frequencies.clear();
  }
  errors.finish("sin and cos of floats", 40000);
}

TEST_CASE("sin and cos: floats around multiples of pi / 4") {
  SinCosErrors errors;
  std::vector<float> frequencies;
  for (Index k = 1; k <= 83000; k += slow_isa() ? 37 : 1) {
    float f = std::min(static_cast<float>(static_cast<double>(k) * 0.785398163397448310), 65000.0f);
    for (int i = 0; i < 3; ++i) f = std::nextafter(f, 0.0f);
    for (int i = 0; i < 7; ++i, f = std::nextafter(f, infinity)) frequencies.push_back(f);
  }
  compare(errors, 1, frequencies);
  compare(errors, -1, frequencies);
  errors.finish("sin and cos beside multiples of pi / 4", 30000);
}

// The same through positions: frequencies that make position · frequency almost a multiple of a
// quarter turn.
TEST_CASE("sin and cos: large positions, some of whose angles are almost multiples of pi / 2") {
  SinCosErrors errors;
  Random random(3);
  std::vector<Index> positions{0,
                               1,
                               2,
                               3,
                               4095,
                               65535,
                               1000000,
                               Index{1} << 24,
                               -(Index{1} << 24),
                               (Index{1} << 36) - 1,
                               Index{1} << 36,
                               -(Index{1} << 36)};
  for (int i = 0; i < (slow_isa() ? 30 : 200); ++i)
    positions.push_back(random.integer(0, Index{1} << random.integer(1, 36)));
  for (const Index position : positions) {
    std::vector<float> frequencies{0.0f, 1.0f, -1.0f, 0x1p-30f, 65536.0f};
    for (int i = 0; i < 100; ++i) {
      const double near = static_cast<double>(half_pi) / std::max(1.0, std::abs(static_cast<double>(position)));
      frequencies.push_back(static_cast<float>(near * static_cast<double>(random.integer(1, 1000))));
      frequencies.push_back(random.uniform());
    }
    compare(errors, position, frequencies);
  }
  errors.finish("sin and cos of large positions", 10000);
}

void compare_encoding(SinCosErrors& errors, Index offset, Index length, Index d_model, SinusoidalOptions options) {
  const Tensor<2> y({length, d_model});
  options.offset = offset;
  sinusoidal_encoding(y.view, options);
  for (Index j = 0; j < d_model / 2; ++j) {
    const long double frequency =
        frequency_of(options.base, options.exponent == SinusoidalExponent::paper ? 2 : 4, j, d_model);
    for (Index i = 0; i < length; ++i) {
      const long double angle = static_cast<long double>(offset + i) * frequency;
      errors.add(y.view(i, 2 * j), angle, false, offset + i);
      errors.add(y.view(i, 2 * j + 1), angle, true, offset + i);
    }
  }
}

TEST_CASE("sin and cos: positions 0 to 4096 by the frequencies of d = 64, 128, 512") {
  SinCosErrors errors;
  for (const Index d_model : {64, 128, 512}) {
    if (!slow_isa()) compare_encoding(errors, 0, 4097, d_model, {});
    else
      for (Index offset = 0; offset < 4097; offset += 480) compare_encoding(errors, offset, 17, d_model, {});
  }
  errors.finish("encodings", 100000);
}

TEST_CASE("sin and cos: large positions by the frequencies of many bases") {
  SinCosErrors errors;
  for (const Index d_model : {2, 6, 64, 130}) {
    for (const double base : {1.0, 1.0000001, 2.0, 7.3, 10000.0, 500000.0, 1e6, 1e10}) {
      for (const Index offset : {Index{999990}, (Index{1} << 24) - 5, -(Index{1} << 24), Index{1} << 30}) {
        for (const SinusoidalExponent exponent : {SinusoidalExponent::paper, SinusoidalExponent::doubled})
          compare_encoding(errors, offset, 10, d_model, {.base = base, .exponent = exponent});
      }
    }
  }
  errors.finish("encodings at large positions", 100000);
}

TEST_CASE("sin and cos: position 0, frequency 0") {
  const SinCos zero = sin_cos_of(0, std::vector<float>(37, 0.3f)),
               none = sin_cos_of(12345, std::vector<float>(37, 0.0f));
  for (std::size_t j = 0; j < 37; ++j) {
    CHECK(bits_of(zero.sin[j]) == 0);
    CHECK(zero.cos[j] == 1);
    CHECK(bits_of(none.sin[j]) == 0);
    CHECK(none.cos[j] == 1);
  }
}

}  // namespace
}  // namespace headlane::test
