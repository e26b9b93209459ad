// The library's own exp and log: error in ULP on a dense sample of all floats, exact points, tails.
// exp_exhaustive does the same for all 2^32 floats.
#include "core/dispatch.hpp"
#include "kernels/table.hpp"
#include "support/data.hpp"
#include "support/scope.hpp"
#include "support/ulp.hpp"

#include <doctest/doctest.h>

namespace headlane::test {

using namespace internal;
namespace {

// The stated bound is 1 ULP; the headers of the kernels give the measured maximum (exp_exhaustive).
constexpr double exp_limit = 1.0, log_limit = 1.0;

using Kernel = void (*)(const float* x, float* y, Index n) noexcept;

template <class Exact>
void check_ulp(Kernel kernel, Exact exact, double limit, const std::string& name) {
  constexpr std::size_t chunk = 4096;
  const std::uint32_t step = slow_isa() ? 5003 : 997;  // primes: every low bit pattern occurs
  std::vector<float> x(chunk), y(chunk);
  double worst = 0;
  float worst_x = 0;
  Index count = 0;
  std::uint64_t next = 0;
  while (next < (std::uint64_t{1} << 32)) {
    std::size_t n = 0;
    for (; n < chunk && next < (std::uint64_t{1} << 32); next += step) {
      x[n++] = std::bit_cast<float>(static_cast<std::uint32_t>(next));
    }
    kernel(x.data(), y.data(), static_cast<Index>(n));
    for (std::size_t i = 0; i < n; ++i, ++count) {
      const double error = ulp_error(y[i], exact(double{x[i]}));
      if (error > worst) {
        worst = error;
        worst_x = x[i];
      }
    }
  }
  MESSAGE(name, ", isa ", isa(), ": ", count, " floats, at most ", worst, " ULP (at ", worst_x, ")");
  CHECK(count > 800000);
  CHECK_MESSAGE(worst <= limit, name, " at ", worst_x);
}

float one(Kernel kernel, float x) {
  float y = 0;
  kernel(&x, &y, 1);
  return y;
}

TEST_CASE("exp and log: ULP error on a dense sample of all floats") {
  check_ulp(active().exp, [](double x) { return std::exp(x); }, exp_limit, "exp");
  check_ulp(active().log, [](double x) { return std::log(x); }, log_limit, "log");
}

TEST_CASE("exp: exact points, limits, neighbours of the limits") {
  const auto exp = [](float x) { return one(active().exp, x); };
  CHECK(exp(0.0f) == 1.0f);
  CHECK(exp(-0.0f) == 1.0f);
  CHECK(exp(0x1p-149f) == 1.0f);
  CHECK(exp(-0x1p-149f) == 1.0f);
  CHECK(bits_of(exp(-infinity)) == 0);
  CHECK(bits_of(exp(-1e30f)) == 0);
  CHECK(bits_of(exp(-104.0f)) == 0);
  CHECK(exp(-103.9f) == 0x1p-149f);
  CHECK(exp(infinity) == infinity);
  CHECK(exp(89.0f) == infinity);
  CHECK(exp(3e38f) == infinity);
  CHECK(exp(0x1.62e42ep6f) < infinity);  // the largest whose exponential is finite
  CHECK(exp(0x1.62e43p6f) == infinity);
  CHECK(std::isnan(exp(nan)));
  CHECK(std::isnan(exp(-nan)));
  CHECK(std::isnan(exp(std::bit_cast<float>(0x7f800001u))));  // signalling
  for (const float limit : {-104.0f, -103.972f, -87.3365f, 88.7228f, 0.34657359f, -0.34657359f, 1.0f, -1.0f, 0.0f}) {
    float x = limit;
    for (int i = 0; i < 1000; ++i) x = std::nextafter(x, -infinity);
    for (int i = 0; i < 2000; ++i, x = std::nextafter(x, infinity)) {
      CHECK(ulp_error(exp(x), std::exp(double{x})) <= exp_limit);
    }
  }
}

TEST_CASE("log: exact points and limits") {
  const auto log = [](float x) { return one(active().log, x); };
  CHECK(bits_of(log(1.0f)) == 0);
  CHECK(log(0.0f) == -infinity);
  CHECK(log(-0.0f) == -infinity);
  CHECK(log(infinity) == infinity);
  CHECK(std::isnan(log(-1.0f)));
  CHECK(std::isnan(log(-0x1p-149f)));
  CHECK(std::isnan(log(-infinity)));
  CHECK(std::isnan(log(nan)));
  float x = 1.0f;
  for (int i = 0; i < 1000; ++i) x = std::nextafter(x, 0.0f);
  for (int i = 0; i < 2000; ++i, x = std::nextafter(x, infinity)) {
    CHECK(ulp_error(log(x), std::log(double{x})) <= log_limit);
  }
}

// The exponential of a larger x may be smaller by at most 1 ULP, the rounding of neighbours.
TEST_CASE("exp: grows with x") {
  std::vector<float> x, y;
  for (int i = -104 * 512; i <= 89 * 512; ++i) x.push_back(static_cast<float>(i) / 512);
  y.resize(x.size());
  active().exp(x.data(), y.data(), static_cast<Index>(x.size()));
  for (std::size_t i = 1; i < y.size(); ++i) CHECK(y[i] >= y[i - 1]);
}

TEST_CASE("exp and log: a tail has the bits of the bulk, and nothing beyond it is written") {
  Random random(1);
  std::vector<float> x(64);
  for (float& e : x) e = 20 * random.normal();
  for (const Kernel kernel : {active().exp, active().log}) {
    std::vector<float> all(64);
    kernel(x.data(), all.data(), 64);
    for (std::size_t n = 0; n <= 33; ++n) {
      for (std::size_t first = 0; first < 17; ++first) {
        std::vector<float> y(64, std::bit_cast<float>(sentinel_bits));
        kernel(x.data() + first, y.data() + first, static_cast<Index>(n));
        Index wrong = 0;
        for (std::size_t i = 0; i < 64; ++i) {
          const bool inside = i >= first && i < first + n;
          wrong += (inside ? bits_of(y[i]) == bits_of(all[i]) : is_sentinel(y[i])) ? 0 : 1;
        }
        CHECK(wrong == 0);
      }
    }
  }
}

}  // namespace
}  // namespace headlane::test
