// require_disjoint: what overlaps, what does not, and the messages.
#include <doctest/doctest.h>
#include <headlane/disjoint.hpp>

#include <vector>

namespace headlane::test {
namespace {

std::vector<float>& memory() {
  static std::vector<float> floats(64);
  return floats;
}

View<const float, 2> at(Index first, const std::array<Index, 2>& shape, const std::array<Index, 2>& strides) {
  return {memory().data() + first, shape, strides};
}

void require_apart(const View<const float, 2>& out, const View<const float, 2>& a) {
  const NamedView inputs[] = {{"absent", {}}, {"a", a}};
  require_disjoint("f", {"out", out}, inputs);
}

TEST_CASE("require_disjoint: separate rows, interleaved columns and empty views do not overlap") {
  CHECK_NOTHROW(require_apart(at(0, {2, 8}, {8, 1}), at(16, {2, 8}, {8, 1})));
  CHECK_NOTHROW(require_apart(at(0, {4, 4}, {16, 1}), at(4, {4, 12}, {16, 1})));
  CHECK_NOTHROW(require_apart(at(0, {4, 4}, {16, 1}), at(0, {0, 12}, {16, 1})));
  CHECK_NOTHROW(require_apart(at(0, {4, 4}, {16, 1}), at(32, {4, 4}, {0, 0}).slice(0, 0, 0)));
}

/// The same elements in reverse along the axes that `axes` has a bit for.
View<const float, 2> flipped(View<const float, 2> view, unsigned axes) {
  for (const std::size_t axis : {std::size_t{0}, std::size_t{1}}) {
    if ((axes >> axis & 1U) == 0) continue;
    view.data += (view.shape[axis] - 1) * view.strides[axis];
    view.strides[axis] = -view.strides[axis];
  }
  return view;
}

TEST_CASE("require_disjoint: columns in reverse overlap what the same columns do") {
  for (const Index columns : {1, 4, 5})
    for (const Index other : {0, 4, 11})
      for (unsigned axes = 0; axes < 16; ++axes) {
        const auto out = flipped(at(4, {4, columns}, {16, 1}), axes & 3U),
                   a = flipped(at(other, {4, 4}, {16, 1}), axes >> 2);
        if (other >= 4 + columns || other + 4 <= 4) CHECK_NOTHROW(require_apart(out, a));
        else CHECK_THROWS_AS(require_apart(out, a), std::invalid_argument);
      }
}

TEST_CASE("require_disjoint: a common element is an error that names both arguments") {
  CHECK_THROWS_WITH_AS(require_apart(at(0, {2, 8}, {8, 1}), at(8, {2, 8}, {8, 1})),
                       "f: out of shape [2, 8] overlaps a of shape [2, 8]", std::invalid_argument);
  CHECK_THROWS_WITH_AS(require_apart(at(0, {4, 5}, {16, 1}), at(4, {4, 12}, {16, 1})),
                       "f: out of shape [4, 5] overlaps a of shape [4, 12]", std::invalid_argument);
}

TEST_CASE("require_disjoint: an output may not overlap itself, and inputs may") {
  CHECK_THROWS_WITH_AS(require_apart(at(0, {2, 8}, {0, 1}), at(32, {2, 8}, {8, 1})),
                       doctest::Contains("f: out of shape [2, 8] overlaps itself"), std::invalid_argument);
  CHECK_NOTHROW(require_apart(at(0, {2, 8}, {8, 1}), at(32, {2, 8}, {0, 1})));
  CHECK_THROWS_WITH_AS(require_disjoint("f", {"out", View<const float, 1>(nullptr, {3})}, {}),
                       doctest::Contains("f: out has shape [3] and no data"), std::invalid_argument);
}

TEST_CASE("require_disjoint: elements may have any type") {
  const auto* const bytes = reinterpret_cast<const bool*>(memory().data());
  const NamedView behind[] = {{"mask", View<const bool, 1>(bytes + 64, {64})}};
  CHECK_NOTHROW(require_disjoint("f", {"out", at(0, {2, 8}, {8, 1})}, behind));
  const NamedView last[] = {{"mask", View<const bool, 1>(bytes + 63, {64})}};
  CHECK_THROWS_WITH_AS(require_disjoint("f", {"out", at(0, {2, 8}, {8, 1})}, last),
                       "f: out of shape [2, 8] overlaps mask of shape [64]", std::invalid_argument);
}

TEST_CASE("require_disjoint: elements of 16 bits are half as long") {
  const View<const float, 2> out = at(0, {2, 8}, {8, 1});
  const auto* const halves = reinterpret_cast<const bfloat16*>(memory().data());
  const NamedView behind[] = {{"a", View<const bfloat16, 1>(halves + 32, {8})}};
  CHECK_NOTHROW(require_disjoint("f", {"out", out}, behind));
  const NamedView last[] = {{"a", View<const bfloat16, 1>(halves + 31, {8})}};
  CHECK_THROWS_WITH_AS(require_disjoint("f", {"out", out}, last), "f: out of shape [2, 8] overlaps a of shape [8]",
                       std::invalid_argument);
  CHECK_NOTHROW(
      require_disjoint("f", {"out", View<const bfloat16, 1>(halves, {16})}, {{{"a", at(8, {1, 8}, {8, 1})}}}));
}

TEST_CASE("require_disjoint: inputs are checked as operands") {
  AnyView<const float> deep = at(0, {2, 8}, {8, 1});
  deep.rank = 77;
  const NamedView ranks[] = {{"a", deep}}, sizes[] = {{"a", at(0, {2, -5}, {8, 1})}};
  CHECK_THROWS_WITH_AS(require_disjoint("f", {"out", at(0, {2, 8}, {8, 1})}, ranks),
                       doctest::Contains("f: a has rank 77"), std::invalid_argument);
  CHECK_THROWS_WITH_AS(require_disjoint("f", {"out", at(0, {2, 8}, {8, 1})}, sizes),
                       doctest::Contains("f: a has shape [2, -5]"), std::invalid_argument);
}

}  // namespace
}  // namespace headlane::test
