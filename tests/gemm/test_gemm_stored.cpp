// PackedMatrix of other types than float32: products have the bits of those by the float32 matrix
// that it unpacks to.
#include "support/gemm_case.hpp"
#include "support/scope.hpp"
#include "support/tolerance.hpp"

#include <headlane/gemm.hpp>
#include <headlane/gemm_batch.hpp>
#include <headlane/gemm_gated.hpp>

#include <algorithm>
#include <bit>
#include <cmath>

namespace headlane::test {
namespace {

constexpr DType stored_types[] = {DType::bfloat16, DType::float16, DType::int8, DType::int8_group32,
                                  DType::int4_group32};

bool is_grouped(DType type) { return type == DType::int8_group32 || type == DType::int4_group32; }

/// The memory of a matrix of k rows and n columns.
Index bytes_of(Index k, Index n, DType type) {
  const Index columns = (n + 31) / 32 * 32;
  const auto whole = [&](Index rows) { return (k + rows - 1) / rows * rows; };
  switch (type) {
    case DType::float32:
      return columns * 4 * k;
    case DType::bfloat16:
      return columns * 2 * whole(2);
    case DType::float16:
      return columns * 2 * k;
    case DType::int8:
      return k == 0 ? 0 : columns * (whole(4) + 4);
    case DType::int8_group32:
      return columns * whole(32) / 32 * 34;
    case DType::int4_group32:
      return columns * whole(32) / 32 * 18;
  }
  return -1;
}

/// The matrix that a packed one unpacks to, packed as float32.
PackedMatrix decoded(const PackedMatrix& packed) {
  const Tensor<2> copy({packed.rows(), packed.columns()});
  packed.unpack(copy.view);
  return PackedMatrix(copy.view);
}

struct Sizes {
  Index m, n, k;
};

/// Elements that differ; two NaN are the same.
Index different(const View<float, 2>& x, const View<float, 2>& y) {
  Index count = 0;
  for_each_position(x.shape, [&](const auto& p) {
    const float a = x(p[0], p[1]), b = y(p[0], p[1]);
    count += std::bit_cast<std::uint32_t>(a) != std::bit_cast<std::uint32_t>(b) && !(std::isnan(a) && std::isnan(b));
  });
  return count;
}

/// Multiplies by b stored as `type` and by what it unpacks to.
void check_product(const Sizes& s, std::uint64_t seed, DType type, const GemmOptions& options, const Layout& layout) {
  const GemmInputs stored(s.m, s.n, s.k, layout, seed), plain(s.m, s.n, s.k, layout, seed);
  const PackedMatrix b(stored.b.view, {.type = type, .num_threads = options.num_threads});
  CHECK(b.type() == type);
  CHECK(b.bytes() == static_cast<std::size_t>(bytes_of(s.k, s.n, type)));
  GemmOptions o = options;
  if (seed % 2 == 0) o.bias = stored.bias.view;
  if (seed % 3 == 0) o.residual = stored.residual.view;
  gemm(stored.a.view, b, stored.c.view, o);
  gemm(plain.a.view, decoded(b), plain.c.view, o);
  CHECK_MESSAGE(different(stored.c.view, plain.c.view) == 0, "type ", static_cast<int>(type), ", ",
                text_of(std::array<Index, 3>{s.m, s.n, s.k}), ", seed ", seed, ", layout ", layout.name, ", ",
                o.num_threads, " threads, isa ", isa());
  CHECK(stored.c.surroundings_untouched());
}

TEST_CASE("gemm: stored types give the bits of the matrix that they unpack to") {
  Random random(1);
  for (std::uint64_t i = 0; i < (slow_isa() ? 100u : 800u); ++i) {
    const Sizes s{.m = random.integer(0, i % 4 == 0 ? 100 : 30),
                  .n = random.integer(0, 150),
                  .k = i % 10 == 0 ? random.integer(500, 1100) : random.integer(0, 70)};
    const GemmOptions options{.alpha = random.pick(std::vector<float>{1, 1, 0, -0.7f}),
                              .beta = random.pick(std::vector<float>{0, 0, 1, 1.3f}),
                              .activation = random.pick(std::vector{Activation::none, Activation::gelu}),
                              .num_threads = static_cast<int>(random.integer(0, 3))};
    check_product(s, i, stored_types[i / 2 % std::size(stored_types)], options, random.pick(layouts()));
  }
}

TEST_CASE("gemm: stored types, larger products") {
  for (const DType type : stored_types)
    for (const Sizes& s : {Sizes{1, 1100, 1100}, {12, 1100, 600}, {13, 300, 600}, {97, 1100, 130}, {500, 300, 600}})
      for (const int threads : {1, 3})
        if (!slow_isa() || s.m < 100) check_product(s, 3, type, {.num_threads = threads}, layouts()[0]);
}

TEST_CASE("gemm: stored types at every height and width around a tile") {
  for (const DType type : stored_types)
    for (Index m = 1; m <= 26; ++m)
      for (const Index n : {1, 15, 16, 17, 32, 33, 48, 63, 65, 129, 257})
        if (!slow_isa() || m % 5 == 1) check_product({m, n, 9}, 1, type, {}, layouts()[0]);
}

TEST_CASE("gemm: stored types, special values") {
  const std::vector<float> values{0.0f,     -0.0f, infinity,  -infinity, nan,   0x1p-24f, 0x1.8p-20f,
                                  65504.0f, 1e5f,  0x1p-140f, 0x1p-126f, 3e38f, 1.0f,     -2.5f};
  Random random(5);
  for (const DType type : stored_types)
    for (const Index m : {1, 5, 30}) {
      const Sizes s{.m = m, .n = 70, .k = 40};
      const GemmInputs stored(s.m, s.n, s.k), plain(s.m, s.n, s.k);
      for (Index j = 0; j < s.n; ++j) {
        const float x = random.pick(values);
        const bool stores = is_grouped(type) ? std::abs(x) < 1e5f : type != DType::int8 || std::isfinite(x);
        stored.b.view(random.integer(0, s.k - 1), j) = stores ? x : 0.0f;
      }
      const PackedMatrix b(stored.b.view, {.type = type});
      gemm(stored.a.view, b, stored.c.view);
      gemm(plain.a.view, decoded(b), plain.c.view);
      CHECK_MESSAGE(different(stored.c.view, plain.c.view) == 0, static_cast<int>(type), ", ", m, " rows");
    }
}

TEST_CASE("gemm_gated, gemm_batch: stored types") {
  for (const DType type : stored_types)
    for (const Index m : {1, 9, 40}) {
      const Sizes s{.m = m, .n = 70, .k = 90};
      const GemmInputs one(m, s.n, s.k, {}, 1), two(m, s.n, s.k, {}, 2), both(m, s.n, s.k, {}, 3);
      const PackedMatrix gate(one.b.view, {.type = type}), up(two.b.view, {.type = type});
      gemm_gated(one.a.view, gate, up, one.c.view, {.activation = Activation::silu});
      gemm_gated(one.a.view, decoded(gate), decoded(up), two.c.view, {.activation = Activation::silu});
      CHECK(different(one.c.view, two.c.view) == 0);
      gemm_gated(one.a.view, gate, decoded(up), both.c.view, {.activation = Activation::silu});  // mixed
      CHECK(different(both.c.view, two.c.view) == 0);

      const Tensor<3> a({3, m, s.k}), c({3, m, s.n}), expected({3, m, s.n});
      Random random(4);
      fill_normal(a.view, random);
      gemm_batch(a.view, gate, c.view);
      gemm_batch(a.view, decoded(gate), expected.view);
      CHECK(different_bits(c.view, expected.view) == 0);
    }
}

TEST_CASE("PackedMatrix: what is unpacked is each element rounded once") {
  Random random(6);
  const Tensor<2> b = random_tensor<2>({600, 70}, random), back({600, 70}, layouts()[1]);
  for (const int threads : {1, 3})
    for (const DType type : {DType::bfloat16, DType::float16}) {
      PackedMatrix(b.view.transposed(), {.type = type, .num_threads = threads}).unpack(back.view.transposed());
      Index wrong = 0;
      for_each_position(b.view.shape, [&](const auto& p) {
        const float x = b.view(p[0], p[1]);
        wrong += back.view(p[0], p[1]) !=
                 (type == DType::bfloat16 ? static_cast<float>(bfloat16(x)) : static_cast<float>(float16(x)));
      });
      CHECK(wrong == 0);
    }
}

/// The largest magnitude of column j.
float largest(const View<float, 2>& b, Index j) {
  float most = 0;
  for (Index i = 0; i < b.shape[0]; ++i) most = std::max(most, std::abs(b(i, j)));
  return most;
}

/// A 127th, rounded to 16 bits.
float scale_of(float most) {
  const double exact = double{most / 127.0f};
  int exponent = 0;
  if (exact >= 0x1p-126) std::frexp(exact, &exponent);
  return exact < 0x1p-126
             ? static_cast<float>(exact)
             : static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(exact, 16 - exponent)), exponent - 16));
}

