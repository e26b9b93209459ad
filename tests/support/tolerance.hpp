// The error bounds of the public headers, and Comparison, which applies them element by element.
#pragma once

#include "support/data.hpp"
#include "support/reference.hpp"
#include "support/reference_attention.hpp"

#include <doctest/doctest.h>
#include <headlane/runtime.hpp>

#include <cmath>
#include <initializer_list>
#include <map>
#include <sstream>
#include <string>

namespace headlane::test {

inline constexpr double unit = 0x1p-24;       ///< u, the rounding error of binary32
inline constexpr double smallest = 0x1p-149;  ///< the distance of denormal numbers
inline constexpr double gemm_chain = 128;     ///< the longest fma chain of a matrix product
inline constexpr double block = 512;          ///< along k; and the longest fma chain of P·V

inline double gamma(double roundings) { return roundings * unit / (1 - roundings * unit); }

inline double blocks(Index length) { return std::ceil(static_cast<double>(length) / block); }

inline double gemm_bound(Index k, double magnitude) {
  const double length = static_cast<double>(k), chains = std::min(std::ceil(length / gemm_chain), block / gemm_chain);
  return gamma(std::max(1.0, std::min(length, gemm_chain) + chains + blocks(k))) * magnitude;
}

/// The sum of n exponentials in 16 lanes: its additions, and the errors of its terms, whose
/// weighted mean is at most ln n.
inline double sum_roundings(Index n) {
  return std::ceil(static_cast<double>(n) / 16) + 2 * std::log(static_cast<double>(n) + 1);
}

/// Relative to y; and below 2^-126 an exponential may be flushed to 0.
inline double softmax_bound(Index n, double distance, double y) {
  const double relative = (2 * distance + sum_roundings(n) + 9) * unit;  // infinite for a score of -inf
  return 0x1p-126 + (y == 0 ? 0 : relative * std::abs(y));
}

inline double log_softmax_bound(Index n, double distance, double y) {
  return (2 * distance + std::abs(y) + sum_roundings(n) + 8) * unit;
}

/// Roundings of the scores, which a bias adds to either bound.
inline double bias_roundings(Index n, double distance, double max) {
  return 2 * std::abs(max) + distance + std::log(static_cast<double>(n) + 1);
}

/// The share of Σ p|v| that attention may be off by. A bias adds a rounding of each score.
inline double attention_relative_bound(Index head_dim, Index kv_length, double max_sum, double max_score,
                                       bool biased = false) {
  const double keys = std::min(static_cast<double>(kv_length), block);
  const double sum = std::ceil(keys / 16) + 8 * blocks(kv_length) + 12;
  return (2 * static_cast<double>(head_dim + 3) * max_sum + (biased ? 6 : 4) * max_score + keys + sum) * unit;
}

/// Scores are off by (D + 3)·S; the shift by the maximum, the sum and its logarithm add the rest.
inline double lse_bound(Index head_dim, Index kv_length, double max_sum, double max_score, double lse,
                        bool biased = false) {
  const double keys = static_cast<double>(kv_length);
  const double sum = std::ceil(std::min(keys, block) / 16) + 4 * blocks(kv_length) + 8;
  return (static_cast<double>(head_dim + 3) * max_sum + (biased ? 3 : 2) * max_score + sum + 2 * std::log(keys + 1) +
          std::abs(lse)) *
         unit;
}

/// The bounds of a row with any options: of out relative to Σ p|v|, and of lse.
struct AttentionBounds {
  double relative, lse;
};

inline AttentionBounds attention_bounds(const RowReference& row, Index head_dim, Index kv_length,
                                        const AttentionOptions& o) {
  const bool biased = o.bias.data != nullptr || o.relative_bias.table.data != nullptr;
  const bool changed = o.softcap > 0 || o.alibi_slopes.data != nullptr;
  // Softcap: 1/softcap, the product, tanh (2 ULP) and the product again are 5 roundings of the
  // score; slope and sink are 1 each.
  const double more = (changed ? 6 * row.max_step : 0) + row.max_relative +
                      (o.sinks.data != nullptr && std::isfinite(row.lse) ? 8 + std::abs(row.lse) : 0);
  const double added = std::isfinite(more) ? more * unit : 0;
  return {attention_relative_bound(head_dim, kv_length, row.max_sum, row.max_score, biased) + 2 * added,
          lse_bound(head_dim, kv_length, row.max_sum, row.max_score, row.lse, biased) + added};
}

/// The comparison of an operation that came closest to its bound, which main() prints at the end.
struct Worst {
  double ratio = 0;
  std::string where;
  Index comparisons = 0;
};

inline std::map<std::string, Worst>& worst_ratios() {
  static std::map<std::string, Worst> ratios;
  return ratios;
}

/// Attention's largest |error| / (2^-23 · Σ p |v|), by the number of digits of the key length:
/// main() prints it too.
inline std::map<int, double>& worst_errors_of_attention() {
  static std::map<int, double> errors;
  return errors;
}

/// Compares the elements of one output. finish() fails if one is out of bounds, and if the
/// comparison is vacuous: no element, a bound not smaller than the data, an output of zeros.
class Comparison {
 public:
  enum class Kind {
    data,    ///< ordinary numbers
    special  ///< NaN, infinities, zeros: only that something was compared
  };

