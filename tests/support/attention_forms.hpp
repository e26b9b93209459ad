// Problems that take different paths through attention, for tests that compare equivalent calls bit
// by bit.
#pragma once

#include "support/attention_options.hpp"
#include "support/bit_comparison.hpp"
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
  static const Layout strided{.name = "inner stride 2", .step = 2};
  static const std::vector<Form> all{
      {.name = "many rows",
       .sizes = {.batch = 2,
                 .q_heads = 4,
                 .kv_heads = 2,
                 .q_length = 130,
                 .kv_length = 300,
                 .head_dim = 16,
                 .value_dim = 32}},
      {.name = "rows of several blocks", .sizes = {.q_heads = 2, .q_length = 30, .kv_length = 1300, .head_dim = 16}},
      {.name = "one row", .sizes = {.batch = 2, .q_heads = 2, .kv_length = 1300}},
      {.name = "a few rows", .sizes = {.batch = 2, .q_heads = 2, .q_length = 5, .kv_length = 1300}},
      {.name = "one row of grouped heads", .sizes = {.batch = 2, .q_heads = 8, .kv_heads = 2, .kv_length = 1300}},
      {.name = "one row of more heads than a tile",
       .sizes = {.q_heads = 20, .kv_heads = 1, .kv_length = 1300, .head_dim = 16}},
      {.name = "one row of more heads than a task",
       .sizes = {.q_heads = 130, .kv_heads = 1, .kv_length = 1300, .head_dim = 16}},
      {.name = "head_dim 20",
       .sizes = {.batch = 2,
                 .q_heads = 4,
                 .kv_heads = 2,
                 .q_length = 30,
                 .kv_length = 600,
                 .head_dim = 20,
                 .value_dim = 24}},
      {.name = "one row, head_dim 20",
       .sizes = {.batch = 2, .q_heads = 6, .kv_heads = 2, .kv_length = 600, .head_dim = 20, .value_dim = 24}},
      {.name = "strided keys",
       .sizes = {.batch = 2, .q_heads = 4, .kv_heads = 2, .q_length = 20, .kv_length = 600, .head_dim = 16},
       .keys = strided},
      {.name = "one row, strided keys",
       .sizes = {.batch = 2, .q_heads = 4, .kv_heads = 2, .kv_length = 600, .head_dim = 16},
       .keys = strided},
      {.name = "transposed keys",
       .sizes = {.batch = 2, .q_heads = 2, .q_length = 3, .kv_length = 600, .head_dim = 16},
       .keys = {"transposed", Order::columns}},
      {.name = "reversed keys",
       .sizes = {.batch = 2, .q_heads = 2, .q_length = 3, .kv_length = 600, .head_dim = 16},
       .keys = {.name = "reversed", .reversed = true}},
      {.name = "all keys one",
       .sizes = {.batch = 2, .q_heads = 2, .q_length = 3, .kv_length = 600, .head_dim = 16},
       .broadcast = 2},
      {.name = "one row, all keys one",
       .sizes = {.batch = 2, .q_heads = 4, .kv_heads = 2, .kv_length = 600, .head_dim = 16},
       .broadcast = 2},
      {.name = "keys of one number",
       .sizes = {.batch = 2, .q_heads = 2, .q_length = 3, .kv_length = 600, .head_dim = 16},
       .broadcast = 3},
      {.name = "one key head",
       .sizes = {.batch = 2, .q_heads = 4, .q_length = 2, .kv_length = 600, .head_dim = 16},
       .broadcast = 1}};
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

/// One assertion for each comparison, so that a test that compares nothing has none.
template <class A, class B, int Rank>
void check_bits(const View<A, Rank>& actual, const View<B, Rank>& expected, const std::string& text,
                std::uint64_t seed) {
  ++comparisons_by_bits();
  const std::string difference = first_difference(actual, expected);
  CHECK_MESSAGE(difference.empty(), text, ", isa ", isa(), ", seed ", seed, ": ", difference);
}

inline void check_bits(const AttentionTensors& actual, const AttentionTensors& expected, const std::string& text,
                       std::uint64_t seed) {
  check_bits(actual.out.view, expected.out.view, text, seed);
  check_bits(actual.lse.view, expected.lse.view, text + ", lse", seed);
}

}  // namespace headlane::test
