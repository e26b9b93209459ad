// Each layer against the formulas in double, with random sizes, layouts and options of attention.
#include "support/layer_model.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>

namespace headlane::test {
namespace {

namespace oracle = layer_oracle;

constexpr Activation activations[] = {Activation::none, Activation::relu,    Activation::gelu, Activation::gelu_tanh,
                                      Activation::silu, Activation::sigmoid, Activation::tanh, Activation::erf};

Tensor<3> random_rows(Index batch, Index length, Index width, Random& random) {
  Tensor<3> x({batch, length, width}, random.pick(layouts()));
  fill_normal(x.view, random);
  return x;
}

LayerSizes random_sizes(Random& random) {
  const auto coin = [&] { return random.integer(0, 1) == 0; };
  const auto kind = [&](Index i) { return activations[static_cast<std::size_t>(i)]; };
  LayerSizes s;
  s.kv_heads = random.integer(1, 3);
  s.heads = s.kv_heads * random.integer(1, 3);
  s.head_dim = random.pick(std::vector<Index>{2, 5, 8, 16, 17, 33});
  s.d_model = coin() && s.heads * s.head_dim <= 48 ? s.heads * s.head_dim : random.integer(6, 40);
  s.memory_width = coin() ? s.d_model : random.integer(1, 50);
  s.d_ff = random.pick(std::vector<Index>{1, 7, 32, 65, 130});
  s.bias = coin();
  s.gated = coin();
  s.layer = {.activation = kind(random.integer(0, 7)),
             .norm = coin() ? NormKind::layer : NormKind::rms,
             .norm_first = coin(),
             .eps = coin() ? 1e-5f : 1e-2f};
  return s;
}

/// Fewer where a step of the library takes long.
std::uint64_t rounds(std::uint64_t n) { return slow_isa() ? n / 3 : n; }

TEST_CASE("Linear, Normalization and logits against the formulas") {
  for (std::uint64_t seed = 1; seed <= rounds(60); ++seed) {
    Random random(seed);
    const LayerSizes s = random_sizes(random);
    const RandomState state = random_layer(s, seed, false, "a.b.");
    const Index batch = random.integer(1, 3), length = random.integer(1, 40);
    const Tensor<3> x = random_rows(batch, length, s.d_model, random);
    const Bounded in(x.view);
    const Tensor<3> wide({batch, length, s.d_ff}, random.pick(layouts())),
        residual = random_rows(batch, length, s.d_ff, random), y({batch, length, s.d_model}, random.pick(layouts()));

    const Linear linear(state.dict, "a.b.linear1.");
    CHECK(linear.in_features() == s.d_model);
    CHECK(linear.out_features() == s.d_ff);
    const bool with = seed % 2 == 0;
    LinearOptions options{.activation = s.layer.activation};
    if (with) options.residual = residual.view;
    linear.forward(x.view, wide.view, options);
    Bounded exact = oracle::linear(in, state.dict, "a.b.linear1.weight", "a.b.linear1.bias");
    oracle::activate(exact, s.layer.activation);
    if (with) exact = oracle::add(exact, Bounded(residual.view));
    compare_layer("Linear", wide.view, exact, text_of(s), seed);
    CHECK(wide.surroundings_untouched());

    const Normalization norm(state.dict, "a.b.norm1.", s.layer.norm, s.layer.eps);
    CHECK(norm.size() == s.d_model);
    norm.forward(x.view, y.view);
    exact = oracle::norm(in, state.dict, "a.b.norm1.", s.layer.norm, s.layer.eps);
    compare_layer("Normalization", y.view, exact, text_of(s), seed);

    const Embedding tied(state.dict, "a.b.linear1.", {.tied = true});
    tied.logits(x.view, wide.view);
    exact = oracle::linear(in, state.dict, "a.b.linear1.weight", "none");
    compare_layer("Embedding::logits", wide.view, exact, text_of(s), seed);
  }
}

TEST_CASE("FeedForward against the formulas: every activation, gated or not") {
  for (std::uint64_t seed = 1; seed <= rounds(96); ++seed) {
    Random random(seed);
    LayerSizes s = random_sizes(random);
    s.layer.activation = activations[seed % 8];
    s.gated = seed % 16 < 8;
    const RandomState state = random_layer(s, seed, false);
    const FeedForward layer(state.dict, "", {.activation = s.layer.activation});
    CHECK(layer.d_model() == s.d_model);
    CHECK(layer.d_ff() == s.d_ff);
    const Tensor<3> x = random_rows(random.integer(1, 3), random.integer(1, 20), s.d_model, random);
    const Tensor<3> y(x.view.shape, random.pick(layouts()));
    layer.forward(x.view, y.view);
    compare_layer("FeedForward", y.view, oracle::feed_forward(Bounded(x.view), state.dict, "", s.layer.activation),
                  text_of(s), seed);
    CHECK(y.surroundings_untouched());
  }
}

// With d_ff = 12000 the hidden layer has room for 96 rows, with 5000 for 192.
TEST_CASE("FeedForward against the formulas: more rows than the hidden layer has room for") {
  for (const Index d_ff : {5000, 12000}) {
    if (slow_isa() && d_ff > 5000) continue;
    Random random(static_cast<std::uint64_t>(d_ff));
    const LayerSizes s{.d_model = 5, .d_ff = d_ff, .gated = d_ff == 5000};
    const RandomState state = random_layer(s, 3, false);
    const FeedForward layer(state.dict, "");
    const Tensor<3> x = random_rows(1, 199, 5, random), y(x.view.shape);
    layer.forward(x.view, y.view);
    compare_layer("FeedForward", y.view, oracle::feed_forward(Bounded(x.view), state.dict, "", Activation::relu),
                  text_of(s), 3);
  }
}

TEST_CASE("MultiHeadAttention, EncoderLayer, DecoderLayer against the formulas") {
  for (std::uint64_t seed = 1; seed <= rounds(150); ++seed) {
    Random random(seed);
    const LayerSizes s = random_sizes(random);
    const RandomState state = random_layer(s, seed, true, "layers.0.", 0.2f);
    const auto masking = static_cast<Masking>(seed % static_cast<std::uint64_t>(Masking::count)),
               memory_masking = static_cast<Masking>(random.integer(0, masking == Masking::varlen ? 0 : 4));
    const Index batch = masking == Masking::varlen ? 1 : random.integer(1, 3);
    const Index length = random.integer(1, 30), memory_length = random.integer(masking == Masking::varlen ? 1 : 0, 30);
    const Tensor<3> x = random_rows(batch, length, s.d_model, random),
                    memory = random_rows(batch, memory_length, s.memory_width, random),
                    y(x.view.shape, random.pick(layouts()));
    const Bounded in(x.view), from(memory.view);
    const MaskingCase self(masking, batch, length, length, random),
        cross(memory_masking, batch, length, memory_length, random);
    const AttentionOptions of_self = self.with_heads(s.heads), of_cross = cross.with_heads(s.heads);
    const std::string text = text_of(s) + ", self " + std::to_string(static_cast<int>(masking)) + ", cross " +
                             std::to_string(static_cast<int>(memory_masking)) + ", memory " +
                             std::to_string(memory_length);
    const auto untouched = [&] { CHECK_MESSAGE(y.surroundings_untouched(), text); };

    const MultiHeadAttention attention(state.dict, "layers.0.self_attn.", s.attention());
    CHECK(attention.heads() == s.heads);
    CHECK(attention.kv_heads() == s.kv_heads);
    CHECK(attention.head_dim() == s.head_dim);
    CHECK(attention.d_model() == s.d_model);
    attention.forward(x.view, y.view, of_self);
    const std::string prefix = "layers.0.self_attn.", to_memory = "layers.0.multihead_attn.";
    compare_layer("MultiHeadAttention", y.view, oracle::multi_head(in, in, state.dict, prefix, s, self.visible), text,
                  seed);
    untouched();
    const MultiHeadAttention crossing(state.dict, to_memory, s.attention());
    crossing.forward(x.view, memory.view, y.view, of_cross);
    compare_layer("MultiHeadAttention, cross", y.view,
                  oracle::multi_head(in, from, state.dict, to_memory, s, cross.visible), text, seed);
    untouched();
    const EncoderLayer encoder(state.dict, "layers.0.", s.options());
    CHECK(encoder.d_model() == s.d_model);
    encoder.forward(x.view, y.view, of_self);
    compare_layer("EncoderLayer", y.view, oracle::encoder(in, state.dict, "layers.0.", s, self.visible), text, seed);
    untouched();
    const DecoderLayer decoder(state.dict, "layers.0.", s.options());
    CHECK(decoder.d_model() == s.d_model);
    decoder.forward(x.view, memory.view, y.view, of_self, of_cross);
    compare_layer("DecoderLayer", y.view,
                  oracle::decoder(in, from, state.dict, "layers.0.", s, self.visible, cross.visible), text, seed);
    untouched();
  }
}

/// state_dict() is what the layer was made of, but that projections from rows of one width come as
/// one.
template <class Layer, class... Options>
void check_state(const StateDict& state, const std::string& prefix, const Options&... options) {
  const Layer layer(state, prefix, options...);
  const OwnedStateDict own = layer.state_dict(prefix);
  CHECK(!own.empty());
  for (const auto& [name, tensor] : own) {
    std::vector<float> wanted;
    Index rows = 0;
    const auto append = [&](const std::string& part) {
      REQUIRE_MESSAGE(state.contains(part), part);
      const AnyView<const float>& view = state.at(part);
      const Index columns = view.rank == 1 ? 1 : view.shape[1];
      for (Index i = 0; i < view.shape[0]; ++i)
        for (Index j = 0; j < columns; ++j) wanted.push_back(view.data[i * view.strides[0] + j * view.strides[1]]);
      rows += view.shape[0];
    };
    const std::string joint = "in_proj_weight";
    if (state.contains(name) || !name.ends_with(joint)) append(name);
    else
      for (const char* which : {"q", "k", "v"})
        append(name.substr(0, name.size() - joint.size()) + which + "_proj_weight");
    CHECK_MESSAGE(tensor.shape[0] == rows, name);
    CHECK_MESSAGE(tensor.data == wanted, name);
  }
  const Layer again(views_of(own), prefix, options...);  // nothing is missing
  CHECK(again.state_dict() == layer.state_dict());
}

TEST_CASE("state_dict: what a layer was made of") {
  for (std::uint64_t seed = 1; seed <= rounds(60); ++seed) {
    Random random(seed);
    const LayerSizes s = random_sizes(random);
    const RandomState state = random_layer(s, seed, true, "layers.0.", 0.2f);
    check_state<MultiHeadAttention>(state.dict, "layers.0.self_attn.", s.attention());
    check_state<MultiHeadAttention>(state.dict, "layers.0.multihead_attn.", s.attention());
    check_state<FeedForward>(state.dict, "layers.0.", FeedForwardOptions{.activation = s.layer.activation});
    check_state<Linear>(state.dict, "layers.0.linear2.");
    check_state<Embedding>(state.dict, "layers.0.linear1.", EmbeddingOptions{.tied = seed % 2 == 0});
    check_state<Normalization>(state.dict, "layers.0.norm1.", s.layer.norm, s.layer.eps);
    check_state<EncoderLayer>(state.dict, "layers.0.", s.options());
    check_state<DecoderLayer>(state.dict, "layers.0.", s.options());
  }
}

// The bounds of a whole layer grow with each step: here they still tell, and the defaults are what
// they say.
TEST_CASE("layers of ordinary sizes: bounds far below the data; defaults") {
  const LayerSizes s{.d_model = 32, .heads = 4, .kv_heads = 4, .head_dim = 8, .memory_width = 32, .d_ff = 64};
  const RandomState state = random_layer(s, 5, true, "", 0.2f);
  Random random(6);
  const Tensor<3> x = random_rows(2, 20, 32, random), memory = random_rows(2, 9, 32, random), y(x.view.shape);
  const Bounded in(x.view);
  const IsVisible all = [](Index, Index, Index) { return true; };
  const IsVisible earlier = [](Index, Index i, Index j) { return j <= i; };
  DecoderLayer(state.dict, "", {.attention = {.heads = 4}}).forward(x.view, memory.view, y.view);
  const Bounded exact = oracle::decoder(in, Bounded(memory.view), state.dict, "", s, earlier, all);
  compare_layer("DecoderLayer", y.view, exact, text_of(s), 5);
  CHECK(*std::max_element(exact.error.begin(), exact.error.end()) < 5e-3);
  EncoderLayer(state.dict, "", {.attention = {.heads = 4}}).forward(x.view, y.view);
  const Bounded encoded = oracle::encoder(in, state.dict, "", s, all);
  compare_layer("EncoderLayer", y.view, encoded, text_of(s), 5);
  CHECK(*std::max_element(encoded.error.begin(), encoded.error.end()) < 5e-3);
}

// A scale of the layer, and one of the call, which goes first.
TEST_CASE("MultiHeadAttention: scale") {
  const LayerSizes s;
  const RandomState state = random_layer(s, 7, false);
  Random random(8);
  const Tensor<3> x = random_rows(2, 9, 24, random), y(x.view.shape), expected(x.view.shape);
  const MultiHeadAttention plain(state.dict, "self_attn.", {.heads = 3}),
      scaled(state.dict, "self_attn.", {.heads = 3, .scale = 0.7f});
  plain.forward(x.view, expected.view, {.scale = 0.7f});
  scaled.forward(x.view, y.view);
  CHECK(different_bits(y.view, expected.view) == 0);
  scaled.forward(x.view, y.view, {.scale = 0.2f});
  plain.forward(x.view, expected.view, {.scale = 0.2f});
  CHECK(different_bits(y.view, expected.view) == 0);
  plain.forward(x.view, y.view);
  CHECK(different_bits(y.view, expected.view) > 0);
}

}  // namespace
}  // namespace headlane::test
