// T5 and Bert with weights in other types: the bits of float32 where a type holds the numbers of
// the checkpoint, near it otherwise, and the same alone and in a batch.
#include "bert_calls.hpp"
#include "t5_case.hpp"

#include <doctest/doctest.h>
#include <headlane/models/t5.hpp>

#include <cmath>
#include <utility>
#include <vector>

namespace headlane::test {
namespace {

using models::T5;

/// |x - y| / |y|, in the Euclidean norm.
double distance(const std::vector<float>& x, const std::vector<float>& y) {
  REQUIRE(x.size() == y.size());
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    difference += std::pow(double{x[i]} - y[i], 2);
    size += std::pow(y[i], 2);
  }
  return std::sqrt(difference / size);
}

TEST_CASE("T5: stored weights") {
  const std::vector<Index> output{0, 3, 60, 14, 3, 9, 22, 0, 1, 45, 8};
  for (const T5Case& c : {T5Case{}, {.decoder_layers = 3, .gated = true, .own_head = true}}) {
    const Folder folder;
    write_t5(folder, c);
    const auto input = t5_inputs()[1];
    const auto logits = [&](DType weights) { return T5(folder.path(), {.weights = weights}).logits(input, output); };
    const std::vector<float> expected = logits(DType::float32);
    for (const DType type : {DType::bfloat16, DType::float16})  // multiples of 1/32 below 4
      CHECK(same_bits(logits(type), expected));
    const std::vector<float> stored = logits(DType::int8);
    CHECK(distance(stored, expected) > 0);
    CHECK(distance(stored, expected) < 0.1);
    const T5 integers(folder.path(), {.weights = DType::int8, .activations = DType::int8});
    const std::vector<float> rounded = integers.logits(input, output);
    CHECK(!same_bits(rounded, stored));
    CHECK(distance(rounded, expected) < 0.1);
    CHECK_THROWS_AS(T5(folder.path(), {.activations = DType::int8}), std::invalid_argument);
  }
}

TEST_CASE("Bert: stored weights") {
  BertCase given;
  given.make(1);
  const Loaded loaded(given);
  const Sentences ids = given.sentences({1, 7, 36, 2, 17}, 7);
  const std::vector<float> expected = embedded(*loaded.bert, ids);
  const Index d = given.d;
  struct Stored {
    DType weights, activations;
    double limit;
  };
  constexpr DType f32 = DType::float32, bf16 = DType::bfloat16, int8 = DType::int8;
  for (const auto& [type, activations, limit] : {Stored{DType::float16, f32, 2e-3},
                                                 {bf16, f32, 2e-2},
                                                 {int8, f32, 4e-2},
                                                 {int8, int8, 6e-2},
                                                 {bf16, bf16, 4e-2}}) {
    const Bert bert(loaded.folder.path(), {.weights = type, .activations = activations});
    const std::vector<float> rows = embedded(bert, ids);
    CHECK(distance(rows, expected) > 0);
    CHECK_MESSAGE(distance(rows, expected) < limit, static_cast<int>(type));
    for (Index s = 0; s < std::ssize(ids); ++s)
      CHECK(same_bits(embedded(bert, {ids[static_cast<std::size_t>(s)]}),
                      std::vector<float>(rows.begin() + d * s, rows.begin() + d * (s + 1))));
  }
}

}  // namespace
}  // namespace headlane::test
