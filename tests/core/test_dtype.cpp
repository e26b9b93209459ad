// bfloat16 and float16: every number widened, and rounding at every number that a float can be
// between two of them.
#include "support/data.hpp"

#include <doctest/doctest.h>
#include <headlane/dtype.hpp>

#include <cmath>

namespace headlane::test {
namespace {

static_assert(bfloat16(1.0f).bits == 0x3f80 && float16(1.0f).bits == 0x3c00);
static_assert(static_cast<float>(float16(0x1p-24f)) == 0x1p-24f);

/// A type by its definition in IEEE 754: 1 sign bit, then the exponent, then the fraction.
struct Format {
  int fraction_bits, bias;
  std::uint32_t infinity;  ///< its bits
};
constexpr Format of(bfloat16) { return {7, 127, 0x7f80}; }
constexpr Format of(float16) { return {10, 15, 0x7c00}; }

/// The number with these bits, 0 … infinity; infinity counts as the power of two that it would be.
double exact(const Format& format, std::uint32_t bits) {
  const std::uint32_t one = 1u << format.fraction_bits, exponent = bits / one, fraction = bits % one;
  return exponent == 0 ? std::ldexp(fraction, 1 - format.bias - format.fraction_bits)
                       : std::ldexp(one + fraction, static_cast<int>(exponent) - format.bias - format.fraction_bits);
}

template <class T>
T from_bits(std::uint32_t bits) {
  T result;
  result.bits = static_cast<std::uint16_t>(bits);
  return result;
}

/// The bits of ±x after rounding, without the sign, which must be that of x.
template <class T>
std::uint32_t rounded(float x, std::uint32_t sign) {
  const std::uint32_t bits = T(sign != 0 ? -x : x).bits;
  CHECK((bits & 0x8000u) == sign);
  return bits & 0x7fffu;
}

TEST_CASE_TEMPLATE("dtype: every number is widened exactly", T, bfloat16, float16) {
  const Format format = of(T());
  for (const std::uint32_t sign : {0u, 0x8000u}) {
    for (std::uint32_t bits = 0; bits < 0x8000u; ++bits) {
      const T stored = from_bits<T>(sign | bits);
      const auto x = static_cast<float>(stored);
      CAPTURE(bits);
      REQUIRE(std::signbit(x) == (sign != 0));
      if (bits > format.infinity) {
        REQUIRE(std::isnan(x));
        REQUIRE((rounded<T>(std::abs(x), sign) | 1u << (format.fraction_bits - 1)) ==
                (bits | 1u << (format.fraction_bits - 1)));  // it keeps its payload
        continue;
      }
      if (bits == format.infinity) REQUIRE(std::isinf(x));
      else REQUIRE(double{std::abs(x)} == exact(format, bits));
      REQUIRE(T(x).bits == stored.bits);
    }
  }
}

TEST_CASE_TEMPLATE("dtype: rounding is to nearest, ties to even", T, bfloat16, float16) {
  const Format format = of(T());
  for (const std::uint32_t sign : {0u, 0x8000u}) {
    for (std::uint32_t bits = 0; bits < format.infinity; ++bits) {
      const double middle = (exact(format, bits) + exact(format, bits + 1)) / 2;
      const auto x = static_cast<float>(middle);
      CAPTURE(bits);
      REQUIRE(double{x} == middle);
      REQUIRE(rounded<T>(x, sign) == bits + bits % 2);
      REQUIRE(rounded<T>(std::nextafter(x, 0.0f), sign) == bits);
      REQUIRE(rounded<T>(std::nextafter(x, infinity), sign) == bits + 1);
    }
    CHECK(rounded<T>(infinity, sign) == format.infinity);
    CHECK(rounded<T>(std::numeric_limits<float>::max(), sign) == format.infinity);
  }
}

TEST_CASE_TEMPLATE("dtype: NaN stays NaN", T, bfloat16, float16) {
  for (const std::uint32_t word : {0x7f800001u, 0x7f801fffu, 0x7fbfffffu, 0x7fc00000u, 0x7fffffffu, 0xff800001u}) {
    const auto x = static_cast<float>(T(std::bit_cast<float>(word)));
    CHECK(std::isnan(x));
    CHECK(std::signbit(x) == (word >> 31 != 0));
  }
}

}  // namespace
}  // namespace headlane::test
