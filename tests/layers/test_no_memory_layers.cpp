// Fault injection: each allocation of the layers fails in turn, as in test_no_memory.cpp.
#include "support/failing_allocation.hpp"
#include "support/half_tensor.hpp"
#include "support/layer_case.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <optional>

namespace headlane::test {
namespace {

const LayerSizes sizes{.d_model = 64, .heads = 4, .kv_heads = 2, .head_dim = 16, .memory_width = 64, .d_ff = 160};

struct Rows {
  Tensor<3> x{{2, 40, 64}}, memory{{2, 50, 64}}, y{{2, 40, 64}}, wide{{2, 40, 160}};
  Rows() {
    Random random(5);
    fill_normal(x.view, random);
    fill_normal(memory.view, random);
  }
};

std::uint64_t bits_of_rows(const Tensor<3>& y) {
  Hash hash;
  hash.add(y.view);
  return hash.value();
}

void fill(const Tensor<3>& y) {
  for_each(y.view, [](float& value) { value = 0.5f; });
}

TEST_CASE("layers' forward: each allocation fails") {
  const Rows rows;
  for (const int threads : {1, 2}) {
    const ThreadsScope team(threads);
    for (const AnyLayer& layer : all_layers(sizes, 3)) {
      const Tensor<3>& y = layer.out == 64 ? rows.y : rows.wide;
      check_failing({layer.name, [&] { fill(y); }, [&] { layer.forward(rows.x.view, rows.memory.view, y.view, {}); },
                     [&] { return bits_of_rows(y); }},
                    layer.self || layer.cross ? 2 : 0);
      const HalfTensor<float16, 3> x(rows.x.view), memory(rows.memory.view), to(y.view.shape);
      check_failing({layer.name + ", float16", [&] { fill(y); },
                     [&] { layer.of<float16>()(x.view, memory.view, to.view, {}), convert(to.view, y.view); },
                     [&] { return bits_of_rows(y); }},
                    1);
    }
  }
}

/// Making a layer: a failed one leaves nothing, the next one is right.
template <class Layer, class Make, class Use>
void check_made(const char* name, const Make& make, const Use& use, long least) {
  std::optional<Layer> made;
  check_failing({name, [&] { made.reset(); }, [&] { make(made); }, [&] { return made ? use(*made) : 0; }, true}, least);
}

TEST_CASE("layers' constructors: each allocation fails") {
  const RandomState state = random_layer(sizes, 3, true);
  const Rows rows;
  const StateDict& dict = state.dict;
  const auto forward = [&](const auto& layer) {
    layer.forward(rows.x.view, rows.y.view);
    return bits_of_rows(rows.y);
  };
  const auto cross = [&](const auto& layer) {
    layer.forward(rows.x.view, rows.memory.view, rows.y.view);
    return bits_of_rows(rows.y);
  };
  const auto logits = [&](const auto& layer) {
    layer.logits(rows.x.view, rows.wide.view);
    return bits_of_rows(rows.wide);
  };
  const auto widened = [&](const auto& layer) {
    layer.forward(rows.x.view, rows.wide.view);
    return bits_of_rows(rows.wide);
  };
  check_made<Linear>("Linear", [&](auto& made) { made.emplace(dict, "linear1."); }, widened, 2);
  check_made<Normalization>(
      "Normalization", [&](auto& made) { made.emplace(dict, "norm1.", NormKind::layer, 1e-5f); }, forward, 2);
  check_made<Embedding>(
      "Embedding", [&](auto& made) { made.emplace(dict, "linear1.", EmbeddingOptions{.tied = true}); }, logits, 1);
  check_made<FeedForward>("FeedForward", [&](auto& made) { made.emplace(dict, ""); }, forward, 4);
  check_made<MultiHeadAttention>(
      "MultiHeadAttention", [&](auto& made) { made.emplace(dict, "self_attn.", sizes.attention()); }, forward, 4);
  check_made<EncoderLayer>("EncoderLayer", [&](auto& made) { made.emplace(dict, "", sizes.options()); }, forward, 8);
  check_made<DecoderLayer>("DecoderLayer", [&](auto& made) { made.emplace(dict, "", sizes.options()); }, cross, 12);
}

// Keys go to the cache before attention, and a call that fails takes them back.
TEST_CASE("layers over caches: each allocation fails, and the caches are as they were") {
  const RandomState state = random_layer(sizes, 3, true);
  const DecoderLayer decoder(state.dict, "", sizes.options());
  const MultiHeadAttention& attention = decoder.self_attn();
  const Rows rows;
  std::optional<KvCache> cache, memory;
  const std::array<Index, 2> both{0, 1};
  const auto prepare = [&] {
    fill(rows.y);
    for (std::optional<KvCache>* each : {&cache, &memory}) {
      each->emplace(2, 16, 16, KvCacheOptions{.page_size = 32});
      for (int i = 0; i < 2; ++i) static_cast<void>((*each)->add());
    }
    attention.project_memory(rows.memory.view, *cache, both);
    decoder.multihead_attn().project_memory(rows.memory.view, *memory, both);
  };
  const auto held = [&] {
    Hash hash;
    for (const std::optional<KvCache>* each : {&cache, &memory}) {
      hash.add(static_cast<std::uint64_t>((*each)->pages_in_use()));
      for (const Index s : both) hash.add(static_cast<std::uint64_t>((*each)->length(s)));
    }
    return hash.value();
  };
  const auto result = [&] { return held() ^ bits_of_rows(rows.y); };
  for (const int threads : {1, 2}) {
    const ThreadsScope team(threads);
    check_failing({"project_memory", prepare, [&] { attention.project_memory(rows.x.view, *cache, both); }, held, true},
                  2);
    check_failing({"MultiHeadAttention over a cache", prepare,
                   [&] { attention.forward(rows.x.view, *cache, both, rows.y.view); }, held, true},
                  2);
    check_failing({"MultiHeadAttention over a cache, y", prepare,
                   [&] { attention.forward(rows.x.view, *cache, both, rows.y.view); }, result},
                  2);
    check_failing({"DecoderLayer over caches, y", prepare,
                   [&] { decoder.forward(rows.x.view, *cache, both, *memory, both, rows.y.view); }, result},
                  3);
    check_failing({"forward_projected", prepare,
                   [&] { attention.forward_projected(rows.x.view, *memory, both, rows.y.view); }, result},
                  1);
    check_failing({"DecoderLayer over caches", prepare,
                   [&] { decoder.forward(rows.x.view, *cache, both, *memory, both, rows.y.view); }, held, true},
                  3);
    const HalfTensor<bfloat16, 3> x(rows.x.view), y(rows.y.view.shape);
    check_failing(
        {"project_memory, bfloat16", prepare, [&] { attention.project_memory(x.view, *cache, both); }, held, true}, 2);
    check_failing({"MultiHeadAttention over a cache, bfloat16", prepare,
                   [&] { attention.forward(x.view, *cache, both, y.view); }, held, true},
                  2);
    check_failing({"DecoderLayer over caches, bfloat16", prepare,
                   [&] { decoder.forward(x.view, *cache, both, *memory, both, y.view); }, held, true},
                  3);
  }
}

}  // namespace
}  // namespace headlane::test
