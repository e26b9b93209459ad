// Products with activations = int8 by a PackedMatrix of integers in groups of 32.
#include "support/activations_case.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace headlane::test {
namespace {

constexpr DType int8 = DType::int8;

void by_contract(const GemmInputs& in, const PackedMatrix& packed, const GemmOptions& options,
                 const View<float, 2>& c) {
  const Index k = in.a.view.shape[1], n = c.shape[1], groups = (k + 31) / 32;
  std::vector<std::int8_t> numbers(static_cast<std::size_t>(k * n));
  const View<std::int8_t, 2> q(numbers.data(), {k, n});
  const Tensor<2> scales({groups, n});
  packed.unpack(q, scales.view);
  for (Index i = 0; i < c.shape[0]; ++i) {
    const QuantisedRow row(View<const float, 2>(in.a.view).select(0, i));
    const Index at = row.outlier_column;
    for (Index j = 0; j < n; ++j) {
      float& out = c(i, j);
      float sum_b = 0;
      for (Index group = 0; group < k; group += 32) {
        int exact = 0;
        for (Index p = group; p < std::min(k, group + 32); ++p) exact += q(p, j);
        sum_b += static_cast<float>(exact) * scales.view(group / 32, j);
      }
      out = options.beta == 0.0f ? 0.0f : options.beta * out;
      for (Index block = 0; block < k; block += 512) {
        float sum = 0;
        for (Index group = block; group < std::min(k, block + 512); group += 32) {
          std::int64_t exact = 0;
          for (Index p = group; p < std::min(k, group + 32); ++p) exact += row.q[static_cast<std::size_t>(p)] * q(p, j);
          sum = std::fma(static_cast<float>(exact), scales.view(group / 32, j), sum);
        }
        const float outlier = block <= at && at < block + 512 ? row.outlier : 0.0f;
        const float weight = static_cast<float>(q(at, j)) * scales.view(at / 32, j);
        const float others = std::fma(block == 0 ? row.centre : 0.0f, sum_b, sum * row.scale);
        out = std::fma(options.alpha, std::fma(outlier, weight, others), out);
      }
      if (options.bias) out += options.bias(j);
    }
  }
}

const std::array<ActivationsCase, 2> types{
    {{DType::int8_group32, int8, by_contract}, {DType::int4_group32, int8, by_contract}}};

TEST_CASE("gemm, groups with int8: the bits that the contract describes") {
  for (const ActivationsCase& products : types) products.check_random(200);
}
/// With 7 rows, weights of 4 bits are multiplied as they are stored; with more than 24 they are
/// widened first.
TEST_CASE("gemm, groups with int8: every height, width and k") {
  for (const ActivationsCase& products : types) products.check_sizes(7);
}
TEST_CASE("gemm, groups with int8: a row depends on nothing but itself") {
  for (const ActivationsCase& products : types) products.check_rows_alone();
}
TEST_CASE("gemm_gated, gemm_batch, a list, groups with int8: the bits of gemm") {
  for (const ActivationsCase& products : types) products.check_other_products();
}
TEST_CASE("gemm, groups with int8: operands between guard pages") {
  for (const ActivationsCase& products : types) products.check_guard_pages();
}

TEST_CASE("gemm, groups with int8: the outlier of a row") {
  for (const ActivationsCase& products : types) products.check_outliers();
}

TEST_CASE("gemm, groups with int8: the largest integers, and rows that are not finite") {
  const Index m = 14, n = 40, k = 70;
  for (const ActivationsCase& products : types)
    products.with_each_extension([&] {
      const GemmInputs in(m, n, k), copy(m, n, k);
      for (const GemmInputs* each : {&in, &copy}) {
        for_each(each->a.view, [](float& x) { x = x < 0 ? -3.0f : 3.0f; });
        for_each(each->b.view, [](float& x) { x = x < 0 ? -2.0f : 2.0f; });
        each->a.view(3, 69) = nan;
        each->a.view(12, 0) = infinity;
      }
      products.check(in, copy, {}, "largest");
      CHECK(std::isnan(in.c.view(3, 39)));
      CHECK(std::isnan(in.c.view(12, 0)));
      CHECK(std::isfinite(in.c.view(4, 39)));
    });
}

/// The bound of gemm.hpp against exact products of the unpacked matrix.
TEST_CASE("gemm, groups with int8: the error bound") {
  for (const ActivationsCase& type : types)
    for (const Index k : {1, 5, 64, 512, 1500}) {
      const GemmInputs in(7, 33, k);
      for (Index p = 0; p < k; ++p) in.a.view(3, p) += 100.0f;  // far from 0
      const PackedMatrix packed = type.packed(in.b.view);
      const Tensor<2> b({k, 33});
      packed.unpack(b.view);
      gemm(in.a.view, packed, in.c.view, {.activations = int8});
      Comparison comparison("gemm, groups with int8", "k " + std::to_string(k), 0, Comparison::Kind::special);
      for_each_position(in.c.view.shape, [&](const auto& at) {
        double exact = 0, magnitudes = 0, products = 0;
        for (Index p = 0; p < k; ++p) {
          const double x = in.a.view(at[0], p), y = b.view(p, at[1]);
          exact += x * y;
          products += std::abs(x * y);
          magnitudes += std::abs(y);
        }
        const QuantisedRow row(View<const float, 2>(in.a.view).select(0, at[0]));
        const Index groups = (k + 31) / 32, blocks = (k + 511) / 512;
        const double g = gamma(static_cast<double>(std::min<Index>(groups, 16) + blocks + 4));
        const double h = gamma(static_cast<double>(groups + blocks + 1));
        const double quantised = row.distance / 254.0 * 1.0001 * magnitudes;
        const double centred = std::abs(double{row.centre}) * magnitudes;
        const double bound = quantised + g * (products + centred + quantised) + h * centred;
        comparison.add({at[0], at[1]}, in.c.view(at[0], at[1]), exact, bound);
      });
      comparison.finish();
    }
}

}  // namespace
}  // namespace headlane::test
