// PackedMatrix::from_bytes: elements that are packed already, and the order that they have.
#include "support/gemm_case.hpp"
#include "support/hash.hpp"
#include "support/illegal.hpp"

#include <headlane/gemm.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

namespace headlane::test {
namespace {

std::span<const std::byte> bytes_of(const PackedMatrix& matrix) {
  return {static_cast<const std::byte*>(matrix.data()), matrix.bytes()};
}

PackedMatrix random_matrix(Index k, Index n, DType type, std::uint64_t seed = 1) {
  Random random(seed);
  Tensor<2> b({k, n});
  fill_normal(b.view, random);
  return PackedMatrix(b.view, {.type = type});
}

TEST_CASE("from_bytes: the same matrix, from any address") {
  for (const DType type : all_types)
    for (const auto& [k, n] :
         {std::pair<Index, Index>{1, 1}, {2, 31}, {3, 32}, {5, 33}, {31, 64}, {33, 65}, {513, 40}, {1030, 97}}) {
      const PackedMatrix packed = random_matrix(k, n, type);
      for (const std::size_t past : {0u, 1u, 7u}) {
        std::vector<std::byte> memory(packed.bytes() + past);
        std::memcpy(memory.data() + past, packed.data(), packed.bytes());
        const PackedMatrix copy = PackedMatrix::from_bytes(std::span(memory).subspan(past), k, n, type);
        memory.assign(memory.size(), std::byte{0xff});
        REQUIRE((copy.rows() == k && copy.columns() == n && copy.type() == type && copy.bytes() == packed.bytes()));
        CHECK(copy.data() != packed.data());
        CHECK(std::memcmp(copy.data(), packed.data(), packed.bytes()) == 0);
        const GemmInputs one(3, n, k), other(3, n, k);
        gemm(one.a.view, packed, one.c.view);
        gemm(other.a.view, copy, other.c.view);
        CHECK(different_bits(one.c.view, other.c.view) == 0);
      }
    }
}

TEST_CASE("from_bytes: what from_numbers and joined made, and NaN") {
  Random random(1);
  std::vector<bfloat16> all(64 * 1024);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  const PackedMatrix numbers = PackedMatrix::from_numbers(View<const bfloat16, 2>(all.data(), {1024, 64}));
  const PackedMatrix parts = random_matrix(40, 70, DType::int4_group32);
  const PackedMatrix::Columns columns[] = {{&parts, 0, 5}, {&parts, 32, 70}};
  const PackedMatrix joined = PackedMatrix::joined(columns);
  for (const PackedMatrix* packed : {&numbers, &joined}) {
    const PackedMatrix copy =
        PackedMatrix::from_bytes(bytes_of(*packed), packed->rows(), packed->columns(), packed->type());
    CHECK(std::memcmp(copy.data(), packed->data(), packed->bytes()) == 0);
  }
}

TEST_CASE("from_bytes: matrices without elements") {
  for (const DType type : all_types)
    for (const auto& [k, n] : {std::pair<Index, Index>{0, 0}, {0, 5}, {5, 0}, {huge, 0}, {0, huge}}) {
      const PackedMatrix packed = PackedMatrix::from_bytes({}, k, n, type);
      CHECK((packed.rows() == k && packed.columns() == n && packed.type() == type && packed.bytes() == 0));
    }
}

/// Elements behind the last column and row do not depend on what was in memory before.
TEST_CASE("PackedMatrix: the same matrix has the same bytes") {
  for (const DType type : all_types)
    for (Index n = 1; n <= 33; ++n) {
      const Index k = 600 + n;
      const PackedMatrix packed = random_matrix(k, n, type);
      std::vector<std::byte> first(packed.bytes());
      std::memcpy(first.data(), packed.data(), packed.bytes());
      Tensor<2> ones({k, 32});
      for_each(ones.view, [](float& x) { x = 1; });
      CHECK(PackedMatrix(ones.view, {.type = type}).bytes() > 0);  // memory that the next one may get
      const PackedMatrix again = random_matrix(k, n, type);
      CHECK(std::memcmp(first.data(), again.data(), first.size()) == 0);
      if (type != DType::float32 || n % 32 == 0) continue;
      const auto* const last = static_cast<const float*>(packed.data()) + 31;  // of each row of the only panel
      for (Index i = 0; n < 32 && i < k; ++i) REQUIRE(bits_of(last[32 * i]) == 0);
    }
}

std::uint64_t hash_of(const PackedMatrix& matrix) {
  Hash hash;
  for (const std::byte byte : bytes_of(matrix)) hash.add(static_cast<std::uint64_t>(byte));
  return hash.value();
}

/// If this fails, the order of elements is another one, and PackedMatrix::layout has to be, too.
TEST_CASE("PackedMatrix::layout: the order of elements") {
  CHECK(PackedMatrix::layout == 1);
  const std::uint64_t expected[] = {6261387857653064670u,  13677066317833727757u, 161109684818846076u,
                                    17949639735660896225u, 5308647167054977089u,  18265145980151205089u};
  for (const DType type : all_types) {
    const std::uint64_t hash = hash_of(random_matrix(1030, 70, type));
    CHECK_MESSAGE(hash == expected[static_cast<int>(type)], std::string(name_of(type)));
  }
}

/// Calls from_bytes after a change of one byte of a matrix.
struct Changed {
  std::vector<std::byte> memory;
  Index k, n;
  DType type;

