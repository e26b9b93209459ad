// Comparison of results bit by bit.
//
//   first_difference  where two views differ, in words
//   BitComparison     counts comparisons of whole outputs, and describes the first that differs
#pragma once

#include "support/data.hpp"

#include <doctest/doctest.h>
#include <headlane/runtime.hpp>

#include <sstream>
#include <string>

namespace headlane::test {

/// Empty if the views have the same shape and bits.
template <class A, class B, int Rank>
std::string first_difference(const View<A, Rank>& actual, const View<B, Rank>& expected) {
  if (actual.shape != expected.shape) return "the shapes differ";
  const Index different = different_bits(actual, expected);
  if (different == 0) return {};
  std::ostringstream text;
  text << different << " elements differ, the first at";
  bool found = false;
  for_each_position(actual.shape, [&](const auto& at) {
    const float x = actual.data[offset_of(at, actual.strides)], y = expected.data[offset_of(at, expected.strides)];
    if (found || bits_of(x) == bits_of(y)) return;
    for (const Index i : at) text << " " << i;
    text << ": " << x << ", expected " << y;
    found = true;
  });
  return text.str();
}

class BitComparison {
 public:
  template <class A, class B, int Rank>
  void add(const View<A, Rank>& actual, const View<B, Rank>& expected, const std::string& what) {
    ++count_;
    const std::string difference = first_difference(actual, expected);
    if (difference.empty() || ++failures_ > 1) return;
    std::ostringstream text;
    text << what << ", isa " << isa() << ", " << num_threads() << " threads: " << difference;
    first_ = text.str();
  }

  /// Fails if one comparison failed, or if there were fewer than `min_count`.
  void finish(const std::string& what, Index min_count) const {
    MESSAGE(what, ": ", count_, " comparisons by bits, ", failures_, " differ");
    CHECK_MESSAGE(failures_ == 0, first_);
    CHECK(count_ >= min_count);
  }

 private:
  Index count_ = 0, failures_ = 0;
  std::string first_;
};

}  // namespace headlane::test
