// alibi_slopes against the paper; t5_bucket against logarithms and against integers, for every
// relevant distance; errors.
#include "support/illegal.hpp"
#include "support/reference_attention.hpp"

#include <doctest/doctest.h>
#include <headlane/position.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace headlane::test {
namespace {

constexpr Index least = std::numeric_limits<Index>::min(), most = std::numeric_limits<Index>::max();

// A natural number of any size, lowest digit first.
class Natural {
 public:
  // base^exponent
  static Natural power(Index base, Index exponent) {
    Natural result;
    for (Index i = 0; i < exponent; ++i) result.multiply(static_cast<std::uint64_t>(base));
    return result;
  }
  Natural operator*(const Natural& other) const {
    Natural result;
    result.digits_.assign(digits_.size() + other.digits_.size(), 0);
    for (std::size_t i = 0; i < digits_.size(); ++i) {
      std::uint64_t carry = 0;
      for (std::size_t j = 0; j < other.digits_.size() || carry != 0; ++j) {
        carry += result.digits_[i + j] + (j < other.digits_.size() ? digits_[i] * other.digits_[j] : 0);
        result.digits_[i + j] = carry & 0xffffffffu;
        carry >>= 32;
      }
    }
    while (result.digits_.size() > 1 && result.digits_.back() == 0) result.digits_.pop_back();
    return result;
  }
  bool operator>=(const Natural& other) const {
    if (digits_.size() != other.digits_.size()) return digits_.size() > other.digits_.size();
    for (std::size_t i = digits_.size(); i-- > 0;)
      if (digits_[i] != other.digits_[i]) return digits_[i] > other.digits_[i];
    return true;
  }

