// PackedMatrix::unpack and unpack_columns: every type, in any strides, rounded to 16 bits, on
// several threads.
#include "support/gemm_case.hpp"
#include "support/half_tensor.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>
#include <headlane/packed_matrix.hpp>

#include <cmath>
#include <cstdint>
#include <utility>

namespace headlane::test {
namespace {

struct Sizes {
  Index k, n;
};

/// Around words, groups, panels, the rows that are widened at a time, and blocks.
std::vector<Sizes> all_sizes() {
  std::vector<Sizes> sizes;
  for (const Index k : {1, 2, 3, 5, 8, 31, 32, 33, 65, 127, 128, 129}) sizes.push_back({k, 33});
  for (const Index n : {1, 2, 15, 16, 17, 31, 32, 64, 65, 97}) sizes.push_back({37, n});
  for (const Index k : {511, 512, 513, 640, 1030}) sizes.push_back({k, 35});
  return sizes;
}

/// A matrix, and what it should unpack to: rounded here, or the product of numbers and scales.
struct Case {
  Tensor<2> elements;
  PackedMatrix packed;

  Case(const Sizes& s, DType type, std::uint64_t seed) : elements({s.k, s.n}) {
    Random random(seed);
    fill_normal(elements.view, random);
    packed = PackedMatrix(elements.view, {.type = type});
    if (type == DType::bfloat16) for_each(elements.view, [](float& x) { x = static_cast<float>(bfloat16(x)); });
    if (type == DType::float16) for_each(elements.view, [](float& x) { x = static_cast<float>(float16(x)); });
    if (type >= DType::int8) multiply_scales(s, type);
  }

 private:
  void multiply_scales(const Sizes& s, DType type) const {
    const bool groups = type != DType::int8;
    std::vector<std::int8_t> numbers(static_cast<std::size_t>(s.k * s.n));
    const View<std::int8_t, 2> q(numbers.data(), {s.k, s.n});
    const Tensor<2> scales({groups ? (s.k + 31) / 32 : 1, s.n});
    packed.unpack(q, scales.view);
    for_each_position(elements.view.shape, [&](const auto& p) {
      elements.view(p[0], p[1]) = static_cast<float>(q(p[0], p[1])) * scales.view(groups ? p[0] / 32 : 0, p[1]);
    });
  }
};

template <class F>
void for_all_cases(const F& f) {
  std::uint64_t seed = 0;
  for (const DType type : all_types)
    for (const Sizes& s : all_sizes()) {
      const Case c(s, type, ++seed);
      CAPTURE(name_of(type));
      CAPTURE(s.k);
      CAPTURE(s.n);
      f(c, seed);
    }
}

TEST_CASE("unpack: every type and size, in any strides") {
  for_all_cases([](const Case& c, std::uint64_t seed) {
    for (const Layout& layout : layouts()) {
      const Tensor<2> out(c.elements.view.shape, layout);
      c.packed.unpack(out.view, static_cast<int>(seed % 3));
      CHECK_MESSAGE(different_bits(out.view, c.elements.view) == 0, layout.name);
      CHECK(out.surroundings_untouched());
    }
  });
}

template <class T>
void check_rounded() {
  for_all_cases([](const Case& c, std::uint64_t seed) {
    const HalfTensor<T, 2> out(c.elements.view.shape, layouts()[seed % layouts().size()]);
    c.packed.unpack(out.view, static_cast<int>(seed % 3));
    CHECK(different_from_rounded(out.view, c.elements.view) == 0);
    CHECK(out.surroundings_untouched());
  });
}

TEST_CASE("unpack: to bfloat16 and float16") {
  check_rounded<bfloat16>();
  check_rounded<float16>();
}

/// Every number of 16 bits is itself again.
template <class T>
void check_identity() {
  std::vector<T> all(1u << 16), back(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  const PackedMatrix packed = PackedMatrix::from_numbers(View<const T, 2>(all.data(), {256, 256}));
  packed.unpack(View<T, 2>(back.data(), {256, 256}));
  Index wrong = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool is_nan = std::isnan(static_cast<float>(all[i]));
    wrong += is_nan ? !std::isnan(static_cast<float>(back[i])) : all[i].bits != back[i].bits;
  }
  CHECK(wrong == 0);
}

TEST_CASE("unpack: every bfloat16 and float16") {
  check_identity<bfloat16>();
  check_identity<float16>();
}

/// Column numbers in memory with a stride.
struct Wanted {
  std::vector<Index> memory;
  View<const Index, 1> view;

