// Layers whose weights are stored in other types: the bits of float32 layers with the weights that
// state_dict() returns.
#include "support/layer_model.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>

namespace headlane::test {
namespace {

constexpr DType stored_types[] = {DType::bfloat16, DType::float16, DType::int8};

/// The output of f(x, y) as a new tensor.
template <class F>
Tensor<3> output(const Tensor<3>& x, Index width, const F& f) {
  Tensor<3> y({x.view.shape[0], x.view.shape[1], width});
  f(x.view, y.view);
  return y;
}

void check_same(const Tensor<3>& stored, const Tensor<3>& plain, const LayerSizes& s, DType type, const char* what) {
  CHECK_MESSAGE(different_bits(stored.view, plain.view) == 0, what, ", ", text_of(s), ", type ", static_cast<int>(type),
                ", isa ", isa());
}

TEST_CASE("layers: stored types give the bits of the weights of their state dict") {
  for (const LayerSizes& s : layer_sizes())
    for (const DType type : stored_types) {
      const RandomState state = random_layer(s, 1, true);
      TransformerLayerOptions plain = s.options(), stored = plain;
      stored.weights = stored.attention.weights = type;
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
      using Options = TransformerLayerOptions;
      const auto forward = [](const auto& layer, auto in, auto out) { layer.forward(in, out); };
      compare(
          "DecoderLayer", s.d_model, [](const StateDict& d, const Options& o) { return DecoderLayer(d, "", o); },
          [&](const DecoderLayer& layer, auto in, auto out) { layer.forward(in, memory.view, out); });
      compare(
          "EncoderLayer", s.d_model, [](const StateDict& d, const Options& o) { return EncoderLayer(d, "", o); },
          forward);
      compare(
          "FeedForward", s.d_model,
          [](const StateDict& d, const Options& o) { return FeedForward(d, "", {.weights = o.weights}); }, forward);
      compare(
          "Linear", s.d_ff, [](const StateDict& d, const Options& o) { return Linear(d, "linear1.", o.weights); },
          forward);
      compare(
          "Embedding::logits", s.d_ff,
          [](const StateDict& d, const Options& o) {
            return Embedding(d, "linear1.", {.tied = true, .weights = o.weights});
          },
          [](const Embedding& layer, auto in, auto out) { layer.logits(in, out); });
    }
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
