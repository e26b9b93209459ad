// Layers whose weights are stored in other types: the bits of float32 layers with the weights that
// state_dict() returns.
#include "support/layer_model.hpp"
#include "support/scope.hpp"
#include "support/stored_layers.hpp"

#include <doctest/doctest.h>
#include <headlane/gemm.hpp>

#include <algorithm>
#include <cmath>

namespace headlane::test {
namespace {

constexpr DType stored_types[] = {DType::bfloat16, DType::float16, DType::int8, DType::int8_group32,
                                  DType::int4_group32};

void check_same(const Tensor<3>& stored, const Tensor<3>& plain, const LayerSizes& s, DType type, const char* what) {
  CHECK_MESSAGE(different_bits(stored.view, plain.view) == 0, what, ", ", text_of(s), ", type ", static_cast<int>(type),
                ", isa ", isa());
}

TEST_CASE("layers: stored types give the bits of the weights of their state dict") {
  for (const LayerSizes& s : layer_sizes())
    for (const DType type : stored_types) {
      const RandomState state = random_layer(s, 1, true);
      TransformerLayerOptions plain = s.options(), stored = plain;
      stored.weights = type;
      Random random(2);
      const Tensor<3> x = random_tensor<3>({2, 15, s.d_model}, random),
                      memory = random_tensor<3>({2, 9, s.memory_width}, random);

      const DecoderLayer decoder(state.dict, "", stored);
      const OwnedStateDict owned = decoder.state_dict();
      const StateDict widened = views_of(owned);
      CHECK(widened.size() == state.dict.size());
      const auto compare = [&](const char* what, Index width, const auto& make, const auto& forward) {
        check_same(output(x, width, [&](auto in, auto out) { forward(make(state.dict, stored), in, out); }),
                   output(x, width, [&](auto in, auto out) { forward(make(widened, plain), in, out); }), s, type, what);
      };
      for_each_stored_layer(s, memory.view, compare);
    }
}

/// y = x · weightᵀ of integers, by gemm.
void product(const View<const float, 3>& x, const PackedMatrix& weight, const View<float, 2>& y) {
  gemm({x.data, {x.shape[0] * x.shape[1], x.shape[2]}}, weight, y, {.activations = DType::int8});
}

TEST_CASE("layers: activations of int8 are those of the products") {
  LayerSizes s{.d_model = 64, .d_ff = 96};
  s.memory_width = s.d_model;
  const RandomState state = random_layer(s, 1, true);
  Random random(2);
  const Tensor<3> x = random_tensor<3>({2, 7, s.d_model}, random), y({2, 7, s.d_ff}), same({2, 7, s.d_model});
  constexpr DType int8 = DType::int8;
  const Linear linear(state.dict, "linear1.", int8, int8);
  CHECK(linear.activations() == int8);
  linear.forward(x.view, y.view);
  const Tensor<2> expected({14, s.d_ff});
  gemm({x.view.data, {14, s.d_model}}, linear.weight(), expected.view, {.bias = linear.bias(), .activations = int8});
  CHECK(different_bits(View<float, 2>(y.view.data, {14, s.d_ff}), expected.view) == 0);

  const Embedding tied(state.dict, "linear1.", {.tied = true, .weights = int8, .activations = int8});
  tied.logits(x.view, y.view);
  product(x.view, linear.weight(), expected.view);
  CHECK(different_bits(View<float, 2>(y.view.data, {14, s.d_ff}), expected.view) == 0);

  // Layers differ from those with float32 activations, by no more than 8 bits let them.
  const Tensor<3> plain({2, 7, s.d_model});
  const auto close = [&](const char* what) {
    double largest = 0, difference = 0;
    for_each_position(plain.view.shape, [&](const auto& p) {
      const double a = plain.view(p[0], p[1], p[2]), b = same.view(p[0], p[1], p[2]);
      largest = std::max(largest, std::abs(a));
      difference = std::max(difference, std::abs(a - b));
    });
    CHECK_MESSAGE(difference > 0, what);
    CHECK_MESSAGE(difference < 0.05 * largest, what, ": ", difference, " of ", largest);
  };
  TransformerLayerOptions options = s.options();
  options.weights = int8;
  const DecoderLayer decoder(state.dict, "", options);
  options.activations = int8;
  const DecoderLayer integers(state.dict, "", options);
  decoder.forward(x.view, x.view, plain.view);
  integers.forward(x.view, x.view, same.view);
  close("DecoderLayer");
  CHECK(integers.self_attn().out_proj().activations() == int8);
  FeedForward(state.dict, "", {.weights = int8}).forward(x.view, plain.view);
  FeedForward(state.dict, "", {.weights = int8, .activations = int8}).forward(x.view, same.view);
  close("FeedForward");
  MultiHeadAttention(state.dict, "self_attn.", {.heads = s.heads, .weights = int8}).forward(x.view, plain.view);
  MultiHeadAttention(state.dict, "self_attn.", {.heads = s.heads, .weights = int8, .activations = int8})
      .forward(x.view, same.view);
  close("MultiHeadAttention");
}

TEST_CASE("layers: activations of int8 need weights of int8") {
  const LayerSizes s{.d_model = 64, .d_ff = 96};
  const RandomState state = random_layer(s, 1, false);
  constexpr DType int8 = DType::int8;
  const char* const refused =
      " is a PackedMatrix of float32; with activations int8 it must be a PackedMatrix of int8, int8_group32 or "
      "int4_group32";
  const auto refuses = [&](const auto& make, const std::string& name) {
    CHECK_THROWS_WITH_AS(make(), (name + refused).c_str(), std::invalid_argument);
  };
  refuses([&] { Linear(state.dict, "linear1.", DType::float32, int8); }, "Linear: weight");
  refuses([&] { FeedForward(state.dict, "", {.activations = int8}); }, "Linear: weight");
  refuses([&] { Embedding(state.dict, "linear1.", {.tied = true, .activations = int8}); }, "Embedding: weight");
  CHECK_THROWS_WITH_AS(Embedding(state.dict, "linear1.", {.weights = int8, .activations = int8}),
                       "Embedding: activations are those of logits(), and the embedding is not tied",
                       std::invalid_argument);
  refuses([&] { MultiHeadAttention(state.dict, "self_attn.", {.heads = s.heads, .activations = int8}); },
          "MultiHeadAttention: in_proj_weight");
}

TEST_CASE("layers: stored weights take the memory that their type says") {
  const LayerSizes s{.d_model = 64, .d_ff = 128};
  const RandomState state = random_layer(s, 1, false);
  const std::size_t whole = Linear(state.dict, "linear1.").weight().bytes();
  CHECK(whole == 64 * 128 * 4);
  CHECK(Linear(state.dict, "linear1.", DType::bfloat16).weight().bytes() == whole / 2);
  CHECK(Linear(state.dict, "linear1.", DType::int8).weight().bytes() == whole / 4 + 4 * 128);
  const MultiHeadAttention attention(state.dict, "self_attn.", {.heads = s.heads, .weights = DType::float16});
  CHECK(attention.in_proj().type() == DType::float16);
  CHECK(attention.out_proj().weight().type() == DType::float16);
  CHECK(FeedForward(state.dict, "", {.weights = DType::int8}).linear2().weight().type() == DType::int8);
}

TEST_CASE("Embedding: stored types, tied or not: the rows of its state dict") {
  RandomState state(1);
  state.matrix("weight", 70, 600);
  std::vector<Index> ids;
  for (Index i = 0; i < 70; ++i) ids.push_back(i * 31 % 70);
  for (const DType type : stored_types)
    for (const bool tied : {false, true}) {
      const Embedding layer(state.dict, "", {.tied = tied, .weights = type});
      const OwnedStateDict owned = layer.state_dict();
      const Tensor<3> y({1, 70, 600}), expected({1, 70, 600});
      layer.forward({ids.data(), {1, 70}}, y.view, {.scale = 0.7f});
      Embedding(views_of(owned)).forward({ids.data(), {1, 70}}, expected.view, {.scale = 0.7f});
      CHECK_MESSAGE(different_bits(y.view, expected.view) == 0, static_cast<int>(type), tied ? ", tied" : "");
      if (!tied) CHECK_THROWS_AS(layer.logits(y.view, expected.view), std::invalid_argument);
    }
}

}  // namespace
}  // namespace headlane::test