  Changed(Index rows, Index columns, DType type_) : k(rows), n(columns), type(type_) {
    const PackedMatrix packed = random_matrix(k, n, type);
    memory.assign(bytes_of(packed).begin(), bytes_of(packed).end());
  }
  template <class T>
  void set(std::size_t at, T value) {
    std::memcpy(memory.data() + at, &value, sizeof value);
  }
  void expect(const std::string& message) const {
    const std::string text = "PackedMatrix::from_bytes: " + message;
    CHECK_THROWS_WITH_AS(static_cast<void>(PackedMatrix::from_bytes(memory, k, n, type)), text.c_str(),
                         std::invalid_argument);
  }
};

constexpr std::int8_t least = -128;

TEST_CASE("from_bytes: numbers that a type does not have") {
  Changed int8(70, 40, DType::int8);  // two panels of 18 quads of rows of 32 columns
  int8.set(4 * (32 * (18 + 16) + 1) + 2, least);
  int8.expect("the number [66, 33] is -128; int8 has -127 … 127");
  Changed groups(70, 40, DType::int8_group32);  // two panels of three groups: 8 quads of rows, 32 scales
  groups.set(1088 * (3 + 2) + 4 * 33 + 1, least);
  groups.expect("the number [69, 33] is -128; int8_group32 has -127 … 127");
}

TEST_CASE("from_bytes: scales that are not finite, or too large") {
  for (const auto& [scale, text] :
       {std::pair(infinity, "inf"), {-infinity, "-inf"}, {nan, "nan"}, {-3e36f, "-3e+36"}}) {
    Changed int8(70, 40, DType::int8);
    int8.set(int8.memory.size() - 4 * (64 - 33), scale);
    int8.expect(std::string("the scale [33] is ") + text + "; 127 times a scale must be finite");
  }
  for (const DType type : {DType::int8_group32, DType::int4_group32})
    for (const auto& [scale, text] : {std::pair(infinity, "inf"), {-infinity, "-inf"}, {nan, "nan"}}) {
      Changed groups(70, 40, type);
      const std::size_t group = type == DType::int8_group32 ? 1088 : 576;
      groups.set(group * (3 + 1 + 1) - 2 * (32 - 5), float16(scale));
      groups.expect(std::string("the scale [1, 37] is ") + text + "; a scale must be finite");
    }
}

TEST_CASE("from_bytes: elements behind the last row") {
  Changed bfloats(5, 40, DType::bfloat16);
  bfloats.set(4 * (32 * (3 + 2) + 7) + 2, bfloat16(nan));
  bfloats.expect("the element [5, 39] is not 0, and behind the last row");
  Changed int8(5, 40, DType::int8);
  int8.set(4 * (32 * (2 + 1) + 7) + 3, std::int8_t{1});
  int8.expect("the element [7, 39] is not 0, and behind the last row");
  Changed eight(5, 3, DType::int8_group32);
  eight.set(4 * (32 * 7 + 2) + 3, std::int8_t{-1});
  eight.expect("the element [31, 2] is not 0, and behind the last row");
  Changed four(37, 3, DType::int4_group32);
  four.set(576 + 4 * 2 + 2, std::uint8_t{0x80});  // rows 4 and 5 of the second group
  four.expect("the element [37, 2] is not 0, and behind the last row");
}

TEST_CASE("from_bytes: sizes, types, null") {
  const std::vector<std::byte> memory(2 * 384);
  const auto expect = [&](const char* message, std::size_t size, Index rows, Index columns, DType type) {
    CHECK_THROWS_WITH_AS(
        static_cast<void>(PackedMatrix::from_bytes(std::span(memory).first(size), rows, columns, type)), message,
        std::invalid_argument);
  };
  expect("PackedMatrix::from_bytes: bytes has 383 bytes, a matrix of 3 x 5 of float32 has 384", 383, 3, 5,
         DType::float32);
  expect("PackedMatrix::from_bytes: bytes has 385 bytes, a matrix of 3 x 5 of float32 has 384", 385, 3, 5,
         DType::float32);
  expect("PackedMatrix::from_bytes: bytes has 0 bytes, a matrix of 3 x 33 of int8 has 512", 0, 3, 33, DType::int8);
  expect("PackedMatrix::from_bytes: bytes has 1 bytes, a matrix of 0 x 5 of int8 has 0", 1, 0, 5, DType::int8);
  expect("PackedMatrix::from_bytes: rows is -1, the minimum is 0", 384, -1, 5, DType::float32);
  expect("PackedMatrix::from_bytes: columns is -1, the minimum is 0", 384, 3, -1, DType::float32);
  expect("PackedMatrix::from_bytes: rows is -4611686018427387904, the minimum is 0", 0, -huge, 0, DType::float32);
  expect("PackedMatrix::from_bytes: type is 9, which is none of float32 … int4_group32", 384, 3, 5,
         static_cast<DType>(9));
  for (const auto& [rows, columns] : {std::pair<Index, Index>{huge, 5}, {5, huge}, {huge, huge}, {1, INT64_MAX}})
    for (const DType type : all_types)
      expect((std::string("PackedMatrix::from_bytes: a matrix of ") + std::to_string(rows) + " x " +
              std::to_string(columns) + " does not fit into memory")
                 .c_str(),
             384, rows, columns, type);
  const Index most = Index{1} << 54;  // can be addressed
  CHECK_THROWS_WITH_AS(static_cast<void>(PackedMatrix::from_bytes(memory, most, 32, DType::float32)),
                       doctest::Contains("has 2305843009213693952"), std::invalid_argument);
  CHECK_THROWS_WITH_AS(
      static_cast<void>(PackedMatrix::from_bytes({static_cast<const std::byte*>(nullptr), 384}, 3, 5, DType::float32)),
      "PackedMatrix::from_bytes: bytes has no data (null)", std::invalid_argument);
}

}  // namespace
}  // namespace headlane::test
