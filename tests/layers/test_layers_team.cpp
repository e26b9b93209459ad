// Layers of a team: the bits of one rank, whatever the number of ranks.
#include "support/attention_options.hpp"
#include "support/half_tensor.hpp"
#include "support/layer_case.hpp"
#include "support/team_case.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

namespace headlane::test {
namespace {

TEST_CASE("layers of a team have the bits of one rank") {
  TeamComparison all;
  for (const LayerSizes& s : team_layer_sizes()) {
    const RandomState state = random_layer(s, 3, true);
    std::size_t of_layout = 0;
    for (const auto& [batch, length] : {std::pair<Index, Index>{1, 1}, {1, 7}, {3, 1}, {2, 40}, {0, 3}, {2, 0}}) {
      const Layout& layout = layouts()[of_layout++ % layouts().size()];
      const Tensor<3> x = normal({batch, length, s.d_model}, 5, layout), memory = normal({batch, 9, s.memory_width}, 6);
      const auto add = [&](const char* name, Index width, const auto& run) {
        const std::string what = std::string(name) + ", " + text_of(s) + ", " + std::to_string(length) + " rows";
        all.add(what, [&](Team* team, int threads) {
          return result_of(batch, length, width, layout, [&](View<float, 3> y) { run(team, threads, y); });
        });
      };
      const Tensor<3> residual = normal({batch, length, s.d_ff}, 7);
      add("Linear", s.d_ff, [&](Team* team, int threads, View<float, 3> y) {
        const Linear layer(state.dict, "linear1.", DType::float32, DType::float32, team);
        layer.forward(x.view, y, {Activation::gelu, residual.view, threads});
      });
      add("FeedForward", s.d_model, [&](Team* team, int threads, View<float, 3> y) {
        const FeedForward layer(state.dict, "", {.activation = Activation::gelu, .team = team});
        layer.forward(x.view, y, threads);
      });
      add("MultiHeadAttention", s.d_model, [&](Team* team, int threads, View<float, 3> y) {
        MultiHeadAttentionOptions options = s.attention();
        options.team = team;
        MultiHeadAttention(state.dict, "self_attn.", options).forward(x.view, y, {.num_threads = threads});
      });
      add("EncoderLayer", s.d_model, [&](Team* team, int threads, View<float, 3> y) {
        copy<3>(x.view, y);  // in place
        EncoderLayer(state.dict, "", options_of(s, team)).forward(y, y, {.causal = true, .num_threads = threads});
      });
      add("DecoderLayer", s.d_model, [&](Team* team, int threads, View<float, 3> y) {
        DecoderLayer(state.dict, "", options_of(s, team))
            .forward(x.view, memory.view, y, {.causal = true, .num_threads = threads}, {.num_threads = threads});
      });
    }
  }
  all.finish(2000);
}

TEST_CASE("the hidden layer of a team in chunks of rows") {
  TeamComparison all;
  const LayerSizes s{.d_model = 40, .d_ff = 5000, .gated = true};  // 192 rows at a time
  const RandomState state = random_layer(s, 1, false);
  const Tensor<3> x = normal({1, 400, 40}, 2);
  all.add("FeedForward", [&](Team* team, int threads) {
    const FeedForward layer(state.dict, "", {.team = team});
    return result_of(1, 400, 40, {}, [&](View<float, 3> y) { layer.forward(x.view, y, threads); });
  });
  all.finish(19);
}

TEST_CASE("layers of a team in bfloat16 and float16") {
  TeamComparison all;
  const LayerSizes s = team_layer_sizes()[2];
  const RandomState state = random_layer(s, 3, true);
  const Tensor<3> x = normal({2, 9, s.d_model}, 5), memory = normal({2, 11, s.memory_width}, 6);
  const auto add = [&]<class T>(T) {
    const HalfTensor<T, 3> half(x.view), half_memory(memory.view);
    all.add("of 16 bits", [&](Team* team, int threads) {
      std::vector<float> results;
      const HalfTensor<T, 3> y(x.view.shape), wide({2, 9, s.d_ff});
      DecoderLayer(state.dict, "", options_of(s, team))
          .forward(half.view, half_memory.view, y.view, {.causal = true, .num_threads = threads});
      append(results, y.view);
      const Embedding tied(state.dict, "linear1.", {.tied = true, .team = team});
      tied.logits(half.view, wide.view, threads);
      append(results, wide.view);
      const std::vector<Index> ids{0, 299, 31, 32, 5, 64, 299, 100, 7, 0, 1, 2, 3, 4, 5, 6, 290, 8};
      tied.forward({ids.data(), {2, 9}}, y.view, {.scale = 0.3f, .add = true});
      append(results, y.view);
      return results;
    });
  };
  add(bfloat16{});
  add(float16{});
  all.finish(38);
}

TEST_CASE("stored weights and rounded activations of a team") {
  TeamComparison all;
  const LayerSizes s = team_layer_sizes()[0];
  const RandomState state = random_layer(s, 3, true);
  const Tensor<3> x = normal({2, 9, s.d_model}, 5), memory = normal({2, 11, s.memory_width}, 6);
  constexpr DType f32 = DType::float32, bf16 = DType::bfloat16, int8 = DType::int8;
  for (const auto& [weights, activations] : {std::pair{bf16, f32},
                                             {DType::float16, f32},
                                             {int8, f32},
                                             {DType::int8_group32, f32},
                                             {DType::int4_group32, f32},
                                             {bf16, bf16},
                                             {int8, int8},
                                             {DType::int4_group32, int8}}) {
    all.add(std::string("DecoderLayer of ") + name_of(weights) + ", " + name_of(activations), [&](Team* team, int) {
      TransformerLayerOptions options = options_of(s, team);
      options.weights = weights;
      options.activations = activations;
      const DecoderLayer layer(state.dict, "", options);
      return result_of(2, 9, s.d_model, {}, [&](View<float, 3> y) { layer.forward(x.view, memory.view, y); });
    });
    // The same weights, packed beforehand: columns of heads begin within panels.
    std::map<std::string, PackedMatrix> packed;
    StateDict given = state.dict;
    const auto pack = [&](const std::string& name, const View<const float, 2>& w) {
      given.erase(name);
      given.packed[name] = &(packed[name] = PackedMatrix(w.transposed(), {.type = weights}));
    };
    const auto matrix = [&](const std::string& name) {
      const AnyView<const float>& any = state.dict.find(name)->second;
      return View<const float, 2>(any.data, {any.shape[0], any.shape[1]}, {any.strides[0], any.strides[1]});
    };
    for (const std::string attention : {"self_attn.", "multihead_attn."}) {
      const View<const float, 2> w = matrix(attention + "in_proj_weight");
      given.erase(attention + "in_proj_weight");
      const Index width = w.shape[0] / 3;
      Index first = 0;
      for (const char* which : {"q", "k", "v"}) {
        pack(attention + which + "_proj_weight", w.slice(0, first, first + width));
        first += width;
      }
      pack(attention + "out_proj.weight", matrix(attention + "out_proj.weight"));
    }
    for (const char* name : {"linear1.weight", "linear2.weight"}) pack(name, matrix(name));
    all.add(std::string("packed as ") + name_of(weights), [&](Team* team, int) {
      TransformerLayerOptions options = options_of(s, team);
      options.activations = activations;
      const DecoderLayer layer(given, "", options);
      return result_of(2, 9, s.d_model, {}, [&](View<float, 3> y) { layer.forward(x.view, memory.view, y); });
    });
  }
  all.finish(16 * 19);
}

TEST_CASE("attention of a team takes all options, of all heads") {
  TeamComparison all;
  Random random(8);
  for (int i = 0; i < 120; ++i) {
    const LayerSizes s = team_layer_sizes()[static_cast<std::size_t>(i % 3)];
    const bool self = random.integer(0, 1) == 0, varlen = random.integer(0, 2) == 0;
    const Index batch = varlen ? 1 : random.integer(1, 3), length = random.integer(1, 20);
    const Index keys = self ? length : random.integer(1, 30);
    const AttentionSizes sizes{batch, s.heads, s.kv_heads, length, keys, s.head_dim};
    RandomOptions drawn(sizes);
    AttentionOptions options = drawn.draw(random, {.one_in = 2, .sequences = varlen ? random.integer(0, 4) : -1});
    const bool with_lse = random.integer(0, 1) == 0;
    const RandomState state = random_layer(s, 3, true);
    const Tensor<3> x = normal({batch, length, s.d_model}, 5);
    const Tensor<3> memory = normal({batch, keys, s.memory_width}, 6);
    const Layout& layout = layouts()[static_cast<std::size_t>(i) % layouts().size()];
    const std::array<int, 2> few{2, 5};
    all.add(
        text_of(s) + text_of(sizes, options),
        [&](Team* team, int threads) {
          const Tensor<3> lse({batch, s.heads, length}, layout);
          AttentionOptions with = options;
          with.num_threads = threads;
          if (with_lse) with.lse = lse.view;
          const float before = team == nullptr ? -1000.0f : -1001.0f - static_cast<float>(team->rank());
          for_each(lse.view, [&](float& l) { l = before; });
          MultiHeadAttentionOptions made = s.attention();
          made.team = team;
          const MultiHeadAttention layer(state.dict, self ? "self_attn." : "multihead_attn.", made);
          std::vector<float> results = result_of(batch, length, s.d_model, layout, [&](View<float, 3> y) {
            if (self) layer.forward(x.view, y, with);
            else layer.forward(x.view, memory.view, y, with);
          });
          for_each(lse.view, [&](float l) { results.push_back(l == before ? 12345.0f : l); });
          if (!lse.surroundings_untouched()) results.clear();
          return results;
        },
        i % 6 == 0 ? std::span<const int>(team_sizes) : few);
  }
  all.finish(1000);
}

TEST_CASE("a team decodes over caches of its own heads") {
  TeamComparison all;
  for (const LayerSizes& s : team_layer_sizes())
    for (const DType type : {DType::float32, DType::int8}) {
      const RandomState state = random_layer(s, 3, true);
      const Tensor<3> x = normal({3, 12, s.d_model}, 5), memory = normal({3, 11, s.memory_width}, 6);
      all.add("caches, " + text_of(s), [&](Team* team, int threads) {
        const DecoderLayer layer(state.dict, "", options_of(s, team));
        const Index own = layer.self_attn().kv_heads();
        KvCache cache(own, s.head_dim, s.head_dim, {.page_size = 32, .type = type}),
            projected(own, s.head_dim, s.head_dim, {.page_size = 32, .type = type});
        std::vector<Index> sequences, memories;
        for (int i = 0; i < 3; ++i) sequences.push_back(cache.add()), memories.push_back(projected.add());
        const std::vector<Index> key_lengths{11, 4, 7}, query_lengths{5, 2, 0};
        layer.multihead_attn().project_memory(memory.view, projected, memories,
                                              {.key_lengths = {key_lengths.data(), {3}}, .num_threads = threads});
        const Tensor<3> y(x.view.shape), lse({3, s.heads, 5});
        std::vector<float> results;
        const auto step = [&](Index first, Index end, const AttentionOptions& self) {
          layer.forward(x.view.slice(1, first, end), cache, sequences, projected, memories, y.view.slice(1, first, end),
                        self, {.num_threads = threads});
          append(results, y.view.slice(1, first, end));
        };
        AttentionOptions prefill{.query_lengths = {query_lengths.data(), {3}}, .lse = lse.view, .num_threads = threads};
        step(0, 5, prefill);
        append(results, lse.view);
        for (Index i = 5; i < 10; ++i) step(i, i + 1, {.num_threads = threads});
        // A beam that forks, and one that ends.
        cache.remove(sequences[1]);
        sequences[1] = cache.fork(sequences[0]);
        step(10, 12, {.num_threads = threads});
        for (const Index sequence : sequences) results.push_back(static_cast<float>(cache.length(sequence)));
        return results;
      });
    }
  all.finish(4 * 2 * 19);
}

TEST_CASE("Embedding of a team: lookups and logits") {
  TeamComparison all;
  RandomState state(1);
  state.matrix("weight", 203, 47);
  Random random(3);
  std::vector<Index> ids;
  for (int i = 0; i < 60; ++i) ids.push_back(random.integer(0, 202));
  ids[7] = 0, ids[8] = 202, ids[9] = ids[10] = 64;
  const Tensor<3> rows = normal({3, 5, 47}, 4);
  for (const bool tied : {false, true})
    for (const DType type : {DType::float32, DType::bfloat16, DType::int8, DType::int4_group32}) {
      const std::string what = std::string(name_of(type)) + (tied ? ", tied" : "");
      for (const Layout& layout : layouts())
        all.add(what + layout.name, [&](Team* team, int threads) {
          const Embedding layer(state.dict, "", {.tied = tied, .max_length = 19, .weights = type, .team = team});
          std::vector<float> results = result_of(3, 19, 47, layout, [&](View<float, 3> y) {
            const View<const Index, 2> all_ids(ids.data(), {3, 20});
            layer.forward(all_ids, y, {.scale = 0.7f, .truncate = true});
            layer.forward(all_ids, y, {.scale = -0.3f, .add = true, .truncate = true});
          });
          if (!tied) return results;
          const std::vector<float> logits =
              result_of(3, 5, 203, layout, [&](View<float, 3> y) { layer.logits(rows.view, y, threads); });
          results.insert(results.end(), logits.begin(), logits.end());
          return results;
        });
    }
  all.finish(1000);
}

}  // namespace
}  // namespace headlane::test
