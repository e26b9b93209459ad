// Products with activations = bfloat16: rows are rounded, and multiplied by a PackedMatrix of
// bfloat16.
#include "support/activations_case.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>

namespace headlane::test {
namespace {

constexpr DType type = DType::bfloat16;

float rounded(float x) { return static_cast<float>(bfloat16(x)); }
float without_denormals(float x) { return std::abs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

/// fma with denormal operands and results as 0, where a result is denormal if it is after rounding
/// to 24 bits: computed 2^64 further up, where nothing is denormal.
float dot_fma(float x, float y, float z) {
  x = without_denormals(x), y = without_denormals(y), z = without_denormals(z);
  const float result = std::fma(x, y, z);
  if (!(std::abs(result) <= 0x1p-100f)) return result;
  const float higher = std::fma(x * 0x1p64f, y, z * 0x1p64f);
  return std::abs(higher) < 0x1p-62f ? std::copysign(0.0f, higher) : result;
}

void by_contract(const GemmInputs& in, const PackedMatrix& packed, const GemmOptions& options,
                 const View<float, 2>& c) {
  const Index k = in.a.view.shape[1];
  const Tensor<2> b(in.b.view.shape);
  packed.unpack(b.view);
  const auto a_at = [&](Index i, Index p) { return p < k ? rounded(in.a.view(i, p)) : 0.0f; };
  const auto b_at = [&](Index p, Index j) { return p < k ? b.view(p, j) : 0.0f; };
  for_each_position(c.shape, [&](const auto& at) {
    const auto [i, j] = at;
    float& out = c(i, j);
    out = options.beta == 0.0f ? 0.0f : options.beta * out;
    for (Index block = 0; block < k; block += 512) {
      float sum = 0;
      for (Index p = block; p < std::min(k, block + 512); p += 2)
        sum = dot_fma(a_at(i, p), b_at(p, j), dot_fma(a_at(i, p + 1), b_at(p + 1, j), sum));
      out = std::fma(options.alpha, sum, out);
    }
    if (options.bias) out += options.bias(j);
  });
}

const ActivationsCase products{type, type, by_contract, {"all", "vnni", "none"}};

TEST_CASE("gemm, bfloat16: the bits that the contract describes") { products.check_random(250); }
TEST_CASE("gemm, bfloat16: every height, width and k") { products.check_sizes(13); }
TEST_CASE("gemm, bfloat16: a row depends on nothing but itself") { products.check_rows_alone(); }
TEST_CASE("gemm_gated, gemm_batch, a list, bfloat16: the bits of gemm") { products.check_other_products(); }
TEST_CASE("gemm, bfloat16: operands between guard pages") { products.check_guard_pages(); }

/// A float with few random bits and an exponent from 2^low to 2^(low + count - 1).
float of_exponent(Random& random, Index low, Index count, unsigned fraction) {
  const auto exponent = static_cast<std::uint32_t>(low + 127 + random.integer(0, count - 1));
  const auto bits = static_cast<std::uint32_t>(random.integer(0, 0x7fffff)) & fraction;
  return std::bit_cast<float>(static_cast<std::uint32_t>(random.integer(0, 1)) << 31 | exponent << 23 | bits);
}

TEST_CASE("gemm, bfloat16: denormal operands, sums and products count as 0, overflow is inf") {
  constexpr struct {
    Index a, b, count;  // least exponents, and how many
  } ranges[] = {{-127, 0, 3}, {0, -127, 3}, {-64, -64, 4}, {-70, -57, 3}, {-75, -75, 40}, {60, 60, 8}, {-40, -100, 30}};
  products.with_each_extension([&] {
    for (const auto& range : ranges)
      for (std::uint64_t seed = 0; seed < (slow_isa() ? 2u : 20u); ++seed) {
        Random random(seed);
        const GemmInputs in(13, 48, 60), copy(13, 48, 60);
        for_each(in.a.view, [&](float& x) { x = of_exponent(random, range.a, range.count, 0x7f0000); });
        for_each(in.b.view, [&](float& x) { x = of_exponent(random, range.b, range.count, 0x7f0000); });
        for_each_position(in.a.view.shape, [&](const auto& p) { copy.a.view(p[0], p[1]) = in.a.view(p[0], p[1]); });
        products.check(in, copy, {},
                       "exponents " + std::to_string(range.a) + " and " + std::to_string(range.b) + ", seed " +
                           std::to_string(seed));
      }
  });
}

/// 2^-126 and a product of 2^-151 or so: above the least normal number there is nothing between,
/// below it there is 2^-126 - 2^-150, which is flushed, and the number that rounds up to 2^-126.
TEST_CASE("gemm, bfloat16: results around the least normal number") {
  products.with_each_extension([] {
    for (const double tiny : {0x1p-149, 0x1.02p-150, 0x1p-150, 0x1.fcp-151, 0x1.02p-151, 0x1p-151, 0x1.fcp-152}) {
      const GemmInputs in(2, 17, 4), copy(2, 17, 4);
      for (const GemmInputs* each : {&in, &copy})
        for (Index i = 0; i < 2; ++i) {
          const float sign = i == 0 ? 1.0f : -1.0f;
          const float row[] = {-sign * static_cast<float>(tiny * 0x1p90), sign * 0x1p-60f, 0.0f, 0.0f};
          for (Index p = 0; p < 4; ++p) each->a.view(i, p) = row[p];
        }
      const float column[] = {0x1p-90f, 0x1p-66f, 1.0f, 1.0f};
      for (Index p = 0; p < 4; ++p)
        for (Index j = 0; j < 17; ++j) in.b.view(p, j) = column[p];
      products.check(in, copy, {}, std::to_string(std::log2(tiny)));
    }
  });
}

TEST_CASE("gemm, bfloat16: NaN and inf stay in their row") {
  products.with_each_extension([] {
    for (const float x : {nan, infinity, -infinity, std::bit_cast<float>(0x7f800001u)}) {
      const GemmInputs in(14, 40, 70);
      in.a.view(3, 69) = in.a.view(12, 0) = x;
      gemm(in.a.view, PackedMatrix(in.b.view, {.type = type}), in.c.view, {.activations = type});
      CHECK(!std::isfinite(in.c.view(3, 39)));
      CHECK(!std::isfinite(in.c.view(12, 0)));
      CHECK(std::isfinite(in.c.view(4, 39)));
      CHECK((std::isinf(in.c.view(3, 0)) == std::isinf(x)));
    }
  });
}

/// The bound of gemm.hpp against exact products of the unpacked matrix.
TEST_CASE("gemm, bfloat16: the error bound") {
  for (const Index k : {1, 5, 64, 128, 129, 512, 1500}) {
    const GemmInputs in(7, 33, k);
    const PackedMatrix packed(in.b.view, {.type = type});
    const Tensor<2> b({k, 33});
    packed.unpack(b.view);
    gemm(in.a.view, packed, in.c.view, {.activations = type});
    Comparison comparison("gemm, bfloat16", "k " + std::to_string(k), 0, Comparison::Kind::special);
    for_each_position(in.c.view.shape, [&](const auto& at) {
      double exact = 0, magnitudes = 0;
      for (Index p = 0; p < k; ++p) {
        const double product = double{in.a.view(at[0], p)} * double{b.view(p, at[1])};
        exact += product;
        magnitudes += std::abs(product);
      }
      const Index roundings = std::min<Index>(k, 512) + (k + 511) / 512;
      const double bound = (0x1p-8 + gamma(static_cast<double>(roundings)) * (1 + 0x1p-8)) * magnitudes;
      comparison.add({at[0], at[1]}, in.c.view(at[0], at[1]), exact, bound);
    });
    comparison.finish();
  }
}

TEST_CASE("gemm_gated, bfloat16: both weights are of this type") {
  const GemmInputs in(3, 40, 7);
  const PackedMatrix gate(in.b.view, {.type = type}), up(in.b.view, {.type = DType::int8});
  CHECK_THROWS_WITH_AS(
      gemm_gated(in.a.view, gate, up, in.c.view, {.activations = type}),
      "gemm_gated: up is a PackedMatrix of int8; with activations bfloat16 it must be a PackedMatrix of bfloat16",
      std::invalid_argument);
}

TEST_CASE("isa_extension: what the environment allows") {
  const std::string before(isa_extension());
  {
    const ExtensionScope off("none");
    CHECK(isa_extension().empty());
  }
  {
    const ExtensionScope integers("vnni");
    CHECK(isa_extension() == before.substr(0, before.find('+')));
  }
  {
    const ExtensionScope everything("all");
    const std::string all(isa_extension());
    const bool is_usual = before == all || before == all.substr(0, all.find('+'));
    CHECK_MESSAGE(is_usual, all, " and ", before);
  }
  CHECK(isa_extension() == before);
}

}  // namespace
}  // namespace headlane::test
