// Products with activations = int8: rows are quantised, and multiplied by a PackedMatrix of int8.
#include "support/gemm_case.hpp"
#include "support/guard.hpp"
#include "support/illegal.hpp"
#include "support/scope.hpp"
#include "support/tolerance.hpp"

#include <headlane/activation.hpp>
#include <headlane/gemm.hpp>
#include <headlane/gemm_batch.hpp>
#include <headlane/gemm_gated.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
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

/// The contract of gemm.hpp, step by step: alpha · a · b + beta · c + bias.
void by_contract(const GemmInputs& in, const Columns& b, const GemmOptions& options, const View<float, 2>& c) {
  const Index m = c.shape[0], n = c.shape[1], k = in.a.view.shape[1];
  for (Index i = 0; i < m; ++i) {
    float largest = 0;
    bool finite = true;
    for (Index p = 0; p < k; ++p) {
      largest = std::max(largest, std::abs(in.a.view(i, p)));
      finite = finite && std::isfinite(in.a.view(i, p));
    }
    const bool zeros = largest < 0x1p-100f || !finite;
    const float inverse = zeros ? 0.0f : 127.0f / largest, scale = !finite ? nan : zeros ? 0.0f : largest / 127.0f;
    for (Index j = 0; j < n; ++j) {
      std::int64_t sum = 0;
      for (Index p = 0; p < k && !zeros; ++p)
        sum += std::lrint(in.a.view(i, p) * inverse) * b.q[static_cast<std::size_t>(p * n + j)];
      const float product = static_cast<float>(sum) * scale * b.scale[static_cast<std::size_t>(j)];
      c(i, j) = std::fma(options.alpha, product, options.beta == 0.0f ? 0.0f : options.beta * c(i, j));
      if (options.bias) c(i, j) += options.bias(j);
    }
  }
}

/// Compares a call with the contract, bit by bit.
void check(const GemmInputs& in, const GemmInputs& copy, GemmOptions options, const std::string& where) {
  const PackedMatrix b(in.b.view, {.type = int8});
  GemmOptions plain = options;
  plain.residual = {};
  plain.activation = Activation::none;
  by_contract(copy, columns_of(b), plain, copy.c.view);
  if (options.activation != Activation::none) activate(copy.c.view, copy.c.view, options.activation);
  if (options.residual)
    for_each_position(copy.c.view.shape,
                      [&](const auto& p) { copy.c.view(p[0], p[1]) += options.residual(p[0], p[1]); });
  options.activations = int8;
  gemm(in.a.view, b, in.c.view, options);
  CHECK_MESSAGE(different_bits(in.c.view, copy.c.view) == 0, where, ", isa ", isa(), " ", isa_extension());
  CHECK(in.c.surroundings_untouched());
}

TEST_CASE("gemm, int8: the bits that the contract describes") {
  Random random(1);
  for (const bool extended : {true, false}) {
    const ExtensionScope extension(extended);
    for (std::uint64_t i = 0; i < (slow_isa() ? 60u : 400u); ++i) {
      const Index m = random.integer(0, i % 4 == 0 ? 70 : 30), n = random.integer(0, 150);
      const Index k = i % 10 == 0 ? random.integer(500, 1100) : random.integer(1, 140);
      const Layout& layout = random.pick(layouts());
      const GemmInputs in(m, n, k, layout, i), copy(m, n, k, layout, i);
      GemmOptions options{.alpha = random.pick(std::vector<float>{1, 1, -0.7f}),
                          .beta = random.pick(std::vector<float>{0, 0, 1, 1.3f}),
                          .activation = random.pick(std::vector{Activation::none, Activation::gelu}),
                          .num_threads = static_cast<int>(random.integer(0, 3))};
      if (i % 2 == 0) options.bias = in.bias.view;
      if (i % 3 == 0) options.residual = in.residual.view;
      check(in, copy, options, text_of(std::array<Index, 3>{m, n, k}) + ", seed " + std::to_string(i));
    }
  }
}

