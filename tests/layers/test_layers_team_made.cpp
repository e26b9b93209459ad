// Ranks of a team that make other layers than each other.
#include "support/differing_ranks.hpp"
#include "support/layer_case.hpp"
#include "support/team_case.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <functional>
#include <string>
#include <vector>

namespace headlane::test {
namespace {

const LayerSizes& sizes = differing_sizes;

/// A state dict that one rank has, and another with a change.
struct States {
  RandomState state = random_layer(sizes, 3, true);
  StateDict other = state.dict;
  std::vector<float> elements;

  /// The tensor with another last element.
  StateDict& change(const std::string& name) {
    other = state.dict;
    AnyView<const float>& tensor = other[name];
    elements.clear();
    if (tensor.rank == 1) append(elements, View<const float, 1>(tensor.data, {tensor.shape[0]}, {tensor.strides[0]}));
    else
      append(elements, View<const float, 2>(tensor.data, {tensor.shape[0], tensor.shape[1]},
                                            {tensor.strides[0], tensor.strides[1]}));
    elements.back() += 1;
    if (tensor.rank == 1) tensor = View<const float, 1>(elements.data(), {tensor.shape[0]});
    else tensor = View<const float, 2>(elements.data(), {tensor.shape[0], tensor.shape[1]});
    return other;
  }
  StateDict& erase(const std::string& name) {
    other = state.dict;
    other.erase(name);
    return other;
  }
};

TEST_CASE("ranks that make another layer: other options") {
  Differing all;
  const RandomState state = random_layer(sizes, 3, true);
  const auto transformer = [&](const char* what, const std::function<void(TransformerLayerOptions&)>& change,
                               const std::vector<std::string>& words = {}) {
    const auto options = [&, change](Team& team, bool other) {
      TransformerLayerOptions made = options_of(sizes, &team);
      if (other) change(made);
      return made;
    };
    all.add(what, [&](Team& team, bool other) { EncoderLayer(state.dict, "", options(team, other)); }, words);
    all.add(what, [&](Team& team, bool other) { DecoderLayer(state.dict, "", options(team, other)); }, words);
  };
  transformer("heads", [](auto& o) { o.attention.heads = o.attention.kv_heads = 2; }, {"heads 4", "heads 2"});
  transformer("kv_heads", [](auto& o) { o.attention.kv_heads = 2; }, {"an error, MultiHeadAttention"});
  transformer("scale", [](auto& o) { o.attention.scale = 0.25f; }, {"scale 0.25"});
  transformer("activation", [](auto& o) { o.activation = Activation::silu; }, {"activation "});
  transformer("norm", [](auto& o) { o.norm = NormKind::rms; }, {"norm "});
  transformer("norm_first", [](auto& o) { o.norm_first = true; }, {"norm_first 1"});
  transformer("eps", [](auto& o) { o.eps = 1e-6f; }, {"eps 1e-06"});
  transformer("eps refused", [](auto& o) { o.eps = -1; }, {"an error, Normalization: eps is -1"});
  transformer("weights", [](auto& o) { o.weights = DType::int8; }, {"weights float32", "weights int8"});
  transformer("activations", [](auto& o) { o.activations = DType::int8; }, {"an error, "});
  transformer("heads refused", [](auto& o) { o.attention.heads = 0; }, {"an error, MultiHeadAttention: heads is 0"});

  CHECK(all.count == 2 * 11);
}

TEST_CASE("ranks that make another part of a layer: other options") {
  Differing all;
  const RandomState state = random_layer(sizes, 3, true);
  const auto attention = [&](const MultiHeadAttentionOptions& one) {
    all.add("MultiHeadAttention", [&](Team& team, bool other) {
      MultiHeadAttentionOptions made = other ? one : sizes.attention();
      made.team = &team;
      MultiHeadAttention(state.dict, "self_attn.", made);
    });
  };
  attention({.heads = 2});
  attention({.heads = 4, .scale = 1.0f});
  attention({.heads = 4, .weights = DType::bfloat16});
  attention({.heads = 5});
  const auto feed_forward = [&](const FeedForwardOptions& one) {
    all.add("FeedForward", [&](Team& team, bool other) {
      FeedForwardOptions made = other ? one : FeedForwardOptions();
      made.team = &team;
      FeedForward(state.dict, "", made);
    });
  };
  feed_forward({.activation = Activation::gelu});
  feed_forward({.weights = DType::float16});
  feed_forward({.weights = DType::int8, .activations = DType::int8});
  feed_forward({.activation = static_cast<Activation>(77)});
  const auto linear = [&](DType weights, DType activations) {
    all.add("Linear", [&](Team& team, bool other) {
      const Linear layer(state.dict, "linear1.", other ? weights : DType::int8, other ? activations : DType::float32,
                         &team);
    });
  };
  linear(DType::float32, DType::float32);
  linear(DType::int8, DType::int8);
  linear(DType::bfloat16, DType::int8);
  const auto embedding = [&](const EmbeddingOptions& one) {
    all.add("Embedding", [&](Team& team, bool other) {
      EmbeddingOptions made = other ? one : EmbeddingOptions();
      made.team = &team;
      const Embedding layer(state.dict, "linear1.", made);
    });
  };
  embedding({.tied = true});
  embedding({.max_length = 5});
  embedding({.max_length = -5});
  embedding({.weights = DType::int8});
  CHECK(all.count == 15);
}

TEST_CASE("ranks that make another layer: other weights") {
  Differing all;
  States states;
  const StateDict& same = states.state.dict;
  const auto decoder = [&](const std::string& what, const std::vector<std::string>& words = {}) {
    all.add(
        what, [&](Team& team, bool other) { DecoderLayer(other ? states.other : same, "", options_of(sizes, &team)); },
        words);
  };
  for (const auto& [name, tensor] : same) {
    states.change(name);
    decoder("another element of " + name, {", " + name + " ", " with elements "});
    states.erase(name);
    decoder("without " + name);
  }
  // Packed beforehand, and only the own rows.
  const AnyView<const float>& any = same.find("linear2.weight")->second;
  const View<const float, 2> weight(any.data, {any.shape[0], any.shape[1]}, {any.strides[0], any.strides[1]});
  const PackedMatrix packed(weight.transposed(), {.type = DType::int8});
  states.erase("linear2.weight").packed["linear2.weight"] = &packed;
  decoder("packed", {"packed as int8"});
  all.add("own rows", [&](Team& team, bool other) {
    StateDict own = same;
    const Shares shares(&team, any.shape[0], columns_of_share);
    std::vector<float> rows{0};
    append(rows, weight.slice(0, shares.begin(), shares.end()));
    own["linear2.weight"] = View<const float, 2>(rows.data() + 1, {shares.own(), any.shape[1]});
    own.shares["linear2.weight"] = any.shape[0];
    DecoderLayer(other ? own : same, "", options_of(sizes, &team));
  });
  // Of packed weights, too, if all columns have a meaning.
  const RandomState wide = [] {
    RandomState made(5);
    made.matrix("weight", 64, 9);
    return made;
  }();
  const View<const float, 2> one(wide.dict.find("weight")->second.data, {64, 1}, {9, 1});
  const View<const float, 2> two(one.data + 1, {64, 1}, {9, 1});
  all.add("packed elements", [&](Team& team, bool other) {
    const PackedMatrix mine((other ? two : one).transposed());
    StateDict dict;
    dict.packed["weight"] = &mine;
    Linear(dict, "", DType::float32, DType::float32, &team);
  });
  // Strides and prefixes are a rank's own business.
  Differing::add_same("other strides", [&](Team& team, bool other) {
    const Tensor<2> copy({any.shape[0], any.shape[1]});
    test::copy<2>(weight, copy.view);
    StateDict dict;
    dict[other ? "other.weight" : "weight"] = other ? AnyView<const float>(View<const float, 2>(copy.view)) : any;
    Linear(dict, other ? "other." : "", DType::float32, DType::float32, &team);
  });
  CHECK(all.count == 39);
}

}  // namespace
}  // namespace headlane::test
