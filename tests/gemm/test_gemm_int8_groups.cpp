// Products with activations = int8 by a PackedMatrix of integers in groups of 32.
#include "support/gemm_case.hpp"
#include "support/guard.hpp"
#include "support/scope.hpp"
#include "support/tolerance.hpp"

#include <headlane/gemm.hpp>
#include <headlane/gemm_gated.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace headlane::test {
namespace {

constexpr std::array<DType, 2> types{DType::int8_group32, DType::int4_group32};
constexpr DType int8 = DType::int8;

/// The contract of gemm.hpp, step by step: alpha · a · b + beta · c + bias + residual.
void by_contract(const GemmInputs& in, const PackedMatrix& packed, const GemmOptions& options,
                 const View<float, 2>& c) {
  const Index k = in.a.view.shape[1], n = c.shape[1], groups = (k + 31) / 32;
  std::vector<std::int8_t> numbers(static_cast<std::size_t>(k * n));
  const View<std::int8_t, 2> q(numbers.data(), {k, n});
  const Tensor<2> scales({groups, n});
  packed.unpack(q, scales.view);
  for (Index i = 0; i < c.shape[0]; ++i) {
    float largest = 0;
    bool finite = true;
    for (Index p = 0; p < k; ++p) {
      largest = std::max(largest, std::abs(in.a.view(i, p)));
      finite = finite && std::isfinite(in.a.view(i, p));
    }
    const bool zeros = largest < 0x1p-100f || !finite;
    const float inverse = zeros ? 0.0f : 127.0f / largest, scale = !finite ? nan : zeros ? 0.0f : largest / 127.0f;
    const auto number = [&](Index p) { return zeros ? 0 : std::lrint(in.a.view(i, p) * inverse); };
    for (Index j = 0; j < n; ++j) {
      float& out = c(i, j);
      out = options.beta == 0.0f ? 0.0f : options.beta * out;
      for (Index block = 0; block < k; block += 512) {
        float sum = 0;
        for (Index group = block; group < std::min(k, block + 512); group += 32) {
          std::int64_t exact = 0;
          for (Index p = group; p < std::min(k, group + 32); ++p) exact += number(p) * q(p, j);
          sum = std::fma(static_cast<float>(exact), scales.view(group / 32, j), sum);
        }
        out = std::fma(options.alpha, sum * scale, out);
      }
      if (options.bias) out += options.bias(j);
      if (options.residual) out += options.residual(i, j);
    }
  }
}

/// Compares a call with the contract, bit by bit.
void check(const GemmInputs& in, const GemmInputs& copy, GemmOptions options, const std::string& where) {
  for (const DType type : types) {
    const PackedMatrix b(in.b.view, {.type = type});
    for_each_position(in.c.view.shape, [&](const auto& p) { copy.c.view(p[0], p[1]) = in.c.view(p[0], p[1]); });
    by_contract(copy, b, options, copy.c.view);
    options.activations = int8;
    gemm(in.a.view, b, in.c.view, options);
    CHECK_MESSAGE(different_bits(in.c.view, copy.c.view) == 0, name_of(type), ", ", where, ", isa ", isa(), " ",
                  isa_extension());
    CHECK(in.c.surroundings_untouched());
  }
}

TEST_CASE("gemm, groups with int8: the bits that the contract describes") {
  Random random(1);
  for (const bool extended : {true, false}) {
    const ExtensionScope extension(extended);
    for (std::uint64_t i = 0; i < (slow_isa() ? 40u : 200u); ++i) {
      const Index m = random.integer(0, i % 4 == 0 ? 70 : 30), n = random.integer(0, 150);
      const Index k = i % 10 == 0 ? random.integer(500, 1100) : random.integer(1, 140);
      const Layout& layout = random.pick(layouts());
      const GemmInputs in(m, n, k, layout, i), copy(m, n, k, layout, i);
      GemmOptions options{.alpha = random.pick(std::vector<float>{1, 1, -0.7f}),
                          .beta = random.pick(std::vector<float>{0, 0, 1, 1.3f}),
                          .num_threads = static_cast<int>(random.integer(0, 3))};
      if (i % 2 == 0) options.bias = in.bias.view;
      if (i % 3 == 0) options.residual = in.residual.view;
      check(in, copy, options, text_of(std::array<Index, 3>{m, n, k}) + ", seed " + std::to_string(i));
    }
  }
}

TEST_CASE("gemm, groups with int8: every height and width around a tile, and every k around a group") {
  for (const bool extended : {true, false}) {
    const ExtensionScope extension(extended);
    for (Index m = 1; m <= 26; ++m)
      for (const Index n : {1, 15, 16, 17, 32, 33, 48, 63, 65})
        if (!slow_isa() || m % 5 == 1) check({m, n, 9}, {m, n, 9}, {}, text_of(std::array<Index, 2>{m, n}));
    for (Index k = 1; k <= 140; ++k) check({7, 35, k}, {7, 35, k}, {}, "k = " + std::to_string(k));
    for (const Index k : {511, 512, 513, 544, 1025}) check({2, 35, k}, {2, 35, k}, {}, "k = " + std::to_string(k));
  }
}

TEST_CASE("gemm, groups with int8: the largest integers, and rows that are not finite") {
  const Index m = 14, n = 40, k = 70;
  const GemmInputs in(m, n, k), copy(m, n, k);
  for (const GemmInputs* each : {&in, &copy}) {
    for_each(each->a.view, [](float& x) { x = x < 0 ? -3.0f : 3.0f; });
    for_each(each->b.view, [](float& x) { x = x < 0 ? -2.0f : 2.0f; });
    each->a.view(3, 69) = nan;
    each->a.view(12, 0) = infinity;
  }
  for (const bool extended : {true, false}) {
    const ExtensionScope extension(extended);
    check(in, copy, {}, "largest");
    CHECK(std::isnan(in.c.view(3, 39)));
    CHECK(std::isnan(in.c.view(12, 0)));
    CHECK(std::isfinite(in.c.view(4, 39)));
  }
}

/// The bound of gemm.hpp against exact products of the unpacked matrix.
TEST_CASE("gemm, groups with int8: the error bound") {
  for (const DType type : types)
    for (const Index k : {1, 5, 64, 512, 1500}) {
      const GemmInputs in(7, 33, k);
      const PackedMatrix packed(in.b.view, {.type = type});
      const Tensor<2> b({k, 33});
      packed.unpack(b.view);
      gemm(in.a.view, packed, in.c.view, {.activations = int8});
      Comparison comparison("gemm, groups with int8", "k " + std::to_string(k), 0, Comparison::Kind::special);
      for_each_position(in.c.view.shape, [&](const auto& at) {
        double exact = 0, magnitudes = 0, products = 0, largest = 0;
        for (Index p = 0; p < k; ++p) {
          const double x = in.a.view(at[0], p), y = b.view(p, at[1]);
          exact += x * y;
          products += std::abs(x * y);
          magnitudes += std::abs(y);
          largest = std::max(largest, std::abs(x));
        }
        const Index roundings = std::min<Index>((k + 31) / 32, 16) + (k + 511) / 512 + 3;
        const double quantised = largest / 254 * 1.0001 * magnitudes;
        const double bound = quantised + gamma(static_cast<double>(roundings)) * (products + quantised);
        comparison.add({at[0], at[1]}, in.c.view(at[0], at[1]), exact, bound);
      });
      comparison.finish();
    }
}

TEST_CASE("gemm, groups with int8: a row depends on nothing but itself; gemm_gated") {
  const Index m = 37, n = 70, k = 130;
  const GemmInputs all(m, n, k), other(m, n, k, {}, 1);
  for (const DType type : types) {
    const PackedMatrix b(all.b.view, {.type = type}), up(other.b.view, {.type = type});
    gemm(all.a.view, b, all.c.view, {.activations = int8, .num_threads = 2});
    const Tensor<2> alone({1, n});
    for (Index i = 0; i < m; ++i) {
      gemm(all.a.view.slice(0, i, i + 1), b, alone.view, {.activations = int8});
      CHECK(different_bits(alone.view, all.c.view.slice(0, i, i + 1)) == 0);
    }
    gemm(all.a.view, b, all.c.view, {.activation = Activation::silu, .activations = int8});
    gemm(all.a.view, up, other.c.view, {.activations = int8});
    for_each_position(all.c.view.shape, [&](const auto& p) { all.c.view(p[0], p[1]) *= other.c.view(p[0], p[1]); });
    gemm_gated(all.a.view, b, up, other.c.view, {.activations = int8});
    CHECK(different_bits(all.c.view, other.c.view) == 0);
  }
}

TEST_CASE("gemm, groups with int8: operands between guard pages") {
  for (const bool extended : {true, false}) {
    const ExtensionScope extension(extended);
    Counts counts;
    Guarded<2> guarded_a, guarded_c;
    everywhere([&](Index length, Index gap, Place where) {
      const Index m = length % 15, n = length, k = 1 + length;
      Random random(static_cast<std::uint64_t>(length));
      const Tensor<2> a = random_tensor<2>({m, k}, random), b = random_tensor<2>({k, n}, random), c({m, n});
      const PackedMatrix packed(b.view, {.type = types[static_cast<std::size_t>(length % 2)]});
      guarded_a.place(a.view, layout_of(length, gap, 1), gap, where);
      guarded_c.place(c.view, layout_of(length, gap, 3), gap, where);
      gemm(a.view, packed, c.view, {.activations = int8});
      gemm(guarded_a.view, packed, guarded_c.view, {.activations = int8});
      counts.add(different_bits(guarded_c.view, c.view) == 0, guarded_c.buffer.surroundings_untouched(),
                 text_of_case("m, n, k", length, gap, where));
    });
    counts.finish("gemm, groups with int8");
  }
}

}  // namespace
}  // namespace headlane::test
