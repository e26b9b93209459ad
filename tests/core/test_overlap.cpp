// Overlap of the operands of many problems: against sets of addresses, and in less than quadratic
// time.
#include "core/overlap.hpp"
#include "support/data.hpp"

#include <doctest/doctest.h>
#include <headlane/gemm_batch.hpp>

#include <map>
#include <set>

namespace headlane::test {

using namespace internal;
namespace {

/// Some operands in one memory of floats that is never read.
struct Operands {
  struct One {
    View<const float, 2> view;
    bool written;
  };
  std::vector<One> all;

  [[nodiscard]] bool apart_fast() const {
    std::vector<Extent> extents;
    for (const One& one : all) extents.push_back(extent_of(Caller("f").operand("x", one.view), one.written));
    return surely_apart(extents);
  }
  /// Element by element.
  [[nodiscard]] bool apart() const {
    // The last operand that has an element, and whether some operand writes it.
    std::map<const float*, std::pair<std::size_t, bool>> owners;
    for (const bool written : {true, false}) {
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i].written != written) continue;
        bool met = false;
        for_each(all[i].view, [&](const float& e) {
          const auto [found, added] = owners.try_emplace(&e, i, written);
          met = met || (!added && found->second.second && found->second.first != i);
        });
        if (met) return false;
      }
    }
    return true;
  }
};

std::vector<float> memory(1 << 16);

/// A block of rows and columns of a matrix of `pitch` columns.
View<const float, 2> block(Index pitch, Index row, Index rows, Index column, Index columns) {
  return {memory.data() + row * pitch + column, {rows, columns}, {pitch, 1}};
}

TEST_CASE("blocks of one buffer: apart or not, as their elements are") {
  Index apart = 0, not_apart = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    const Index pitch = random.integer(1, 40), rows = random.integer(1, 12);
    Operands operands;
    for (Index i = random.integer(1, 12); i > 0; --i) {
      const Index row = random.integer(0, rows - 1),
                  column = random.integer(0, 2 * pitch);  // also across the end of a row
      const Index most = random.integer(1, pitch);
      operands.all.push_back({block(pitch, row, random.integer(1, rows - row), column, random.integer(1, most)),
                              random.integer(0, 2) == 0});
      for (const std::size_t axis : {std::size_t{0}, std::size_t{1}}) {
        if (random.integer(0, 5) != 0) continue;  // else from the last row or column to the first
        View<const float, 2>& view = operands.all.back().view;
        view.data += (view.shape[axis] - 1) * view.strides[axis];
        view.strides[axis] = -view.strides[axis];
      }
    }
    const bool expected = operands.apart();
    CHECK_MESSAGE(operands.apart_fast() == expected, "seed ", seed);
    ++(expected ? apart : not_apart);
  }
  MESSAGE(apart, " apart, ", not_apart, " not");
  CHECK(apart > 300);
  CHECK(not_apart > 300);
}

TEST_CASE("columns of one buffer are apart, and found to be so at once, in any order; one column more is not") {
  for (const Index columns : {1, 3, 7}) {
    for (const Index step : {columns, columns + 1}) {
      Operands operands;
      const Index count = 50, pitch = count * step + 5;
      for (Index i = 0; i < count; ++i)
        operands.all.push_back({block(pitch, i % 3, 9, i * 37 % count * step, columns), i % 4 != 0});
      CHECK(operands.apart_fast());
      for (const Index at : {Index{0}, Index{1}, count - 1}) {
        Operands wrong = operands;
        ++wrong.all[static_cast<std::size_t>(at)].view.shape[1];
        // The last columns of the buffer have room; without a gap all others reach into their
        // neighbour.
        CHECK(wrong.apart_fast() == wrong.apart());
      }
    }
  }
}

TEST_CASE("inputs may overlap each other, outputs no input") {
  Operands operands;
  for (int i = 0; i < 5; ++i) operands.all.push_back({block(20, i, 7, 0, 10), false});
  operands.all.push_back({block(20, 2, 4, 10, 3), true});
  CHECK(operands.apart_fast());
  operands.all.push_back({block(20, 2, 4, 13, 7), true});
  CHECK(operands.apart_fast());
  operands.all.push_back({block(20, 0, 11, 19, 1), false});
  CHECK(!operands.apart_fast());
  operands.all.back().view = block(20, 6, 11, 19, 1);  // behind the last row of that output
  CHECK(operands.apart_fast());
}

// Comparing all pairs would take 2 · 10^9 comparisons, minutes.
TEST_CASE("gemm_batch of 30,000 problems with columns of one buffer as outputs") {
  constexpr Index count = 30000, rows = 3, inner = 2;
  Random random(1);
  const Tensor<2> a = random_tensor<2>({rows, inner}, random), b = random_tensor<2>({inner, count}, random),
                  c({rows, count}), expected({rows, count});
  std::vector<GemmProblem> problems;
  for (Index i = 0; i < count; ++i) {
    const Index column = i * 7919 % count;
    problems.push_back({a.view, b.view.slice(1, column, column + 1), nullptr, c.view.slice(1, column, column + 1), {}});
  }
  gemm_batch(problems);
  gemm(a.view, b.view, expected.view);
  CHECK(different_bits(c.view, expected.view) == 0);
}

}  // namespace
}  // namespace headlane::test