  Wanted(Index count, Index columns, Index stride, Random& random)
      : memory(static_cast<std::size_t>(std::max<Index>(1, count * std::abs(stride))), -1) {
    const Index first = stride < 0 ? (count - 1) * -stride : 0;
    view = {memory.data() + first, {count}, {stride}};
    for (Index i = 0; i < count; ++i)
      memory[static_cast<std::size_t>(first + i * stride)] = random.integer(0, columns - 1);
  }
};

/// The rows that unpack_columns should write.
Tensor<2> rows_of(const Case& c, const View<const Index, 1>& wanted) {
  Tensor<2> expected({wanted.shape[0], c.packed.rows()});
  for_each_position(expected.view.shape,
                    [&](const auto& p) { expected.view(p[0], p[1]) = c.elements.view(p[1], wanted(p[0])); });
  return expected;
}

TEST_CASE("unpack_columns: every type and size, in any strides") {
  for_all_cases([](const Case& c, std::uint64_t seed) {
    Random random(seed);
    for (const Index count : {1, 2, 13}) {
      const Wanted wanted(count, c.packed.columns(), std::vector<Index>{1, 3, -2}[seed % 3], random);
      const Tensor<2> expected = rows_of(c, wanted.view);
      for (const Layout& layout : layouts()) {
        const Tensor<2> out(expected.view.shape, layout);
        c.packed.unpack_columns(wanted.view, out.view, static_cast<int>(seed % 3));
        CHECK_MESSAGE(different_bits(out.view, expected.view) == 0, layout.name);
        CHECK(out.surroundings_untouched());
      }
      const HalfTensor<bfloat16, 2> bfloat(expected.view.shape, layouts()[seed % layouts().size()]);
      c.packed.unpack_columns(wanted.view, bfloat.view);
      CHECK(different_from_rounded(bfloat.view, expected.view) == 0);
      const HalfTensor<float16, 2> half(expected.view.shape, layouts()[(seed + 3) % layouts().size()]);
      c.packed.unpack_columns(wanted.view, half.view);
      CHECK(different_from_rounded(half.view, expected.view) == 0);
      CHECK((bfloat.surroundings_untouched() && half.surroundings_untouched()));
    }
  });
}

TEST_CASE("unpack_columns: the last column, each column once") {
  const Case c({40, 70}, DType::int8, 1);
  std::vector<Index> all;
  for (Index j = 70; j-- > 0;) all.push_back(j);
  const Tensor<2> out({70, 40});
  c.packed.unpack_columns({all.data(), {70}}, out.view);
  CHECK(different_bits(out.view, rows_of(c, {all.data(), {70}}).view) == 0);
}

TEST_CASE("unpack and unpack_columns: the same on any number of threads") {
  for (const DType type : all_types) {
    const Case c({1030, 200}, type, 7);
    Random random(7);
    const Wanted wanted(300, 200, 1, random);
    const Tensor<2> expected = rows_of(c, wanted.view);
    for (const int threads : {1, 2, 3, 8}) {
      const ThreadsScope team(8);
      const Tensor<2> out(c.elements.view.shape, layouts()[1]), rows(expected.view.shape);
      c.packed.unpack(out.view, threads);
      CHECK(different_bits(out.view, c.elements.view) == 0);
      c.packed.unpack_columns(wanted.view, rows.view, threads);
      CHECK(different_bits(rows.view, expected.view) == 0);
    }
  }
}

TEST_CASE("unpack: numbers and scales, the same on any number of threads") {
  for (const DType type : {DType::int8, DType::int4_group32}) {
    const Case c({1030, 200}, type, 8);
    const Index groups = type == DType::int8 ? 1 : 33;
    std::vector<std::int8_t> first;
    for (const int threads : {1, 2, 8}) {
      const ThreadsScope team(8);
      std::vector<std::int8_t> numbers(1030 * 200);
      const Tensor<2> scales({groups, 200});
      c.packed.unpack(View<std::int8_t, 2>(numbers.data(), {1030, 200}), scales.view, threads);
      if (first.empty()) first = numbers;
      CHECK(numbers == first);
      CHECK(!is_sentinel(scales.view(groups - 1, 199)));
    }
  }
}

TEST_CASE("unpack and unpack_columns: matrices without elements") {
  const Index none[] = {0, 1};
  for (const auto& [k, n] : {std::pair<Index, Index>{0, 0}, {3, 0}, {0, 5}}) {
    const PackedMatrix packed(View<const float, 2>(nullptr, {k, n}));
    packed.unpack(View<float, 2>(nullptr, {k, n}));
    packed.unpack(View<bfloat16, 2>(nullptr, {k, n}));
    packed.unpack_columns(View<const Index, 1>(nullptr, {0}), View<float, 2>(nullptr, {0, k}));
    if (n > 0) packed.unpack_columns({none, {2}}, View<float16, 2>(nullptr, {2, 0}));
  }
  const PackedMatrix packed(Tensor<2>({3, 5}).view);
  packed.unpack_columns(View<const Index, 1>(nullptr, {0}), View<float, 2>(nullptr, {0, 3}));
}

}  // namespace
}  // namespace headlane::test
