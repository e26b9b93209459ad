// Few rows by integers in groups of 32 that have every value and scales of both signs: the bits of
// products with the float32 matrix that they unpack to.
#include "support/gemm_case.hpp"
#include "support/scope.hpp"
#include "support/tolerance.hpp"

#include <headlane/gemm.hpp>

#include <cmath>
#include <cstdint>
#include <vector>

namespace headlane::test {
namespace {

constexpr DType group_types[] = {DType::int8_group32, DType::int4_group32};

/// Integers of k rows and n columns in groups, from functions of the row and column, and of the
/// group and column.
template <class Number, class Scale>
PackedMatrix grouped(Index k, Index n, DType type, const Number& number, const Scale& scale) {
  const Index groups = (k + 31) / 32;
  std::vector<std::int8_t> numbers;
  std::vector<float16> scales;
  for (Index i = 0; i < k; ++i)
    for (Index j = 0; j < n; ++j) numbers.push_back(static_cast<std::int8_t>(number(i, j)));
  for (Index g = 0; g < groups; ++g)
    for (Index j = 0; j < n; ++j) scales.push_back(float16(scale(g, j)));
  return PackedMatrix::from_numbers(View<const std::int8_t, 2>(numbers.data(), {k, n}),
                                    View<const float16, 2>(scales.data(), {groups, n}), type);
}

TEST_CASE("gemm: few rows by groups, with and without tiny elements") {
  const std::vector<float> sizes{0.0f, 0x1p-24f, 0x1.8p-20f, 0x1.ffcp-5f, 0x1.554p-2f, 65504.0f};
  const std::vector<float> special{0.0f, -0.0f, 0x1p-149f, -0x1p-130f, 0x1.fffffep-103f, -0x1p-102f, 0x1p100f};
  Random random(1);
  for (const DType type : group_types)
    for (Index i = 0; i < (slow_isa() ? 30 : 300); ++i) {
      const Index m = random.integer(1, 5), n = random.integer(1, 150), k = random.integer(1, 300);
      const Index least = type == DType::int4_group32 ? -8 : -127, most = type == DType::int4_group32 ? 7 : 127;
      const PackedMatrix b = grouped(
          k, n, type, [&](Index, Index) { return random.integer(least, most); },
          [&](Index, Index) { return random.pick(sizes) * (random.integer(0, 1) == 0 ? 1.0f : -1.0f); });
      const Tensor<2> unpacked({k, n}), c({m, n}), expected({m, n}), a = random_tensor<2>({m, k}, random);
      if (i % 2 == 0)
        for (Index j = 0; j < 10; ++j)
          a.view(random.integer(0, m - 1), random.integer(0, k - 1)) = random.pick(special);
      b.unpack(unpacked.view);
      gemm(a.view, PackedMatrix(unpacked.view), expected.view);
      for (const bool extended : {false, true}) {  // which decides how few rows take their numbers
        const ExtensionScope extension(extended);
        gemm(a.view, b, c.view);
        CHECK_MESSAGE(different_bits(c.view, expected.view) == 0, "type ", static_cast<int>(type), ", ",
                      text_of(std::array<Index, 3>{m, n, k}), ", case ", i, ", isa ", isa(), ", extended ", extended);
      }
    }
}

/// The product of the first row is rounded to -0; those of the others are -0, if zeros have the
/// signs of their scales; c, to which the sum is added, is -0.
TEST_CASE("gemm: a sum of groups that is -0 stays -0") {
  for (const DType type : group_types)
    for (const float tiny : {-0x1p-149f, -0x1p-127f})
      for (Index m = 1; m <= 5; ++m) {
        const Index n = 33, k = 40;
        const Tensor<2> a({m, k}), c({m, n});
        for_each_position(a.view.shape, [&](const auto& p) {
          a.view(p[0], p[1]) = p[1] == 0 ? tiny : p[1] < 32 ? -1.0f : 1.0f;
        });
        const PackedMatrix b = grouped(
            k, n, type, [](Index i, Index) { return i == 0 ? 1 : 0; },
            [](Index g, Index) { return g == 0 ? 0x1p-24f : -0x1p-24f; });
        for (const bool extended : {false, true}) {
          const ExtensionScope extension(extended);
          for_each_position(c.view.shape, [&](const auto& p) { c.view(p[0], p[1]) = -0.0f; });
          gemm(a.view, b, c.view, {.beta = 1});
          for_each_position(c.view.shape, [&](const auto& p) {
            const float x = c.view(p[0], p[1]);
            CHECK(x == 0.0f);
            CHECK(std::signbit(x));
          });
        }
      }
}

}  // namespace
}  // namespace headlane::test
