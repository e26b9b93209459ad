// Ranks of a team that call a layer with other inputs or options than each other.
#include "support/differing_ranks.hpp"
#include "support/half_tensor.hpp"
#include "support/layer_case.hpp"
#include "support/team_case.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <array>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

namespace headlane::test {
namespace {

const LayerSizes& sizes = differing_sizes;

/// Tensors for the options of attention from x [2, 7, 70] to 7 keys, with 4 heads.
struct OptionTensors {
  std::vector<Index> lengths{7, 3};
  Tensor<1> of_heads{{4}};
  Tensor<2> table{{4, 8}};
  Tensor<3> of_rows{{2, 4, 7}};
  Tensor<4> bias{{2, 4, 7, 7}};
  bool all_visible = true;
  std::uint8_t all_bits = 0xff;
  std::array<std::byte, 8> bytes{};

  OptionTensors() {
    for_each(of_heads.view, [](float& x) { x = 0.5f; });
    for_each(table.view, [](float& x) { x = 0.5f; });
    for_each(bias.view, [](float& x) { x = 0.5f; });
  }

  /// Gives the option another value than the one that it has by default.
  template <class Member>
  void change(const std::string& name, Member& option) {
    if constexpr (std::is_same_v<Member, std::optional<float>>) option = 0.7f;
    else if constexpr (std::is_same_v<Member, bool>) option = !option;
    else if constexpr (std::is_arithmetic_v<Member>) option = static_cast<Member>(name == "num_threads" ? 2 : 5);
    else if constexpr (std::is_same_v<Member, std::span<std::byte>>) option = bytes;
    else if constexpr (std::is_same_v<Member, View<const Index, 1>>) option = {lengths.data(), {2}};
    else if constexpr (std::is_same_v<Member, View<const bool, 4>>) option = {&all_visible, {2, 4, 7, 7}, {}};
    else if constexpr (std::is_same_v<Member, View<const std::uint8_t, 4>>) option = {&all_bits, {2, 4, 7, 1}, {}};
    else if constexpr (std::is_same_v<Member, View<const float, 1>>) option = of_heads.view;
    else if constexpr (std::is_same_v<Member, View<const float, 2>>) option = table.view;
    else if constexpr (std::is_same_v<Member, View<float, 3>>) option = of_rows.view;
    else option = View<const float, 4>(bias.view);
  }
};

/// Calls f(name, options) with each option changed.
template <class F>
void for_each_change(OptionTensors& tensors, const AttentionOptions& unchanged, const F& f) {
  std::vector<std::string> names;
  for_each_option(unchanged, [&](const char* name, const auto&) { names.emplace_back(name); });
  for (const std::string& changed : names) {
    AttentionOptions options = unchanged;
    for_each_option(options, [&](const char* name, auto& member) {
      if (name == changed) tensors.change(changed, member);
    });
    f(changed, options);
  }
}

TEST_CASE("ranks with another option of attention") {
  Differing all;
  const RandomState state = random_layer(sizes, 3, true);
  const Tensor<3> x = normal({2, 7, 70}, 5);
  const auto with_each = [&](const char* what, bool other_default, const auto& forward) {
    const AttentionOptions unchanged{.causal = other_default};
    std::set<std::string> changed;
    OptionTensors names;
    for_each_change(names, unchanged, [&](const std::string& name, const AttentionOptions&) {
      const auto call = [&](Team& team, bool other) {
        OptionTensors tensors;  // of a rank: lse is written
        const Tensor<3> y(x.view.shape);
        for_each_change(tensors, unchanged, [&](const std::string& one, const AttentionOptions& options) {
          if (one == name) forward(team, y.view, other ? options : unchanged);
        });
      };
      const std::string text = std::string(what) + ", " + name;
      if (name == "num_threads") return Differing::add_same(text, call);
      all.add(text, call);
      changed.insert(name);
    });
    CHECK(changed.size() == 23);
  };
  with_each("EncoderLayer", false, [&](Team& team, const View<float, 3>& y, const AttentionOptions& options) {
    EncoderLayer(state.dict, "", options_of(sizes, &team)).forward(x.view, y, options);
  });
  with_each("DecoderLayer, self", true, [&](Team& team, const View<float, 3>& y, const AttentionOptions& options) {
    DecoderLayer(state.dict, "", options_of(sizes, &team)).forward(x.view, x.view, y, options);
  });
  with_each("DecoderLayer, cross", false, [&](Team& team, const View<float, 3>& y, const AttentionOptions& options) {
    DecoderLayer(state.dict, "", options_of(sizes, &team)).forward(x.view, x.view, y, {.causal = true}, options);
  });
  with_each("MultiHeadAttention", false, [&](Team& team, const View<float, 3>& y, const AttentionOptions& options) {
    MultiHeadAttentionOptions made = sizes.attention();
    made.team = &team;
    MultiHeadAttention(state.dict, "self_attn.", made).forward(x.view, y, options);
  });
}

/// The layers that take rows, by name.
const std::array<const char*, 6> layers{"Linear",       "FeedForward",  "MultiHeadAttention",
                                        "EncoderLayer", "DecoderLayer", "Embedding::logits"};

template <class T>
void forward(const std::string& name, Team& team, const StateDict& state, const View<const T, 3>& x,
             const View<T, 3>& y) {
  if (name == "Linear") return Linear(state, "linear1.", DType::float32, DType::float32, &team).forward(x, y);
  if (name == "Embedding::logits") return Embedding(state, "linear1.", {.tied = true, .team = &team}).logits(x, y);
  if (name == "FeedForward") return FeedForward(state, "", {.team = &team}).forward(x, y);
  if (name == "EncoderLayer") return EncoderLayer(state, "", options_of(sizes, &team)).forward(x, y);
  if (name == "DecoderLayer") return DecoderLayer(state, "", options_of(sizes, &team)).forward(x, x, y);
  MultiHeadAttentionOptions options = sizes.attention();
  options.team = &team;
  MultiHeadAttention(state, "self_attn.", options).forward(x, y);
}

TEST_CASE("ranks with other inputs of a layer") {
  Differing all;
  const RandomState state = random_layer(sizes, 3, true);
  for (const std::string name : layers) {
    const Index out = name == "Linear" || name == "Embedding::logits" ? sizes.d_ff : sizes.d_model;
    const auto with = [&](const std::string& what, const std::array<Index, 3>& shape, Index columns,
                          const std::vector<std::string>& words) {
      all.add(
          name + ", " + what,
          [&](Team& team, bool other) {
            const std::array<Index, 3> mine = other ? shape : std::array<Index, 3>{2, 7, sizes.d_model};
            const Tensor<3> x = normal(mine, 1), y({mine[0], mine[1], other ? columns : out});
            forward<float>(name, team, state.dict, x.view, y.view);
          },
          words);
    };
    with("length", {2, 6, 70}, out, {"x 2 x 7 x 70", "x 2 x 6 x 70"});
    with("batch", {3, 7, 70}, out, {"x 3 x 7 x 70"});
    with("no rows", {2, 0, 70}, out, {"x 2 x 0 x 70"});
    with("width", {2, 7, 71}, out, {"an error, ", "the layer takes rows of 70"});
    with("width of y", {2, 7, 70}, out + 1, {"an error, ", "the layer returns rows of"});
    all.add(name + ", strides", [&](Team& team, bool other) {
      const Tensor<3> x = normal({2, 9, sizes.d_model}, 1), y({2, 7, out});
      const Tensor<3> dense = normal({2, 7, sizes.d_model}, 1);
      forward<float>(name, team, state.dict, other ? x.view.slice(1, 0, 7) : dense.view, y.view);
    });
    all.add(name + ", type",
            [&](Team& team, bool other) {
              const Tensor<3> x = normal({2, 7, sizes.d_model}, 1), y({2, 7, out});
              const HalfTensor<float16, 3> to({2, 7, out});
              const HalfTensor<float16, 3> from(x.view);
              if (other) forward<float16>(name, team, state.dict, from.view, to.view);
              else forward<float>(name, team, state.dict, x.view, y.view);
            },
            {"of float32", "of float16"});
    all.add(name + ", length of float16",
            [&](Team& team, bool other) {
              const Index length = other ? 6 : 7;
              const HalfTensor<float16, 3> x(normal({2, length, sizes.d_model}, 1).view), y({2, length, out});
              forward<float16>(name, team, state.dict, x.view, y.view);
            },
            {"x 2 x 6 x 70"});
    Differing::add_same(name + ", stride of an axis of one", [&](Team& team, bool other) {
      const Tensor<3> x = normal({1, 7, sizes.d_model}, 1), y({1, 7, out});
      View<const float, 3> from = x.view;
      if (other) from.strides[0] = 12345;
      forward<float>(name, team, state.dict, from, y.view);
    });
  }
  CHECK(all.count == 6 * 8);
}

TEST_CASE("ranks with other ids or residuals") {
  Differing all;
  const RandomState state = random_layer(sizes, 3, true);
  const auto lookup = [&](const char* what, const std::vector<Index>& ids, const EmbeddingForwardOptions& options) {
    all.add(what, [&](Team& team, bool other) {
      const std::vector<Index> same{1, 64, 129, 5};
      const std::vector<Index>& mine = other ? ids : same;
      const Index length = static_cast<Index>(mine.size()) / 2;
      const Tensor<3> y({2, length, sizes.d_model});
      for_each(y.view, [](float& value) { value = 1; });
      const Embedding layer(state.dict, "linear1.", {.max_length = 2, .team = &team});
      layer.forward({mine.data(), {2, length}}, y.view, other ? options : EmbeddingForwardOptions());
    });
  };
  lookup("another id", {1, 64, 128, 5}, {});
  lookup("another length", {1, 5}, {});
  lookup("no ids", {}, {});
  lookup("another scale", {1, 64, 129, 5}, {.scale = 2});
  lookup("added", {1, 64, 129, 5}, {.add = true});
  lookup("an id too large", {1, 64, 130, 5}, {});
  lookup("too long", {1, 64, 129, 5, 3, 3}, {});
  const Tensor<3> x = normal({2, 7, 70}, 1), residual = normal({2, 7, 130}, 2);
  const HalfTensor<bfloat16, 3> half(residual.view);
  const auto linear = [&](const char* what, const LinearOptions& options) {
    all.add(what, [&](Team& team, bool other) {
      const Tensor<3> y({2, 7, 130});
      Linear(state.dict, "linear1.", DType::float32, DType::float32, &team)
          .forward(x.view, y.view, other ? options : LinearOptions{.residual = residual.view});
    });
  };
  linear("no residual", {});
  linear("a residual of 16 bits", {.residual = half.view});
  linear("an activation", {.activation = Activation::relu, .residual = residual.view});
  CHECK(all.count == 10);
}

TEST_CASE("ranks with other caches") {
  Differing all;
  const RandomState state = random_layer(sizes, 3, true);
  const Tensor<3> x = normal({2, 7, 70}, 1);
  const auto cache = [&](const char* what, Index keys, DType type, Index memory, DType memory_type) {
    all.add(what, [&](Team& team, bool other) {
      const DecoderLayer layer(state.dict, "", options_of(sizes, &team));
      const Index heads = layer.self_attn().kv_heads();
      KvCache own(heads, 13, 13, {.type = other ? type : DType::float32}),
          projected(heads, 13, 13, {.type = other ? memory_type : DType::float32});
      const std::vector<Index> sequences{own.add(), own.add()}, memories{projected.add(), projected.add()};
      const Tensor<3> y(x.view.shape), before({heads, keys, 13}), rows = normal({2, memory, 70}, 4);
      for_each(before.view, [](float& value) { value = 0.5f; });
      if (other) own.append(sequences[1], before.view, before.view);
      layer.multihead_attn().project_memory(other ? rows.view : x.view, projected, memories);
      layer.forward(x.view, own, sequences, projected, memories, y.view);
    });
  };
  cache("more keys", 3, DType::float32, 7, DType::float32);
  cache("a cache of int8", 0, DType::int8, 7, DType::float32);
  cache("a longer memory", 0, DType::float32, 8, DType::float32);
  cache("a memory of int8", 0, DType::float32, 7, DType::int8);
  all.add("a cache of other heads", [&](Team& team, bool other) {
    MultiHeadAttentionOptions made = sizes.attention();
    made.team = &team;
    const MultiHeadAttention layer(state.dict, "self_attn.", made);
    KvCache own(layer.kv_heads() + (other ? 1 : 0), 13, 13);
    const std::vector<Index> sequences{own.add(), own.add()};
    const Tensor<3> y(x.view.shape);
    layer.forward(x.view, own, sequences, y.view);
  });
  CHECK(all.count == 5);
}

TEST_CASE("a layer compares once when it is made, and once a call") {
  const RandomState state = random_layer(sizes, 3, true);
  const Tensor<3> x = normal({2, 7, 70}, 1);
  const HalfTensor<float16, 3> half(x.view);
  const auto counts = [&](const auto& run) {
    std::array<std::vector<Index>, 2> all;
    CHECK(run_ranks(2, [&](ThreadTeam& team) {
            std::vector<Index>& mine = all[static_cast<std::size_t>(team.rank())];
            run(team, [&] { mine.insert(mine.end(), {team.agreed, team.gathered}); });
          }) == std::vector<std::string>{"", ""});
    CHECK(all[0] == all[1]);
    return all[0];
  };
  CHECK(counts([&](ThreadTeam& team, const auto& count) {
          const EncoderLayer layer(state.dict, "", options_of(sizes, &team));
          count();
          const Tensor<3> y(x.view.shape);
          layer.forward(x.view, y.view);
          count();
          const HalfTensor<float16, 3> half_y(x.view.shape);
          layer.forward(half.view, half_y.view);
          count();
        }) == std::vector<Index>{1, 0, 2, 4, 3, 8});
  CHECK(counts([&](ThreadTeam& team, const auto& count) {
          const DecoderLayer layer(state.dict, "", options_of(sizes, &team));
          count();
          const Tensor<3> y(x.view.shape);
          layer.forward(x.view, x.view, y.view);
          count();
          const HalfTensor<float16, 3> half_y(x.view.shape);
          layer.forward(half.view, half.view, half_y.view);
          count();
        }) == std::vector<Index>{1, 0, 2, 6, 3, 12});
}

}  // namespace
}  // namespace headlane::test