 private:
  void multiply(std::uint64_t factor) {  // less than 2^32
    std::uint64_t carry = 0;
    for (std::uint64_t& digit : digits_) {
      carry += digit * factor;
      digit = carry & 0xffffffffu;
      carry >>= 32;
    }
    if (carry != 0) digits_.push_back(carry);
  }
  std::vector<std::uint64_t> digits_{1};
};

// The least distance of each bucket of one direction: bucket single + k begins where
// (distance / single)^n >= (max_distance / single)^k, with n = buckets - single.
std::vector<Index> starts_of(Index buckets, Index max_distance) {
  const Index single = buckets / 2, n = buckets - single;
  std::vector<Index> starts;
  for (Index b = 0; b <= single; ++b) starts.push_back(b);
  for (Index k = 1; k < n; ++k) {
    const Natural limit = Natural::power(max_distance, k) * Natural::power(single, n - k);
    Index low = single, high = max_distance;  // low is too small
    while (high - low > 1) {
      const Index middle = low + (high - low) / 2;
      (Natural::power(middle, n) >= limit ? high : low) = middle;
    }
    starts.push_back(high);
  }
  return starts;
}

Index bucket_of(const std::vector<Index>& starts, Index magnitude) {
  Index bucket = 0;
  for (std::size_t b = 0; b < starts.size(); ++b)
    if (magnitude >= starts[b]) bucket = static_cast<Index>(b);
  return bucket;
}

TEST_CASE("t5_bucket against logarithms and against whole numbers") {
  Index wrong = 0, wrong_logarithms = 0, cases = 0;
  std::string first;
  // 9 or 10 to 128, 160 or 4096 among them, where the logarithms of integers come out just below.
  for (const Index buckets : {2, 3, 4, 6, 7, 8, 9, 10, 12, 16, 20, 32, 50, 64, 128, 256, 1024}) {
    for (const Index max_distance :
         {2, 3, 5, 9, 16, 17, 33, 64, 100, 128, 129, 160, 256, 512, 1000, 1999, 4096, 100000}) {
      for (const bool both : {true, false}) {
        const Index one_way = both ? buckets / 2 : buckets;
        if (one_way < 2 || (both && buckets % 2 != 0) || max_distance <= one_way / 2) continue;
        const std::vector<Index> starts = starts_of(one_way, max_distance);
        const Index step = buckets > 128 ? 7 : 1;
        for (Index distance = -2001; distance <= 2001; distance += step) {
          const Index behind = both && distance > 0 ? one_way : 0;
          const Index magnitude = distance <= 0 ? -distance : both ? distance : 0;
          const Index expected = behind + bucket_of(starts, magnitude);
          const Index actual = t5_bucket(distance, buckets, max_distance, both);
          ++cases;
          wrong_logarithms += t5_reference(distance, buckets, max_distance, both) != expected ? 1 : 0;
          if (actual == expected || ++wrong > 1) continue;
          first = "distance " + std::to_string(distance) + ", buckets " + std::to_string(buckets) + ", max_distance " +
                  std::to_string(max_distance) + (both ? ", both ways: " : ": ") + std::to_string(actual) +
                  ", expected " + std::to_string(expected);
        }
      }
    }
  }
  MESSAGE(cases, " distances");
  CHECK(cases > 500000);
  CHECK_MESSAGE(wrong == 0, first);
  CHECK_MESSAGE(wrong_logarithms == 0, "the oracle of attention");
}

// Distances with more bits than a double has; thresholds whose root is an integer, and others.
TEST_CASE("t5_bucket: thresholds of large distances, against whole numbers") {
  Index thresholds = 0;
  for (const Index max_distance : {Index{1} << 24, Index{0x7fffffff}, Index{1} << 31, (Index{1} << 32) - 1}) {
    for (const Index buckets : {3, 4, 8, 16, 17, 32, 33}) {
      const std::vector<Index> starts = starts_of(buckets, max_distance);
      for (std::size_t b = 1; b < starts.size(); ++b, ++thresholds) {
        CHECK(t5_bucket(-starts[b], buckets, max_distance, false) == bucket_of(starts, starts[b]));
        CHECK(t5_bucket(1 - starts[b], buckets, max_distance, false) == bucket_of(starts, starts[b] - 1));
      }
    }
  }
  CHECK(thresholds == 4 * (113 - 7));
  // Powers of two: bucket 16 + k begins at 16 · 2^(k · e / 16), exactly.
  for (const int e : {16, 32, 48}) {
    const Index max_distance = Index{16} << e;
    for (int k = 1; k < 16; ++k) {
      const Index start = Index{16} << (e / 16 * k);
      CHECK(t5_bucket(-start, 32, max_distance, false) == 16 + k);
      CHECK(t5_bucket(1 - start, 32, max_distance, false) == 15 + k);
    }
  }
}

// Worked out by hand from the formula, with 32 buckets up to 128.
TEST_CASE("t5_bucket: known values with T5's own sizes") {
  const std::vector<Index> distances{-200, -128, -127, -91, -90, -64, -16, -12, -8, -7,
                                     -1,   0,    1,    7,   8,   12,  16,  64,  128};
  const std::vector<Index> both{15, 15, 15, 15, 14, 14, 10, 9, 8, 7, 1, 0, 17, 23, 24, 25, 26, 30, 31};
  const std::vector<Index> one_way{31, 31, 31, 29, 29, 26, 16, 12, 8, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0};
  for (std::size_t i = 0; i < distances.size(); ++i) {
    CAPTURE(distances[i]);
    CHECK(t5_bucket(distances[i]) == both[i]);
    CHECK(t5_bucket(distances[i], 32, 128, false) == one_way[i]);
  }
}

TEST_CASE("t5_bucket: extreme distances") {
  for (const Index max_distance : {Index{128}, Index{1} << 31, Index{1} << 62, most}) {
    CHECK(t5_bucket(least, 32, max_distance) == 15);
    CHECK(t5_bucket(least + 1, 32, max_distance) == 15);
    CHECK(t5_bucket(most, 32, max_distance) == 31);
    CHECK(t5_bucket(least, 32, max_distance, false) == 31);
    CHECK(t5_bucket(least + 1, 32, max_distance, false) == 31);
    CHECK(t5_bucket(most, 32, max_distance, false) == 0);
    Index before = 31;
    for (Index distance = least; distance < -1; distance /= 2) {  // buckets do not grow towards 0
      const Index bucket = t5_bucket(distance, 32, max_distance, false);
      CHECK(bucket <= before);
      before = bucket;
    }
  }
}

TEST_CASE("t5_bucket: illegal sizes") {
  std::vector<Illegal> calls;
  const auto add_call = [&](Index buckets, Index max_distance, bool both, const std::vector<std::string>& words) {
    std::vector<std::string> all = words;
    all.emplace_back("t5_bucket: ");
    calls.push_back(
        {std::to_string(buckets) + " buckets to " + std::to_string(max_distance) + (both ? " both ways" : ""),
         [=] { static_cast<void>(t5_bucket(-5, buckets, max_distance, both)); }, all});
  };
  for (const bool both : {true, false}) {
    for (const Index buckets : {least, -huge, Index{-1}, Index{0}, Index{1}, Index{1025}, Index{1026}, huge, most})
      add_call(buckets, most, both, {std::to_string(buckets) + " buckets", both ? "4" : "2"});
    for (const Index distance : {least, Index{-1}, Index{0}, Index{both ? 7 : 15}, Index{both ? 8 : 16}})
      add_call(32, distance, both, {"max_distance is " + std::to_string(distance), both ? "8" : "16"});
  }
  for (const Index buckets : {2, 3, 5, 33})
    add_call(buckets, 1000, true, {std::to_string(buckets) + " buckets", "even"});
  check_illegal(calls, [] { return true; });
  MESSAGE(illegal_calls(), " illegal calls");
  // The least and the most that is legal.
  CHECK(t5_bucket(-5, 2, 2, false) == 1);
  CHECK(t5_bucket(5, 4, 2, true) == 3);
  CHECK(t5_bucket(-5, 1024, 513, false) == 5);
  CHECK(t5_bucket(5, 1024, 257, true) == 517);
}

std::vector<float> slopes_of(Index heads) {
  std::vector<float> slopes(static_cast<std::size_t>(heads), 7.0f);
  alibi_slopes({slopes.data(), {heads}});
  return slopes;
}

TEST_CASE("alibi_slopes: the paper's tables") {
  CHECK(slopes_of(1) == std::vector<float>{0x1p-8f});
  CHECK(slopes_of(2) == std::vector<float>{0x1p-4f, 0x1p-8f});
  CHECK(slopes_of(8) == std::vector<float>{0x1p-1f, 0x1p-2f, 0x1p-3f, 0x1p-4f, 0x1p-5f, 0x1p-6f, 0x1p-7f, 0x1p-8f});
  const float root = 0.70710678f;  // of 1/2
  const std::vector<float> sixteen = slopes_of(16), twelve = slopes_of(12), eight = slopes_of(8);
  for (std::size_t h = 0; h < 16; ++h)
    CHECK(sixteen[h] == std::ldexp(h % 2 == 0 ? root : 0.5f, -static_cast<int>(h / 2)));
  for (std::size_t h = 0; h < 12; ++h) CHECK(twelve[h] == (h < 8 ? eight[h] : sixteen[2 * (h - 8)]));
  CHECK(slopes_of(3) == std::vector<float>{0x1p-4f, 0x1p-8f, 0x1p-2f});
}

TEST_CASE("alibi_slopes: every number of heads, correctly rounded; strides") {
  Index wrong = 0;
  for (Index heads = 1; heads <= 300; ++heads) {
    Index below = 1;
    while (2 * below <= heads) below *= 2;
    const std::vector<float> slopes = slopes_of(heads);
    for (Index h = 0; h < heads; ++h) {
      const auto k = static_cast<long double>(h < below ? 2 * (h + 1) : 2 * (h - below) + 1);
      const long double exact = std::exp2(-4 * k / static_cast<long double>(below));
      wrong += slopes[static_cast<std::size_t>(h)] == static_cast<float>(exact) ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
  const Tensor<1> apart({12}, layouts()[5]);
  alibi_slopes(apart.view);
  CHECK(elements(apart.view) == slopes_of(12));
  CHECK(apart.surroundings_untouched());
}

}  // namespace
}  // namespace headlane::test
