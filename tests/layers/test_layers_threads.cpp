// num_threads reaches everything that a layer calls: with 1 no thread is started, although the
// library may use four and each step is large enough for them. A program of its own, since threads
// stay.
#include "support/layer_case.hpp"
#include "support/process.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

namespace headlane::test {
namespace {

TEST_CASE("layers: num_threads = 1 starts no thread in any of their parts") {
  constexpr Index length = 200, width = 512;
  Index calls = 0;
  const Index before = threads_of_process();
  for (const bool gated : {false, true}) {
    const LayerSizes s{.d_model = width,
                       .heads = 8,
                       .kv_heads = 8,
                       .head_dim = 64,
                       .memory_width = width,
                       .d_ff = 1024,
                       .gated = gated};
    const RandomState state = random_layer(s, 1, true);
    Random random(2);
    const Tensor<3> x = random_tensor<3>({2, length, width}, random), y(x.view.shape), wide({2, length, s.d_ff});
    const auto alone = [&](const std::string& what) {
      CHECK_MESSAGE(threads_of_process() == before, what);
      ++calls;
    };
    set_num_threads(1);  // packing weights takes threads too
    const std::vector<AnyLayer> layers = all_layers(s, 1);
    const DecoderLayer decoder(state.dict, "", s.options());
    set_num_threads(4);
    for (const AnyLayer& layer : layers) {
      layer.forward(x.view, x.view, layer.out == width ? y.view : wide.view, {.num_threads = 1});
      alone(layer.name);
    }
    KvCache cache(8, 64, 64), other(8, 64, 64), memory(8, 64, 64);
    std::vector<Index> sequences;
    for (int i = 0; i < 2; ++i) {
      sequences.push_back(cache.add());
      (void)other.add(), (void)memory.add();
    }
    decoder.multihead_attn().project_memory(x.view, memory, sequences, {.num_threads = 1});
    alone("project_memory");
    decoder.multihead_attn().forward_projected(x.view, memory, sequences, y.view, {.num_threads = 1});
    alone("forward_projected");
    decoder.self_attn().forward(x.view, cache, sequences, y.view, {.num_threads = 1});
    alone("forward over a cache");
    decoder.forward(x.view, other, sequences, memory, sequences, y.view, {.num_threads = 1}, {.num_threads = 1});
    alone("DecoderLayer over caches");
  }
  CHECK(calls == 2 * (8 + 4));
  // All of that would use threads if it were let.
  const RandomState state = random_layer({.d_model = width, .d_ff = 1024}, 1, false);
  const Linear linear(state.dict, "linear1.");
  const Tensor<3> x({1, length, width}), y({1, length, 1024});
  for_each(x.view, [](float& e) { e = 1; });
  linear.forward(x.view, y.view);
#ifdef _OPENMP
  CHECK(threads_of_process() > before);
#endif
  set_num_threads(0);
}

}  // namespace
}  // namespace headlane::test
