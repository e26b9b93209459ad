// Products with activations = int8: rows are quantised, and multiplied by a PackedMatrix of int8.
#include "support/activations_case.hpp"
#include "support/illegal.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace headlane::test {
namespace {

constexpr DType int8 = DType::int8;

/// A matrix as integers of each column and their scale, found from what was unpacked.
struct Columns {
  std::vector<int> q;
  std::vector<float> scale;
};

Columns columns_of(const PackedMatrix& packed) {
  const Index k = packed.rows(), n = packed.columns();
  const Tensor<2> b({k, n});
  packed.unpack(b.view);
  Columns result{std::vector<int>(static_cast<std::size_t>(k * n)), std::vector<float>(static_cast<std::size_t>(n))};
  for (Index j = 0; j < n; ++j) {
    float largest = 0;
    for (Index p = 0; p < k; ++p) largest = std::max(largest, std::abs(b.view(p, j)));
    const float scale = largest / 127.0f;  // exact: the largest is 127 times it
    result.scale[static_cast<std::size_t>(j)] = scale;
    for (Index p = 0; p < k; ++p)
      result.q[static_cast<std::size_t>(p * n + j)] =
          scale == 0.0f ? 0 : static_cast<int>(std::lrint(b.view(p, j) / scale));
  }
  return result;
}

void by_contract(const GemmInputs& in, const PackedMatrix& packed, const GemmOptions& options,
                 const View<float, 2>& c) {
  const Columns b = columns_of(packed);
  const Index m = c.shape[0], n = c.shape[1];
  for (Index i = 0; i < m; ++i) {
    const QuantisedRow row(View<const float, 2>(in.a.view).select(0, i));
    for (Index j = 0; j < n; ++j) {
      const auto q = [&](Index p) { return b.q[static_cast<std::size_t>(p * n + j)]; };
      const float product = row.product(q, b.scale[static_cast<std::size_t>(j)]);
      c(i, j) = std::fma(options.alpha, product, options.beta == 0.0f ? 0.0f : options.beta * c(i, j));
      if (options.bias) c(i, j) += options.bias(j);
    }
  }
}

const ActivationsCase products{int8, int8, by_contract};

TEST_CASE("gemm, int8: the bits that the contract describes") { products.check_random(400); }
TEST_CASE("gemm, int8: every height, width and k") { products.check_sizes(13); }
TEST_CASE("gemm, int8: a row depends on nothing but itself") { products.check_rows_alone(); }
TEST_CASE("gemm_gated, gemm_batch, a list, int8: the bits of gemm") { products.check_other_products(); }
TEST_CASE("gemm, int8: operands between guard pages") { products.check_guard_pages(); }

TEST_CASE("gemm, int8: alpha 0 and k 0 are those of float32") {
  const GemmInputs in(5, 40, 7), copy(5, 40, 7);
  const PackedMatrix b(in.b.view, {.type = int8});
  gemm(in.a.view, b, in.c.view, {.alpha = 0, .beta = 0.3f, .activations = int8});
  gemm(copy.a.view, b, copy.c.view, {.alpha = 0, .beta = 0.3f});
  CHECK(different_bits(in.c.view, copy.c.view) == 0);
  const Tensor<2> a({5, 0}), none({0, 40});
  gemm(a.view, PackedMatrix(none.view, {.type = int8}), in.c.view, {.bias = in.bias.view, .activations = int8});
  for (Index j = 0; j < 40; ++j) CHECK(in.c.view(4, j) == in.bias.view(j));
}

TEST_CASE("gemm, int8: a row with an element that is not finite is NaN, its neighbours are not") {
  for (const bool extended : {true, false}) {
    const ExtensionScope extension(extended);
    for (const float x : {nan, infinity, -infinity}) {
      const GemmInputs in(14, 40, 70), copy(14, 40, 70);
      for (const GemmInputs* each : {&in, &copy}) each->a.view(3, 69) = each->a.view(12, 0) = x;
      products.check(in, copy, {}, "not finite");
      CHECK(std::isnan(in.c.view(3, 39)));
      CHECK(std::isfinite(in.c.view(4, 39)));
    }
  }
}

TEST_CASE("gemm, int8: rows of any magnitude") {
  for (const float magnitude : {0.0f, 0x1p-149f, 0x1p-126f, 0x1.fp-101f, 0x1p-100f, 0x1p-60f, 0x1p100f, 0x1p126f}) {
    const GemmInputs in(3, 20, 30), copy(3, 20, 30);
    for (const GemmInputs* each : {&in, &copy})
      for (Index p = 0; p < 30; ++p) each->a.view(1, p) *= magnitude / 4;  // 4: no element overflows
    products.check(in, copy, {}, "magnitude " + std::to_string(magnitude));
    const GemmInputs outlier(3, 20, 30), same(3, 20, 30);  // an ordinary one beside elements of any magnitude
    for (const GemmInputs* each : {&outlier, &same})
      for (Index p = 0; p < 30; ++p) each->a.view(1, p) *= p == 17 ? 1.0f : magnitude / 4;
    products.check(outlier, same, {}, "outlier beside magnitude " + std::to_string(magnitude));
  }
  const GemmInputs in(1, 20, 30), copy(1, 20, 30);
  for (const GemmInputs* each : {&in, &copy}) {
    each->a.view(0, 0) = std::numeric_limits<float>::max();
    each->a.view(0, 1) = -std::numeric_limits<float>::max();
  }
  products.check(in, copy, {}, "the largest float");
}

/// Wherever it is, alone or with others of its magnitude, of which the first one is meant.
TEST_CASE("gemm, int8: the outlier of a row") { products.check_outliers(); }

TEST_CASE("gemm, int8: a row of zeros but one element is not quantised") {
  const Index k = 70, n = 40;
  const GemmInputs in(k, n, k);
  const PackedMatrix packed(in.b.view, {.type = int8});
  const Columns b = columns_of(packed);
  for_each_position(in.a.view.shape, [&](const auto& at) { in.a.view(at[0], at[1]) = at[0] == at[1] ? -3.1f : 0.0f; });
  gemm(in.a.view, packed, in.c.view, {.activations = int8});
  for_each_position(in.c.view.shape, [&](const auto& at) {
    const auto q = static_cast<float>(b.q[static_cast<std::size_t>(at[0] * n + at[1])]);
    CHECK(in.c.view(at[0], at[1]) == -3.1f * q * b.scale[static_cast<std::size_t>(at[1])]);
  });
}

TEST_CASE("gemm, int8: large elements of other rows change nothing") {
  const Index m = 37, n = 70, k = 130;
  const GemmInputs all(m, n, k), others(m, n, k);
  const PackedMatrix b = products.packed(all.b.view);
  gemm(all.a.view, b, all.c.view, {.activations = int8});
  for (Index i = 0; i < m; ++i)
    if (i != 20)
      for (Index p = 0; p < k; ++p) others.a.view(i, p) = 1e30f;
  gemm(others.a.view, b, others.c.view, {.activations = int8, .num_threads = 2});
  CHECK(different_bits(others.c.view.slice(0, 20, 21), all.c.view.slice(0, 20, 21)) == 0);
}

TEST_CASE("gemm, int8: the largest sum, and one row more") {
  const Index k = 132000;
  const Tensor<2> a({3, k}), b({k, 3}), c({3, 3});
  for (Index p = 0; p < k; ++p) {
    const float sign = p % 2 == 0 ? 1.0f : -1.0f;
    a.view(0, p) = 2.0f * sign;
    a.view(1, p) = -2.0f * sign;
    a.view(2, p) = 2.0f;
    b.view(p, 0) = b.view(p, 1) = 127.0f * sign;
    b.view(p, 2) = 127.0f;
  }
  for (const bool extended : {true, false}) {
    const ExtensionScope extension(extended);
    gemm(a.view, PackedMatrix(b.view, {.type = int8}), c.view, {.activations = int8});
    const auto with_outlier = [](float outlier, Index others) {
      return std::fma(outlier, 127.0f, static_cast<float>(127 * 127 * others) * (2.0f / 127.0f));
    };
    for (Index j = 0; j < 2; ++j) {
      CHECK(c.view(0, j) == with_outlier(2.0f, k - 1));   // the outlier is the first element
      CHECK(c.view(1, j) == -with_outlier(2.0f, k - 1));  // the second one, the first of 2
      CHECK(c.view(2, j) == 0.0f);
    }
    CHECK(c.view(0, 2) == with_outlier(2.0f, -1));
    CHECK(c.view(2, 2) == 2.0f * 127.0f * static_cast<float>(k));  // the sum of the column is exact
  }
  const Tensor<2> long_a({3, k + 1}), long_b({k + 1, 3});
  for_each(long_b.view, [](float& x) { x = 0.0f; });
  CHECK_THROWS_WITH_AS(gemm(long_a.view, PackedMatrix(long_b.view, {.type = int8}), c.view, {.activations = int8}),
                       "gemm: b has 132001 rows, with activations int8 at most 132000", std::invalid_argument);
}

/// The bound of gemm.hpp against exact products of the unpacked matrix.
TEST_CASE("gemm, int8: the error bound") {
  for (const Index k : {1, 5, 64, 512, 1500}) {
    const GemmInputs in(7, 33, k);
    for (Index p = 0; p < k; ++p) in.a.view(2, p) = p == 0 ? 1000.0f : 1.0f / static_cast<float>(p);  // an outlier
    for (Index p = 0; p < k; ++p) in.a.view(3, p) += 100.0f;                                          // far from 0
    const PackedMatrix packed(in.b.view, {.type = int8});
    const Tensor<2> b({k, 33});
    packed.unpack(b.view);
    gemm(in.a.view, packed, in.c.view, {.activations = int8});
    // Quantising leaves 7 bits, so that the bound may exceed what the outlier leaves of the others.
    Comparison comparison("gemm, int8", "k " + std::to_string(k), 0, Comparison::Kind::special);
    for_each_position(in.c.view.shape, [&](const auto& at) {
      double exact = 0, magnitudes = 0, sum = 0;
      for (Index p = 0; p < k; ++p) {
        exact += double{in.a.view(at[0], p)} * double{b.view(p, at[1])};
        magnitudes += std::abs(double{b.view(p, at[1])});
        sum += double{b.view(p, at[1])};
      }
      const QuantisedRow row(View<const float, 2>(in.a.view).select(0, at[0]));
      const double c = in.c.view(at[0], at[1]), distance = row.distance;
      const double outlier = std::abs(double{row.outlier} * double{b.view(row.outlier_column, at[1])});
      const double floats = std::abs(double{row.centre} * sum) + outlier;
      const double bound = distance / 254 * 1.0001 * magnitudes + gamma(5) * (std::abs(c) + 2 * floats);
      comparison.add({at[0], at[1]}, in.c.view(at[0], at[1]), exact, bound);
    });
    comparison.finish();
  }
}

TEST_CASE("activations: what is refused") {
  const GemmInputs in(3, 40, 7);
  const PackedMatrix packed(in.b.view, {.type = DType::bfloat16}), right(in.b.view, {.type = int8});
  const auto refused = [&](const auto& call, const char* message) {
    for_each(in.c.view, [](float& x) { x = std::bit_cast<float>(sentinel_bits); });
    CHECK_THROWS_WITH_AS(call(), message, std::invalid_argument);
    CHECK(all_sentinels(in.c.view));
  };
  const View<const float, 2> a = in.a.view, b = in.b.view;
  refused([&] { gemm(a, packed, in.c.view, {.activations = int8}); },
          "gemm: b is a PackedMatrix of bfloat16; with activations int8 it must be a PackedMatrix of int8, "
          "int8_group32 or int4_group32");
  refused([&] { gemm(a, b, in.c.view, {.activations = int8}); },
          "gemm: b is not packed; with activations int8 it must be a PackedMatrix of int8, "
          "int8_group32 or int4_group32");
  refused([&] { gemm(a, right, in.c.view, {.activations = DType::bfloat16}); },
          "gemm: b is a PackedMatrix of int8; with activations bfloat16 it must be a PackedMatrix of bfloat16");
  refused([&] { gemm(a, right, in.c.view, {.activations = DType::float16}); },
          "gemm: activations is 2, it may be float32, bfloat16 or int8");
  refused([&] { gemm(a, right, in.c.view, {.activations = static_cast<DType>(9)}); },
          "gemm: activations is 9, it may be float32, bfloat16 or int8");
  refused([&] { gemm_batch(a.broadcast(0, 1), packed, in.c.view.broadcast(0, 1), {.activations = int8}); },
          "gemm_batch: b is a PackedMatrix of bfloat16; with activations int8 it must be a PackedMatrix of int8, "
          "int8_group32 or int4_group32");
}

}  // namespace
}  // namespace headlane::test