  Comparison(std::string op, std::string shape, std::uint64_t seed, Kind kind = Kind::data)
      : op_(std::move(op)), shape_(std::move(shape)), seed_(seed), kind_(kind) {}

  void add(std::initializer_list<Index> position, float actual, double exact, double bound) {
    ++count_;
    // Values that round beyond the largest float are infinities.
    const bool overflows = std::abs(exact) >= 0x1.ffffffp127;
    const double expected = overflows ? std::copysign(std::numeric_limits<double>::infinity(), exact) : exact;
    const double error = actual == expected ? 0 : std::abs(double{actual} - expected);
    bool good = error <= bound;
    if (std::isnan(expected)) good = std::isnan(actual);
    if (std::isinf(expected)) good = double{actual} == expected;
    if (!good && ++failures_ == 1) first_failure_ = describe(position, actual, expected, error, bound);
    if (!std::isfinite(expected)) return;
    zeros_ += actual == 0 && std::abs(expected) >= 0x1p-126 ? 1 : 0;
    max_expected_ = std::max(max_expected_, std::abs(expected));
    max_bound_ = std::max(max_bound_, bound);
    if (bound > 0 && error / bound > worst_) {
      worst_ = error / bound;
      worst_where_ = describe(position, actual, expected, error, bound);
    }
  }

  void set_kind(Kind kind) { kind_ = kind; }

  void finish() {
    Worst& worst = worst_ratios()[op_];
    worst.comparisons += count_;
    if (worst_ > worst.ratio) {
      worst.ratio = worst_;
      worst.where = worst_where_;
    }
    CHECK_MESSAGE(failures_ == 0, failures_, " of ", count_, " elements are wrong; the first: ", first_failure_);
    CHECK_MESSAGE(count_ > 0, op_, " ", shape_, ": nothing was compared");
    // A handful of elements may all be close to 0 by chance.
    if (kind_ == Kind::special || count_ < 16) return;
    CHECK_MESSAGE(max_bound_ < 1e-2 * max_expected_, op_, " ", shape_, ": the bound ", max_bound_,
                  " says nothing about data of ", max_expected_);
    CHECK_MESSAGE(2 * zeros_ < count_, op_, " ", shape_, ": ", zeros_, " of ", count_, " elements are 0");
  }

  [[nodiscard]] Index count() const { return count_; }

 private:
  [[nodiscard]] std::string describe(std::initializer_list<Index> position, float actual, double expected, double error,
                                     double bound) const {
    std::ostringstream text;
    text.precision(9);
    text << op_ << " " << shape_ << ", isa " << isa() << ", seed " << seed_ << ", index [";
    for (const Index& i : position) text << (&i == position.begin() ? "" : ", ") << i;
    text << "]: " << actual << ", expected " << expected << ", error " << error << ", bound " << bound;
    return text.str();
  }

  std::string op_, shape_, first_failure_, worst_where_;
  std::uint64_t seed_;
  Kind kind_;
  Index count_ = 0, failures_ = 0, zeros_ = 0;
  double worst_ = 0, max_expected_ = 0, max_bound_ = 0;
};

/// "[3, 4]"
template <std::size_t Rank>
std::string text_of(const std::array<Index, Rank>& shape) {
  std::ostringstream text;
  for (std::size_t axis = 0; axis < Rank; ++axis) text << (axis == 0 ? "[" : ", ") << shape[axis];
  text << "]";
  return text.str();
}

}  // namespace headlane::test
