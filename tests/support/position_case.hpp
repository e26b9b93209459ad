// Exact sines and cosines, and sinusoidal and rotary embeddings in long double.
#pragma once

#include "support/data.hpp"
#include "support/tolerance.hpp"
#include "support/ulp.hpp"

#include <headlane/position.hpp>

namespace headlane::test {

// The bounds of position.hpp: ULP, and an absolute part.
inline constexpr double sin_cos_limit = 1.4;
inline double absolute_limit(Index position) { return 0x1p-48 + 0x1p-61 * std::abs(static_cast<double>(position)); }

/// base^(-factor · j / dim), in long double, whose own error is far below what is measured.
inline long double frequency_of(double base, Index factor, Index j, Index dim) {
  return std::pow(static_cast<long double>(base),
                  -static_cast<long double>(factor * j) / static_cast<long double>(dim));
}

/// The largest error of sines or cosines, in ULP, after what positions explain.
class SinCosErrors {
 public:
  void add(float actual, long double angle, bool cosine, Index position) {
    const long double exact = cosine ? std::cos(angle) : std::sin(angle);
    const double given = static_cast<double>(exact), allowed = absolute_limit(position);
    const double off = std::abs(static_cast<double>(static_cast<long double>(actual) - exact));
    ++count_;
    const double error = off <= allowed ? 0 : ulp_error(actual, given) * (off - allowed) / off;
    if (!(error <= worst_)) {
      worst_ = error;
      at_ = static_cast<double>(angle);
    }
  }
  void finish(const std::string& what, Index least) const {
    MESSAGE(what, ", isa ", isa(), ": ", count_, " values, at most ", worst_, " ULP (at ", at_, ")");
    CHECK(count_ >= least);
    CHECK_MESSAGE(worst_ <= sin_cos_limit, what, " at ", at_);
  }

 private:
  Index count_ = 0;
  double worst_ = 0, at_ = 0;
};

inline Index rotary_dim_of(const RotaryOptions& options, Index head_dim) {
  return options.rotary_dim == 0 ? head_dim : options.rotary_dim;
}

/// The position of row i of batch element b.
inline Index position_of(const RotaryOptions& options, Index b, Index i) {
  const AnyView<const Index>& given = options.positions;
  if (given.data == nullptr) return options.offset + i;
  return options.offset + (given.rank == 2 ? given.data[b * given.strides[0] + i * given.strides[1]]
                                           : given.data[b * given.strides[0]] + i);
}

/// rotary_embedding, in long double, against y.
inline void compare_rotary(const View<const float, 4>& x, const View<float, 4>& y, const RotaryOptions& options,
                           const std::string& what) {
  Comparison comparison("rotary_embedding", what, 0, Comparison::Kind::special);
  const Index dim = rotary_dim_of(options, x.size(3)), pairs = dim / 2;
  for_each_position(x.shape, [&](const auto& at) {
    const auto [b, h, i, c] = at;
    const float* row = &x.data[b * x.strides[0] + h * x.strides[1] + i * x.strides[2]];
    const auto element = [&](Index column) { return row[column * x.strides[3]]; };
    const float actual = y.data[offset_of(at, y.strides)];
    if (c >= dim) return comparison.add({b, h, i, c}, actual, double{element(c)}, 0);
    const Index j = options.interleaved ? c / 2 : c % pairs;
    const bool second = options.interleaved ? c % 2 == 1 : c >= pairs;
    const Index own = c, other = options.interleaved ? c ^ 1 : second ? c - pairs : c + pairs;
    const long double frequency =
        options.frequencies.data != nullptr
            ? static_cast<long double>(options.frequencies.data[j * options.frequencies.strides[0]])
            : frequency_of(options.base, 2, j, dim);
    const Index position = position_of(options, b, i);
    const long double angle = static_cast<long double>(position) * frequency;
    const auto by_cos = static_cast<double>(static_cast<long double>(element(own)) * std::cos(angle));
    const auto by_sin = static_cast<double>(static_cast<long double>(element(other)) * std::sin(angle));
    const double exact = second ? by_cos + by_sin : by_cos - by_sin;
    const double bound = (3.8 * std::abs(by_cos) + 2.8 * std::abs(by_sin) + std::abs(exact)) * unit +
                         (std::abs(double{element(own)}) + std::abs(double{element(other)})) * absolute_limit(position);
    comparison.add({b, h, i, c}, actual, exact, bound + 0x1p-149);
  });
  comparison.finish();
}

}  // namespace headlane::test
