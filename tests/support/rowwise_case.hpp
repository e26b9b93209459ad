// Operations on rows, such as softmax and norms: the shapes, data and layouts that all of them are
// tested with, and the comparison of each row with an oracle.
#pragma once

#include "support/data.hpp"
#include "support/tolerance.hpp"

#include <sstream>
#include <string>
#include <vector>

namespace headlane::test {

/// Rows of normally distributed numbers, and the layouts of input and output.
template <int Rank>
struct RowsCase {
  std::array<Index, static_cast<std::size_t>(Rank)> shape;
  std::uint64_t seed = 1;
  float mean = 0, spread = 4;  ///< spread: the standard deviation
  Layout layout_x = {}, layout_y = {};
};

template <int Rank>
std::string text_of(const RowsCase<Rank>& c) {
  std::ostringstream text;
  text << text_of(c.shape) << ", mean " << c.mean << ", spread " << c.spread << ", layout " << c.layout_x.name << " to "
       << c.layout_y.name;
  return text.str();
}

/// A single element is 0 or 1 in most operations.
template <int Rank>
Comparison::Kind kind_of(const RowsCase<Rank>& c) {
  return c.shape.back() <= 1 ? Comparison::Kind::special : Comparison::Kind::data;
}

/// f(case) for every row length to 80, lengths of tails, long rows, and any number of rows.
template <class F>
void for_each_row_length(const F& f) {
  for (Index n = 0; n <= 80; ++n) f(RowsCase<2>{.shape = {5, n}, .seed = 10});
  for (const Index n : tail_sizes) f(RowsCase<2>{.shape = {3, n}, .seed = 11});
  for (const Index n : {512, 768, 1000, 2048, 4096, 4999, 5000}) f(RowsCase<2>{.shape = {9, n}, .seed = 12});
  for (const Index rows : tail_sizes) f(RowsCase<2>{.shape = {rows, 19}, .seed = 13});
  for (const Index rows : tail_sizes) f(RowsCase<2>{.shape = {rows, 35}, .seed = 14});
}

/// f(case) for rank 1 to 8 in every layout, every layout beside every other, and no elements.
template <class F>
void for_each_layout(const F& f) {
  for (const Layout& layout : layouts()) {
    const auto check = [&](const auto& shape) {
      constexpr int rank = std::tuple_size_v<std::decay_t<decltype(shape)>>;
      f(RowsCase<rank>{.shape = shape, .seed = 20 + rank, .layout_x = layout, .layout_y = layout});
    };
    check(std::array<Index, 1>{67});
    check(std::array<Index, 2>{37, 33});
    check(std::array<Index, 3>{3, 5, 17});
    check(std::array<Index, 4>{2, 3, 4, 70});
    check(std::array<Index, 5>{2, 1, 3, 2, 7});
    check(std::array<Index, 6>{2, 1, 2, 2, 3, 16});
    check(std::array<Index, 7>{1, 2, 2, 1, 2, 2, 5});
    check(std::array<Index, 8>{2, 1, 2, 1, 2, 1, 2, 19});
    for (const Layout& other : layouts())
      f(RowsCase<3>{.shape = {3, 18, 35}, .seed = 29, .layout_x = layout, .layout_y = other});
  }
  for (const std::array<Index, 3>& shape : {std::array<Index, 3>{0, 4, 5}, {4, 0, 5}, {4, 5, 0}})
    f(RowsCase<3>{.shape = shape});
}

/// The values of a row, and how far each result may be off.
struct ExpectedRow {
  std::vector<double> value, bound;
};

/// Compares each row of y with expected(row), which is given the same row of `rows`.
template <int Rank, class Expected>
void compare_rows(Comparison comparison, const std::vector<float>& rows, const View<float, Rank>& y,
                  const Expected& expected) {
  const std::vector<float> actual = elements(y);
  REQUIRE(actual.size() == rows.size());
  if (rows.empty()) return;
  const Index n = y.size(-1);
  for (Index first = 0; first < std::ssize(rows); first += n) {
    const ExpectedRow row = expected(std::vector<float>(rows.begin() + first, rows.begin() + first + n));
    for (Index j = 0; j < n; ++j) {
      const auto at = static_cast<std::size_t>(j);
      comparison.add({first / n, j}, actual[static_cast<std::size_t>(first + j)], row.value[at], row.bound[at]);
    }
  }
  comparison.finish();
}

/// Compares y of run(x, y) as compare_rows() does. Nothing but y is written; y may be x, with the
/// same bits.
template <int Rank, class Run, class Expected>
void check_rows(const Comparison& comparison, const std::vector<float>& rows, const Tensor<Rank>& x,
                const Tensor<Rank>& y, const Run& run, const Expected& expected) {
  const std::vector<float> before = elements(x.view);
  run(x.view, y.view);
  compare_rows(comparison, rows, y.view, expected);
  CHECK(y.surroundings_untouched());
  CHECK(elements(x.view) == before);
  run(x.view, x.view);
  CHECK(different_bits(x.view, y.view) == 0);
  CHECK(x.surroundings_untouched());
}

}  // namespace headlane::test