TEST_CASE("PackedMatrix: int8 is the nearest multiple of the column's scale") {
  Random random(7);
  const Tensor<2> b = random_tensor<2>({600, 300}, random), back({600, 300});
  for (Index i = 0; i < 600; ++i) {
    b.view(i, 3) = 0.0f;
    b.view(i, 4) *= 0x1p-140f;  // a denormal scale, of a few bits
    b.view(i, 5) = i == 7 ? 0x1p-149f : 0.0f;
    b.view(i, 6) *= 0x1p125f;
  }
  for (const int threads : {1, 3}) {
    PackedMatrix(b.view, {.type = DType::int8, .num_threads = threads}).unpack(back.view);
    Index wrong = 0;
    for (Index j = 0; j < 300; ++j) {
      const float scale = scale_of(largest(b.view, j));
      for (Index i = 0; i < 600; ++i) {
        const float q = scale == 0.0f ? 0.0f : std::nearbyint(b.view(i, j) / scale);
        wrong += back.view(i, j) != std::min(std::max(q, -127.0f), 127.0f) * scale;
      }
    }
    CHECK(wrong == 0);
  }
  const Tensor<2> again({600, 300});
  PackedMatrix(back.view, {.type = DType::int8}).unpack(again.view);
  Index moved = 0;
  for_each_position(back.view.shape, [&](const auto& p) {
    moved += p[1] != 4 && p[1] != 5 && back.view(p[0], p[1]) != again.view(p[0], p[1]);
  });
  CHECK(moved == 0);
}