TEST_CASE("gemm, int8: every height and width around a tile, and every k around a quad") {
  for (const bool extended : {true, false}) {
    const ExtensionScope extension(extended);
    for (Index m = 1; m <= 26; ++m)
      for (const Index n : {1, 15, 16, 17, 32, 33, 48, 63, 65, 129, 257})
        if (!slow_isa() || m % 5 == 1) check({m, n, 9}, {m, n, 9}, {}, text_of(std::array<Index, 2>{m, n}));
    for (Index k = 1; k <= 140; ++k) check({13, 35, k}, {13, 35, k}, {}, "k = " + std::to_string(k));
  }
}

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
      check(in, copy, {}, "not finite");
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
    check(in, copy, {}, "magnitude " + std::to_string(magnitude));
  }
  const GemmInputs in(1, 20, 30), copy(1, 20, 30);
  for (const GemmInputs* each : {&in, &copy}) {
    each->a.view(0, 0) = std::numeric_limits<float>::max();
    each->a.view(0, 1) = -std::numeric_limits<float>::max();
  }
  check(in, copy, {}, "the largest float");
}

TEST_CASE("gemm, int8: a row depends on nothing but itself") {
  const Index m = 37, n = 70, k = 130;
  const GemmInputs all(m, n, k), padded(m, n, k);
  const PackedMatrix b(all.b.view, {.type = int8});
  gemm(all.a.view, b, all.c.view, {.activations = int8});
  const Tensor<2> alone({1, n});
  for (Index i = 0; i < m; ++i) {
    gemm(all.a.view.slice(0, i, i + 1), b, alone.view, {.activations = int8});
    CHECK(different_bits(alone.view, all.c.view.slice(0, i, i + 1)) == 0);
  }
  for (Index i = 0; i < m; ++i)
    if (i != 20)
      for (Index p = 0; p < k; ++p) padded.a.view(i, p) = 1e30f;
  gemm(padded.a.view, b, padded.c.view, {.activations = int8, .num_threads = 2});
  CHECK(different_bits(padded.c.view.slice(0, 20, 21), all.c.view.slice(0, 20, 21)) == 0);
}

TEST_CASE("gemm, int8: the largest sum, and one row more") {
  const Index k = 132000;
  const Tensor<2> a({2, k}), b({k, 3}), c({2, 3});
  for_each(a.view, [](float& x) { x = 2.0f; });
  for_each(b.view, [](float& x) { x = 127.0f; });
  for (Index p = 0; p < k; ++p) {
    a.view(1, p) = -2.0f;
    b.view(p, 2) = p % 2 == 0 ? 127.0f : -127.0f;
  }
  for (const bool extended : {true, false}) {
    const ExtensionScope extension(extended);
    gemm(a.view, PackedMatrix(b.view, {.type = int8}), c.view, {.activations = int8});
    const float sum = static_cast<float>(127 * 127 * k) * (2.0f / 127.0f);
    for (Index j = 0; j < 2; ++j) {
      CHECK(c.view(0, j) == sum);
      CHECK(c.view(1, j) == -sum);
    }
    CHECK(c.view(0, 2) == 0.0f);
  }
  const Tensor<2> long_a({2, k + 1}), long_b({k + 1, 3});
  for_each(long_b.view, [](float& x) { x = 0.0f; });
  CHECK_THROWS_WITH_AS(gemm(long_a.view, PackedMatrix(long_b.view, {.type = int8}), c.view, {.activations = int8}),
                       "gemm: b has 132001 rows, with activations int8 at most 132000", std::invalid_argument);
}

