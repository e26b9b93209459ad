// PackedMatrix::from_numbers: what a file of stored weights holds, without rounding anything.
#include "support/gemm_case.hpp"
#include "support/illegal.hpp"
#include "support/quantised_row.hpp"
#include "support/scope.hpp"

#include <headlane/gemm.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

namespace headlane::test {
namespace {

/// A matrix of any type in one of four layouts, next to an inaccessible page.
template <class T>
struct Matrix {
  GuardedBuffer buffer;
  View<T, 2> view;

  Matrix(Index rows, Index columns, Index layout, Place where = Place::end)
      : buffer((rows * columns * 2 + 8) * static_cast<Index>(sizeof(T)) / 4 + 1) {
    const Index count = rows * columns, step = layout == 2 ? 2 : 1;
    const Index reach = count == 0 ? 0 : (count - 1) * step + 1;
    char* const end = reinterpret_cast<char*>(buffer.place(0, 0, where));
    T* const first = reinterpret_cast<T*>(end) - (where == Place::end ? reach : 0);
    view = View<T, 2>(first, {rows, columns}, {columns * step, step});
    if (layout == 1) view.strides = {1, rows};
    if (layout == 3 && count > 0) view = View<T, 2>(first + reach - 1, {rows, columns}, {-columns, -1});
  }
};

/// Bits that are no NaN of float, so that products can be compared; else any.
float16 some_float16(Random& random) {
  float16 x;
  x.bits = static_cast<std::uint16_t>(random.next() & 0xbbffu);  // below 2 in magnitude, denormal ones too
  return x;
}

bfloat16 some_bfloat16(Random& random) {
  return bfloat16(random.normal() * (random.integer(0, 9) == 0 ? 0x1p-130f : 1));
}

float some_scale(Random& random) {
  const std::vector<float> factors{1, 1, 1, -1, 0, -0.0f, 0x1p-140f, 0x1p100f};
  return (random.uniform() + 1.5f) / 127 * random.pick(factors);
}

/// Products by a matrix and by the elements that it should have, and what it unpacks to.
void check_elements(const PackedMatrix& packed, const View<float, 2>& elements) {
  const Index k = elements.shape[0], n = elements.shape[1];
  CAPTURE(k);
  CAPTURE(n);
  REQUIRE(packed.rows() == k);
  REQUIRE(packed.columns() == n);
  const Tensor<2> back({k, n}, layouts()[1]);
  packed.unpack(back.view);
  CHECK(different_bits(back.view, elements) == 0);
  const PackedMatrix plain(elements);
  for (const Index m : {1, 5, 30}) {
    const GemmInputs in(m, n, k), expected(m, n, k);
    gemm(in.a.view, packed, in.c.view, {.bias = in.bias.view});
    gemm(in.a.view, plain, expected.c.view, {.bias = in.bias.view});
    CHECK(different_bits(in.c.view, expected.c.view) == 0);
  }
}

struct Sizes {
  Index k, n;
};

/// Sizes around words, panels and blocks.
std::vector<Sizes> all_sizes() {
  std::vector<Sizes> sizes{{513, 33}, {1100, 70}, {600, 300}, {7, 1}, {1, 7}, {32, 32}};
  Random random(2);
  for (int i = 0; i < (slow_isa() ? 10 : 60); ++i) sizes.push_back({random.integer(1, 140), random.integer(1, 140)});
  return sizes;
}

/// For all sizes and layouts f(sizes, layout, place, threads, seed).
template <class F>
void for_all_cases(const F& f) {
  std::uint64_t seed = 0;
  for (const Sizes& s : all_sizes())
    for (const Index layout : {0, 1, 2, 3}) {
      ++seed;
      f(s, layout, seed % 2 == 0 ? Place::start : Place::end, static_cast<int>(seed % 3), seed);
    }
}

template <class T>
void check_16_bits(T (*some)(Random&)) {
  for_all_cases([&](const Sizes& s, Index layout, Place where, int threads, std::uint64_t seed) {
    Random random(seed);
    const Matrix<T> b(s.k, s.n, layout, where);
    const Tensor<2> elements({s.k, s.n});
    for_each_position(b.view.shape, [&](const auto& p) {
      b.view(p[0], p[1]) = some(random);
      elements.view(p[0], p[1]) = static_cast<float>(b.view(p[0], p[1]));
    });
    const PackedMatrix packed = PackedMatrix::from_numbers(b.view, {.num_threads = threads});
    CHECK(packed.type() == (std::is_same_v<T, float16> ? DType::float16 : DType::bfloat16));
    check_elements(packed, elements.view);
  });
}

TEST_CASE("from_numbers: bfloat16 and float16 as they are") {
  check_16_bits<float16>(some_float16);
  check_16_bits<bfloat16>(some_bfloat16);
}

/// Every number of 16 bits, NaN with its payload too: the bits that unpack() returns.
template <class T>
void check_all_bits() {
  std::vector<T> all(1u << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  const Tensor<2> back({256, 256});
  PackedMatrix::from_numbers(View<const T, 2>(all.data(), {256, 256})).unpack(back.view);
  Index wrong = 0;
  for (Index i = 0; i < 65536; ++i)
    wrong += std::bit_cast<std::uint32_t>(back.view(i / 256, i % 256)) !=
             std::bit_cast<std::uint32_t>(static_cast<float>(all[static_cast<std::size_t>(i)]));
  CHECK(wrong == 0);
}

TEST_CASE("from_numbers: every bfloat16 and float16") {
  check_all_bits<float16>();
  check_all_bits<bfloat16>();
}

/// What a matrix of integers returns as its numbers and scales.
template <class Scale>
void check_numbers(const PackedMatrix& packed, const View<std::int8_t, 2>& numbers, const View<Scale, 2>& scales) {
  const Matrix<std::int8_t> q(packed.rows(), packed.columns(), 1);
  const Tensor<2> s(scales.shape, layouts()[4]);
  packed.unpack(q.view, s.view);
  Index wrong = 0;
  for_each_position(q.view.shape, [&](const auto& p) { wrong += q.view(p[0], p[1]) != numbers(p[0], p[1]); });
  for_each_position(scales.shape, [&](const auto& p) {
    wrong += std::bit_cast<std::uint32_t>(s.view(p[0], p[1])) !=
             std::bit_cast<std::uint32_t>(static_cast<float>(scales(p[0], p[1])));
  });
  CHECK(wrong == 0);
  CHECK(s.surroundings_untouched());
}

TEST_CASE("from_numbers: int8 with any scale for each column") {
  for_all_cases([&](const Sizes& s, Index layout, Place where, int threads, std::uint64_t seed) {
    Random random(seed);
    const Matrix<std::int8_t> q(s.k, s.n, layout, where);
    const Matrix<float> scales(1, s.n, layout % 3, where);
    const Tensor<2> elements({s.k, s.n});
    for (Index j = 0; j < s.n; ++j) scales.view(0, j) = some_scale(random);
    for_each_position(q.view.shape, [&](const auto& p) {
      q.view(p[0], p[1]) = static_cast<std::int8_t>(random.integer(-127, 127));
      elements.view(p[0], p[1]) = static_cast<float>(q.view(p[0], p[1])) * scales.view(0, p[1]);
    });
    const View<float, 1> scale_of = scales.view.select(0, 0);
    const PackedMatrix packed = PackedMatrix::from_numbers(q.view, scale_of, {.num_threads = threads});
    CHECK(packed.type() == DType::int8);
    check_elements(packed, elements.view);
    check_numbers(packed, q.view, scales.view);
  });
}

TEST_CASE("from_numbers: groups of 32 rows") {
  for (const DType type : {DType::int8_group32, DType::int4_group32})
    for_all_cases([&](const Sizes& s, Index layout, Place where, int threads, std::uint64_t seed) {
      Random random(seed);
      const Matrix<std::int8_t> q(s.k, s.n, layout, where);
      const Matrix<float16> scales((s.k + 31) / 32, s.n, (layout + 1) % 4, where);
      const Tensor<2> elements({s.k, s.n});
      for_each_position(scales.view.shape, [&](const auto& p) { scales.view(p[0], p[1]) = some_float16(random); });
      const Index least = type == DType::int8_group32 ? -127 : -8, greatest = type == DType::int8_group32 ? 127 : 7;
      for_each_position(q.view.shape, [&](const auto& p) {
        q.view(p[0], p[1]) = static_cast<std::int8_t>(random.integer(least, greatest));
        elements.view(p[0], p[1]) =
            static_cast<float>(q.view(p[0], p[1])) * static_cast<float>(scales.view(p[0] / 32, p[1]));
      });
      const PackedMatrix packed = PackedMatrix::from_numbers(q.view, scales.view, type, {.num_threads = threads});
      CHECK(packed.type() == type);
      check_elements(packed, elements.view);
      check_numbers(packed, q.view, scales.view);
    });
}

/// Of whole panels, since a scale of int4 beside the last column may be -0.
TEST_CASE("from_numbers: the numbers of a packed matrix make the same one") {
  Random random(4);
  for (const DType type : {DType::int8, DType::int8_group32, DType::int4_group32})
    for (const Sizes& s : {Sizes{600, 96}, {5, 32}, {1030, 64}}) {
      const PackedMatrix packed(random_tensor<2>({s.k, s.n}, random).view, {.type = type});
      const Index rows = type == DType::int8 ? 1 : (s.k + 31) / 32;
      const Matrix<std::int8_t> q(s.k, s.n, 0);
      const Matrix<float> scales(rows, s.n, 0);
      packed.unpack(q.view, scales.view);
      PackedMatrix again;
      if (type == DType::int8) {
        again = PackedMatrix::from_numbers(q.view, View<const float, 1>(scales.view.select(0, 0)));
      } else {
        const Matrix<float16> halves(rows, s.n, 0);
        for_each_position(scales.view.shape,
                          [&](const auto& p) { halves.view(p[0], p[1]) = float16(scales.view(p[0], p[1])); });
        again = PackedMatrix::from_numbers(q.view, halves.view, type);
      }
      REQUIRE(again.bytes() == packed.bytes());
      CHECK(std::memcmp(again.data(), packed.data(), packed.bytes()) == 0);
    }
}

TEST_CASE("from_numbers: activations of int8") {
  Random random(3);
  const Index k = 300, n = 70;
  const Matrix<std::int8_t> q(k, n, 1);
  const Matrix<float> scales(1, n, 0);
  const Tensor<2> a = random_tensor<2>({1, k}, random), c({1, n}), expected({1, n});
  for (Index j = 0; j < n; ++j) scales.view(0, j) = (random.uniform() + 1.5f) / 100;
  for_each_position(q.view.shape,
                    [&](const auto& p) { q.view(p[0], p[1]) = static_cast<std::int8_t>(random.integer(-127, 127)); });
  const QuantisedRow row(View<const float, 2>(a.view).select(0, 0));
  for (Index j = 0; j < n; ++j)
    expected.view(0, j) = row.product([&](Index p) { return q.view(p, j); }, scales.view(0, j));
  for (const bool extended : {true, false}) {
    const ExtensionScope extension(extended);
    const PackedMatrix packed = PackedMatrix::from_numbers(q.view, View<const float, 1>(scales.view.select(0, 0)));
    gemm(a.view, packed, c.view, {.activations = DType::int8});
    CHECK(different_bits(c.view, expected.view) == 0);
  }
}

TEST_CASE("from_numbers: numbers that a type does not have") {
  const std::vector<std::pair<DType, std::vector<int>>> wrong{
      {DType::int8, {-128}}, {DType::int8_group32, {-128}}, {DType::int4_group32, {-128, -9, 8, 127}}};
  for (const auto& [type, numbers] : wrong)
    for (const int q : numbers) {
      std::vector<std::int8_t> all(70 * 40, 3), clamped = all;
      std::vector<float16> halves(3 * 40, float16(0.5f));
      std::vector<float> floats(40, 0.5f);
      const bool four = type == DType::int4_group32;
      all[66 * 40 + 33] = static_cast<std::int8_t>(q);
      clamped[66 * 40 + 33] = static_cast<std::int8_t>(std::clamp(q, four ? -8 : -127, four ? 7 : 127));
      const auto make = [&](std::vector<std::int8_t>& from, bool clamp) {
        const View<const std::int8_t, 2> view(from.data(), {70, 40});
        const NumbersOptions options{.clamp = clamp, .num_threads = 2};
        if (type != DType::int8)
          return PackedMatrix::from_numbers(view, View<const float16, 2>(halves.data(), {3, 40}), type, options);
        return PackedMatrix::from_numbers(view, View<const float, 1>(floats.data(), {40}), options);
      };
      const std::string message = std::string("PackedMatrix::from_numbers: numbers[66, 33] is ") + std::to_string(q) +
                                  "; " + name_of(type) + " has " + (four ? "-8 … 7" : "-127 … 127") +
                                  ", clamp is not set";
      CHECK_THROWS_WITH_AS(make(all, false), message.c_str(), std::invalid_argument);
      const PackedMatrix one = make(all, true), other = make(clamped, false);
      CHECK(std::memcmp(one.data(), other.data(), one.bytes()) == 0);
    }
}

}  // namespace
}  // namespace headlane::test
