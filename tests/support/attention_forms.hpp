// The forms of attention that take different ways through the library, for tests that say the same in two ways and compare by bits.
#pragma once

#include "support/attention_given.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace headlane::test {

struct Form {
  const char* name;
  AttentionSizes sizes;
  Layout keys{};
  int broadcast = -1;  ///< this axis of k has stride 0
};

inline const std::vector<Form>& forms() {
  static const Layout strided{"inner stride 2", Order::rows, 2};
  static const std::vector<Form> all{
      {"many rows", {2, 4, 2, 130, 300, 16, 32}},
      {"rows of several blocks", {1, 2, 2, 30, 1300, 16, 16}},
      {"one row", {2, 2, 2, 1, 1300, 64, 64}},
      {"a few rows", {2, 2, 2, 5, 1300, 64, 64}},
      {"one row of grouped heads", {2, 8, 2, 1, 1300, 64, 64}},
      {"one row of more heads than a tile", {1, 20, 1, 1, 1300, 16, 16}},
      {"one row of more heads than a task", {1, 130, 1, 1, 1300, 16, 16}},
      {"head_dim 20", {2, 4, 2, 30, 600, 20, 24}},
      {"one row, head_dim 20", {2, 6, 2, 1, 600, 20, 24}},
      {"strided keys", {2, 4, 2, 20, 600, 16, 16}, strided},
      {"one row, strided keys", {2, 4, 2, 1, 600, 16, 16}, strided},
      {"transposed keys", {2, 2, 2, 3, 600, 16, 16}, {"transposed", Order::columns}},
      {"reversed keys", {2, 2, 2, 3, 600, 16, 16}, {"reversed", Order::rows, 1, 0, true}},
      {"all keys one", {2, 2, 2, 3, 600, 16, 16}, {}, 2},
      {"one row, all keys one", {2, 4, 2, 1, 600, 16, 16}, {}, 2},
      {"keys of one number", {2, 2, 2, 3, 600, 16, 16}, {}, 3},
      {"one key head", {2, 4, 4, 2, 600, 16, 16}, {}, 1}};
  return all;
}

struct FormTensors : AttentionTensors {
  FormTensors(const Form& form, const AttentionSizes& s, std::uint64_t seed)
      : AttentionTensors(s, seed, {}, form.keys, {}, {}) {
    if (form.broadcast >= 0) k.view.strides[static_cast<std::size_t>(form.broadcast)] = 0;
  }
};

inline Index& comparisons_by_bits() {
  static Index count = 0;
  return count;
}

/// Checks at the end of a block that there were as many comparisons in it.
class ExpectComparisons {
 public:
  explicit ExpectComparisons(Index count) : end_(comparisons_by_bits() + count) {}
  ExpectComparisons(const ExpectComparisons&) = delete;
  ExpectComparisons& operator=(const ExpectComparisons&) = delete;
  ~ExpectComparisons() { CHECK(comparisons_by_bits() == end_); }

 private:
  Index end_;
};

/// Forms whose keys and values are no broadcast.
inline Index plain_forms() {
  return std::count_if(forms().begin(), forms().end(), [](const Form& form) { return form.broadcast < 0; });
}

template <class A, class B, int Rank>
void check_bits(const View<A, Rank>& actual, const View<B, Rank>& expected, const std::string& text,
                std::uint64_t seed) {
  ++comparisons_by_bits();
  const Index different = different_bits(actual, expected);
  CHECK(different == 0);  // an assertion for each comparison, so that a test that compares nothing has none
  if (different == 0) return;
  std::ostringstream where;
  bool found = false;
  for_each_position(actual.shape, [&](const auto& p) {
    const float x = actual.data[offset_of(p, actual.strides)], y = expected.data[offset_of(p, expected.strides)];
    if (found || bits_of(x) == bits_of(y)) return;
    found = true;
    for (const Index i : p) where << " " << i;
    where << ": " << x << ", expected " << y;
  });
  FAIL_CHECK(text << ", isa " << isa() << ", seed " << seed << ": " << different << " elements differ, the first at"
                  << where.str());
}

inline void check_bits(const AttentionTensors& actual, const AttentionTensors& expected, const std::string& text,
                       std::uint64_t seed) {
  check_bits(actual.out.view, expected.out.view, text, seed);
  check_bits(actual.lse.view, expected.lse.view, text + ", lse", seed);
}

}  // namespace headlane::test
