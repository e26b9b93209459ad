// Products with activations = int8 read the sums of the columns of b: those of a matrix that was
// made of numbers, of bytes, or joined are those of the matrix that was packed.
#include "support/gemm_case.hpp"

#include <headlane/gemm.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace headlane::test {
namespace {

constexpr DType integer_types[] = {DType::int8, DType::int8_group32, DType::int4_group32};
constexpr Index k = 600, n = 133;

Tensor<2> product(const View<const float, 2>& a, const PackedMatrix& b) {
  Tensor<2> c({a.shape[0], b.columns()});
  gemm(a, b, c.view, {.activations = DType::int8});
  return c;
}

PackedMatrix of_numbers(const PackedMatrix& matrix) {
  const bool grouped = matrix.type() != DType::int8;
  std::vector<std::int8_t> memory(static_cast<std::size_t>(k * n));
  const View<std::int8_t, 2> numbers(memory.data(), {k, n});
  const Tensor<2> scales({grouped ? (k + 31) / 32 : 1, n});
  matrix.unpack(numbers, scales.view);
  if (!grouped) return PackedMatrix::from_numbers(numbers, View<const float, 2>(scales.view).select(0, 0));
  std::vector<float16> halves;
  for_each(scales.view, [&](const float& x) { halves.emplace_back(x); });
  return PackedMatrix::from_numbers(numbers, View<const float16, 2>(halves.data(), scales.view.shape), matrix.type());
}

TEST_CASE("gemm, int8: matrices made of numbers, of bytes, and joined have the product of the packed one") {
  Random random(1);
  const Tensor<2> a = random_tensor<2>({5, k}, random), b = random_tensor<2>({k, n}, random);
  for_each(a.view, [](float& x) { x += 3.0f; });  // so that sums count
  for (const DType type : integer_types) {
    const PackedMatrix packed(b.view, {.type = type, .num_threads = 2});
    const Tensor<2> expected = product(a.view, packed);
    const auto* const bytes = static_cast<const std::byte*>(packed.data());
    CHECK(different_bits(product(a.view, of_numbers(packed)).view, expected.view) == 0);
    CHECK(different_bits(product(a.view, PackedMatrix::from_bytes(std::span(bytes, packed.bytes()), k, n, type)).view,
                         expected.view) == 0);
    const PackedMatrix::Columns parts[] = {{&packed, 32, 70}, {&packed, 0, 5}, {&packed, 96, n}};
    const Tensor<2> joined = product(a.view, PackedMatrix::joined(parts));
    CHECK(different_bits(joined.view.slice(1, 0, 38), expected.view.slice(1, 32, 70)) == 0);
    CHECK(different_bits(joined.view.slice(1, 64, 69), expected.view.slice(1, 0, 5)) == 0);
    CHECK(different_bits(joined.view.slice(1, 96, 133), expected.view.slice(1, 96, n)) == 0);
  }
}

}  // namespace
}  // namespace headlane::test