/// The elements of a group as GGUF's rules give them, in NumPy's order of operations.
void expect_group(const float* x, Index rows, DType type, float* out) {
  float largest = 0;
  for (Index i = 0; i < rows; ++i)
    if (std::abs(x[i]) > std::abs(largest)) largest = x[i];
  const bool bytes = type == DType::int8_group32;
  const float scale = bytes ? std::abs(largest) / 127.0f : largest / -8.0f;
  const float stored = static_cast<float>(float16(scale)), inverse = stored == 0.0f ? 0.0f : 1.0f / scale;
  for (Index i = 0; i < rows; ++i) {
    const double q = bytes ? std::round(double{x[i] * inverse})
                           : std::min(15.0, std::trunc(double{x[i]} * double{inverse} + 8.5)) - 8;
    out[i] = static_cast<float>(q) * stored;
  }
}

TEST_CASE("PackedMatrix: groups of 32 rows are Q8_0 and Q4_0 of GGUF") {
  Random random(9);
  const Index k = 1000, n = 70;  // the last group has 8 rows
  const Tensor<2> b = random_tensor<2>({n, k}, random), back({k, n});
  for (Index p = 0; p < k; ++p) {
    b.view(3, p) = 0.0f;
    b.view(4, p) *= p < 500 ? 0x1p-18f : 0x1p-26f;  // denormal scales, and such that are 0
    b.view(5, p) = p % 2 == 0 ? 2.5f : -2.5f;
    b.view(6, p) *= 1000.0f;
    b.view(7, p) = static_cast<float>(p % 32) - 15.5f;  // ties
  }
  for (const DType type : {DType::int8_group32, DType::int4_group32})
    for (const int threads : {1, 3}) {
      PackedMatrix(b.view.transposed(), {.type = type, .num_threads = threads}).unpack(back.view);
      Index wrong = 0;
      for (Index j = 0; j < n; ++j)
        for (Index p = 0; p < k; p += 32) {
          float expected[32];
          const Index rows = std::min<Index>(32, k - p);
          expect_group(&b.view(j, p), rows, type, expected);
          for (Index i = 0; i < rows; ++i) wrong += back.view(p + i, j) != expected[i];
        }
      CHECK_MESSAGE(wrong == 0, name_of(type));
    }
}

TEST_CASE("PackedMatrix: groups refuse what is not finite, or beyond their scale") {
  for (const DType type : {DType::int8_group32, DType::int4_group32})
    for (const float x : {infinity, -infinity, nan, 1e7f}) {
      Random random(8);
      const Tensor<2> b = random_tensor<2>({50, 200}, random);
      b.view(40, 150) = x;
      CHECK_THROWS_WITH_AS(PackedMatrix(b.view, {.type = type}),
                           "PackedMatrix: b has an element that is not finite, or too large for a scale of float16",
                           std::invalid_argument);
    }
}

TEST_CASE("PackedMatrix: int8 refuses what is not finite") {
  for (const float x : {infinity, -infinity, nan})
    for (const Index row : {0, 2, 4}) {
      CAPTURE(x);
      CAPTURE(row);
      Random random(8);
      const Tensor<2> b = random_tensor<2>({5, 200}, random);
      b.view(row, 150) = x;
      CHECK_THROWS_WITH_AS(PackedMatrix(b.view, {.type = DType::int8}),
                           "PackedMatrix: b has an element that is not finite in column 150; int8 has none",
                           std::invalid_argument);
    }
}

}  // namespace
}  // namespace headlane::test
