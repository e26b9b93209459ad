// Padding in layers: NaN in it never propagates; padded, concatenated and single sequences have the
// same bits; sizes of 0. Embedding takes ids instead of rows.
#include "support/layer_model.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>

namespace headlane::test {
namespace {

constexpr std::uint32_t signalling = 0x7fa00001u;

View<const Index, 1> view_of(const std::vector<Index>& v) { return {v.data(), {static_cast<Index>(v.size())}}; }

TEST_CASE("layers: padded, variable-length and alone, the same bits; signalling NaN in the padding") {
  const std::vector<Index> lengths{13, 0, 1, 30};
  // Two rows of no sequence in front, three behind.
  const std::vector<Index> starts{2, 15, 15, 16, 46};
  for (const LayerSizes& s : layer_sizes()) {
    for (const AnyLayer& layer : all_layers(s, 1)) {
      if (layer.cross) continue;
      Random random(3);
      const Tensor<3> padded({4, 30, layer.in}), varlen({1, 49, layer.in});
      for_each(padded.view, [](float& e) { e = std::bit_cast<float>(signalling); });
      for_each(varlen.view, [](float& e) { e = std::bit_cast<float>(signalling); });
      for (Index b = 0; b < 4; ++b) {
        const auto at = static_cast<std::size_t>(b);
        const View<float, 2> rows = padded.view.select(0, b).slice(0, 0, lengths[at]);
        fill_normal(rows, random);
        copy<2>(rows, varlen.view.select(0, 0).slice(0, starts[at], starts[at + 1]));
      }
      const Tensor<3> of_padded({4, 30, layer.out}), of_varlen({1, 49, layer.out});
      for (const bool query_lengths : {false, true}) {
        AttentionOptions options{.causal = s.bias, .key_lengths = view_of(lengths)};
        if (query_lengths) options.query_lengths = options.key_lengths;
        layer.forward(padded.view, {}, of_padded.view, options);
        layer.forward(varlen.view, {}, of_varlen.view,
                      {.causal = s.bias, .query_starts = view_of(starts), .key_starts = view_of(starts)});
        for (Index b = 0; b < 4; ++b) {
          const auto at = static_cast<std::size_t>(b);
          const Tensor<3> alone({1, lengths[at], layer.out});
          layer.forward(padded.view.slice(0, b, b + 1).slice(1, 0, lengths[at]), {}, alone.view, {.causal = s.bias});
          for_each(alone.view, [](float e) { CHECK(std::isfinite(e)); });
          CHECK_MESSAGE(
              different_bits(of_padded.view.select(0, b).slice(0, 0, lengths[at]), alone.view.select(0, 0)) == 0,
              layer.name, ", ", text_of(s));
          CHECK_MESSAGE(different_bits(of_varlen.view.select(0, 0).slice(0, starts[at], starts[at + 1]),
                                       alone.view.select(0, 0)) == 0,
                        layer.name, " variable-length, ", text_of(s));
        }
      }
    }
  }
}

// Rows of no sequence and padded queries: what attention gives there is 0, so that a layer's result
// does not depend on earlier calls.
TEST_CASE("layers: rows of no sequence are as padding: attention gives 0 there") {
  const std::vector<Index> starts{3, 10, 17}, lengths{0};
  for (const LayerSizes& s : layer_sizes()) {
    for (const AnyLayer& layer : all_layers(s, 1)) {
      if (!layer.self || layer.cross) continue;
      Random random(4);
      const Tensor<3> x = random_tensor<3>({1, 20, layer.in}, random),
                      other = random_tensor<3>({1, 20, layer.in}, random), y({1, 20, layer.out}),
                      expected({1, 20, layer.out});
      const AttentionOptions none{.query_lengths = view_of(lengths)},
          varlen{.query_starts = view_of(starts), .key_starts = view_of(starts)};
      layer.forward(x.view, {}, expected.view, none);
      layer.forward(other.view, {}, y.view, {});  // leaves something in scratch memory
      layer.forward(x.view, {}, y.view, varlen);
      for (const auto& [first, end] : {std::pair<Index, Index>{0, 3}, {17, 20}})
        CHECK_MESSAGE(different_bits(y.view.slice(1, first, end), expected.view.slice(1, first, end)) == 0, layer.name);
    }
  }
}

TEST_CASE("cross-attention: padding of the memory is not read") {
  const std::vector<Index> lengths{5, 0, 9};
  for (const LayerSizes& s : layer_sizes()) {
    const RandomState state = random_layer(s, 5, true);
    Random random(6);
    const Tensor<3> x = random_tensor<3>({3, 8, s.d_model}, random), memory({3, 9, s.memory_width}), y(x.view.shape);
    for_each(memory.view, [](float& e) { e = std::bit_cast<float>(signalling); });
    for (Index b = 0; b < 3; ++b)
      fill_normal(memory.view.select(0, b).slice(0, 0, lengths[static_cast<std::size_t>(b)]), random);
    const DecoderLayer decoder(state.dict, "", s.options());
    decoder.forward(x.view, memory.view, y.view, {.causal = true}, {.key_lengths = view_of(lengths)});
    for_each(y.view, [](float e) { CHECK(std::isfinite(e)); });
    for (Index b = 0; b < 3; ++b) {
      const Tensor<3> alone({1, 8, s.d_model});
      decoder.forward(x.view.slice(0, b, b + 1),
                      memory.view.slice(0, b, b + 1).slice(1, 0, lengths[static_cast<std::size_t>(b)]), alone.view);
      CHECK(different_bits(alone.view.select(0, 0), y.view.select(0, b)) == 0);
    }
  }
}

TEST_CASE("layers: NaN and infinity stay in their row, where rows do not attend to each other") {
  for (const LayerSizes& s : layer_sizes()) {
    for (const AnyLayer& layer : all_layers(s, 1)) {
      Random random(7);
      const Tensor<3> x = random_tensor<3>({2, 6, layer.in}, random),
                      memory = random_tensor<3>({2, 4, s.memory_width}, random), clean({2, 6, layer.out}),
                      y({2, 6, layer.out});
      const AttentionOptions causal{.causal = true};
      const AttentionOptions options = layer.self ? causal : AttentionOptions{};
      layer.forward(x.view, memory.view, clean.view, options);
      x.view(1, 3, layer.in / 2) = nan;
      layer.forward(x.view, memory.view, y.view, options);
      CHECK(different_bits(y.view.select(0, 0), clean.view.select(0, 0)) == 0);
      CHECK_MESSAGE(different_bits(y.view.slice(1, 0, 3), clean.view.slice(1, 0, 3)) == 0, layer.name);
      if (!layer.self) CHECK(different_bits(y.view.slice(1, 4, 6), clean.view.slice(1, 4, 6)) == 0);
      for (Index j = 0; j < layer.out; ++j)
        CHECK_MESSAGE((std::isnan(y.view(1, 3, j)) || s.layer.activation == Activation::relu), layer.name);
    }
  }
}

TEST_CASE("layers: batches, lengths and memories of 0; layers without features") {
  for (const LayerSizes& s : layer_sizes()) {
    for (const AnyLayer& layer : all_layers(s, 1)) {
      for (const auto& [batch, length, keys] : {std::array<Index, 3>{0, 4, 3}, {2, 0, 3}, {0, 0, 0}, {2, 4, 0}}) {
        Random random(8);
        const Tensor<3> x = random_tensor<3>({batch, length, layer.in}, random),
                        memory = random_tensor<3>({batch, keys, s.memory_width}, random), y({batch, length, layer.out});
        layer.forward(x.view, memory.view, y.view, {});
        for_each(y.view, [](float e) { CHECK(std::isfinite(e)); });
        CHECK(y.surroundings_untouched());
        if (batch * length > 0) continue;
        layer.forward({nullptr, x.view.shape}, {nullptr, {batch, 0, s.memory_width}}, {nullptr, y.view.shape}, {});
      }
    }
  }
  // Without a hidden layer only linear2's bias is left; Linear without inputs gives its bias.
  RandomState state = random_layer({.d_ff = 0}, 9, false);
  state.vector("linear2.bias", 24);
  state.matrix("none.weight", 5, 0);
  state.vector("none.bias", 5);
  Random random(10);
  const Tensor<3> x = random_tensor<3>({2, 3, 24}, random), y(x.view.shape), nothing({2, 3, 0}), biases({2, 3, 5});
  FeedForward(state.dict, "").forward(x.view, y.view);
  Linear(state.dict, "none.").forward(nothing.view, biases.view);
  for (Index j = 0; j < 24; ++j)
    CHECK(y.view(1, 2, j) == state.dict.at("linear2.bias").data[j * state.dict.at("linear2.bias").strides[0]]);
  for (Index j = 0; j < 5; ++j)
    CHECK(biases.view(1, 2, j) == state.dict.at("none.bias").data[j * state.dict.at("none.bias").strides[0]]);
}

}  // namespace
}  // namespace headlane::test