/// The bound of gemm.hpp against exact products of the unpacked matrix.
TEST_CASE("gemm, int8: the error bound") {
  for (const Index k : {1, 5, 64, 512, 1500}) {
    const GemmInputs in(7, 33, k);
    for (Index p = 0; p < k; ++p) in.a.view(2, p) = p == 0 ? 1000.0f : 1.0f / static_cast<float>(p);  // an outlier
    const PackedMatrix packed(in.b.view, {.type = int8});
    const Tensor<2> b({k, 33});
    packed.unpack(b.view);
    gemm(in.a.view, packed, in.c.view, {.activations = int8});
    // Quantising leaves 7 bits, so that the bound may exceed what the outlier leaves of the others.
    Comparison comparison("gemm, int8", "k " + std::to_string(k), 0, Comparison::Kind::special);
    for_each_position(in.c.view.shape, [&](const auto& at) {
      double exact = 0, magnitudes = 0, largest = 0;
      for (Index p = 0; p < k; ++p) {
        exact += double{in.a.view(at[0], p)} * double{b.view(p, at[1])};
        magnitudes += std::abs(double{b.view(p, at[1])});
        largest = std::max(largest, std::abs(double{in.a.view(at[0], p)}));
      }
      const double c = in.c.view(at[0], at[1]);
      const double bound = largest / 254 * 1.0001 * magnitudes + (gamma(4) + 0x1p-24) * std::abs(c) * 1.001;
      comparison.add({at[0], at[1]}, in.c.view(at[0], at[1]), exact, bound);
    });
    comparison.finish();
  }
}

TEST_CASE("gemm_gated, gemm_batch, a list: the bits of gemm") {
  const Index m = 19, n = 70, k = 90;
  const GemmInputs one(m, n, k, {}, 1), two(m, n, k, {}, 2);
  const PackedMatrix gate(one.b.view, {.type = int8}), up(two.b.view, {.type = int8});
  gemm(one.a.view, gate, one.c.view, {.bias = one.bias.view, .activation = Activation::silu, .activations = int8});
  gemm(one.a.view, up, two.c.view, {.activations = int8});
  for_each_position(one.c.view.shape, [&](const auto& p) { one.c.view(p[0], p[1]) *= two.c.view(p[0], p[1]); });
  gemm_gated(one.a.view, gate, up, two.c.view, {.gate_bias = one.bias.view, .activations = int8});
  CHECK(different_bits(one.c.view, two.c.view) == 0);

  Random random(4);
  const Tensor<3> a = random_tensor<3>({3, m, k}, random), c({3, m, n});
  gemm_batch(a.view, gate, c.view, {.activations = int8});
  for (Index i = 0; i < 3; ++i) {
    gemm(a.view.select(0, i), gate, one.c.view, {.activations = int8});
    CHECK(different_bits(c.view.select(0, i), one.c.view) == 0);
    gemm_batch(std::vector<GemmProblem>{{a.view.select(0, i), {}, &gate, two.c.view, {.activations = int8}}});
    CHECK(different_bits(two.c.view, one.c.view) == 0);
  }
}

TEST_CASE("gemm, int8: operands between guard pages") {
  for (const bool extended : {true, false}) {
    const ExtensionScope extension(extended);
    Counts counts;
    Guarded<2> guarded_a, guarded_c;
    everywhere([&](Index length, Index gap, Place where) {
      const Index m = length % 15, n = length, k = 1 + length;
      Random random(static_cast<std::uint64_t>(length));
      const Tensor<2> a = random_tensor<2>({m, k}, random), b = random_tensor<2>({k, n}, random), c({m, n});
      const PackedMatrix packed(b.view, {.type = int8});
      guarded_a.place(a.view, layout_of(length, gap, 1), gap, where);
      guarded_c.place(c.view, layout_of(length, gap, 3), gap, where);
      gemm(a.view, packed, c.view, {.activations = int8});
      gemm(guarded_a.view, packed, guarded_c.view, {.activations = int8});
      counts.add(different_bits(guarded_c.view, c.view) == 0, guarded_c.buffer.surroundings_untouched(),
                 text_of_case("m, n, k", length, gap, where));
    });
    counts.finish("gemm, int8");
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
