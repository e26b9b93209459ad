#include "bert/pool.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace headlane::models::internal {
namespace {

/// y = the sum of the rows of x with weights first, first + step, …, divided by `divisor`.
void sum_of_rows(const View<const float, 2>& x, const View<float, 1>& y, double first, double step, double divisor) {
  constexpr Index block = 64;  // columns: their sums stay in the L1, mostly in registers
  for (Index from = 0; from < x.size(1); from += block) {
    const Index columns = std::min(block, x.size(1) - from);
    std::array<double, block> sums{};
    double weight = first;
    for (Index i = 0; i < x.size(0); ++i, weight += step)
      for (Index j = 0; j < columns; ++j) sums[static_cast<std::size_t>(j)] += weight * x(i, from + j);
    for (Index j = 0; j < columns; ++j) y(from + j) = static_cast<float>(sums[static_cast<std::size_t>(j)] / divisor);
  }
}

/// y = the maximum of each column of x; NaN if the column has one.
void max_of_rows(const View<const float, 2>& x, const View<float, 1>& y) {
  copy_row(x.select(0, 0), y, 0);
  for (Index i = 1; i < x.size(0); ++i)
    for (Index j = 0; j < x.size(1); ++j)
      if (x(i, j) > y(j) || std::isnan(x(i, j))) y(j) = x(i, j);
}

}  // namespace

void copy_row(const View<const float, 1>& x, const View<float, 1>& y, Index counted) {
  double length = 1;
  if (counted > 0) {
    double squares = 0;
    for (Index j = 0; j < counted; ++j) squares += static_cast<double>(x(j)) * x(j);
    length = std::sqrt(squares);
    if (length < 1e-12) length = 1e-12;  // as torch.nn.functional.normalize; NaN stays NaN
  }
  for (Index j = 0; j < y.size(0); ++j) y(j) = static_cast<float>(x(j) / length);
}

void pool(Pooling pooling, const View<const float, 2>& x, Index before, const View<float, 1>& y) {
  const auto n = static_cast<double>(x.size(0)), first = static_cast<double>(before + 1);
  switch (pooling) {
    case Pooling::cls:
      return copy_row(x.select(0, 0), y, 0);
    case Pooling::lasttoken:
      return copy_row(x.select(0, x.size(0) - 1), y, 0);
    case Pooling::max:
      return max_of_rows(x, y);
    case Pooling::mean_sqrt_len_tokens:
      return sum_of_rows(x, y, 1, 0, std::sqrt(n));
    case Pooling::weightedmean:
      return sum_of_rows(x, y, first, 1, n * (first + (n - 1) / 2));
    default:
      return sum_of_rows(x, y, 1, 0, n);
  }
}

}  // namespace headlane::models::internal
