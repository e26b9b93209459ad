// Layers are bit-identical to separate calls, for any layout, in place, any number of threads and
// instruction set, alone or in a batch; no allocation; several threads at once.
#include "support/allocation_count.hpp"
#include "support/layer_model.hpp"
#include "support/layer_separate.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

namespace headlane::test {
namespace {

struct CallSizes {
  Index batch, length, memory_length;
};

/// Random inputs of any layer, dense, and its output on one thread.
struct LayerCall {
  LayerCall(const AnyLayer& layer_, const LayerSizes& s, const CallSizes& c)
      : layer(layer_),
        x({c.batch, c.length, layer.in}),
        memory({c.batch, c.memory_length, s.memory_width}),
        y({c.batch, c.length, layer.out}) {
    Random random(2);
    fill_normal(x.view, random);
    fill_normal(memory.view, random);
    options.causal = layer.self;
    options.num_threads = 1;
    layer.forward(x.view, memory.view, y.view, options);
  }

  void check(const View<float, 3>& actual, const std::string& what) const {
    CHECK_MESSAGE(different_bits(actual, y.view) == 0, layer.name, ", ", what, ", isa ", isa());
  }

  const AnyLayer& layer;
  Tensor<3> x, memory, y;
  AttentionOptions options;
};

/// f(call) for every layer of all sizes, and shapes of x that are one matrix or more.
template <class F>
void for_calls(const F& f) {
  for (const LayerSizes& s : layer_sizes())
    for (const AnyLayer& layer : all_layers(s, 1))
      for (const CallSizes& c : {CallSizes{.batch = 3, .length = 14, .memory_length = 5},
                                 {.batch = 1, .length = 33, .memory_length = 40},
                                 {.batch = 5, .length = 1, .memory_length = 2}})
        f(LayerCall(layer, s, c), s);
}

TEST_CASE("layers have the bits of separate calls") {
  namespace sep = separate;
  Index compared = 0;
  for (const LayerSizes& s : layer_sizes()) {
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      Random random(seed);
      const RandomState state = random_layer(s, seed, true);
      const auto masking = static_cast<Masking>(seed % static_cast<std::uint64_t>(Masking::count));
      const Index batch = masking == Masking::varlen ? 1 : 3, length = random.integer(1, 40),
                  keys = random.integer(1, 40);
      Tensor<3> x({batch, length, s.d_model}), memory({batch, keys, s.memory_width});
      fill_normal(x.view, random);
      fill_normal(memory.view, random);
      const MaskingCase of_self(masking, batch, length, length, random),
          of_cross(Masking::mask, batch, length, keys, random);
      const AttentionOptions self = of_self.with_heads(s.heads), cross = of_cross.with_heads(s.heads);
      const Tensor<3> y(x.view.shape), wide({batch, length, s.d_ff});
      const auto same = [&](const Tensor<3>& actual, const Tensor<3>& expected, const char* what) {
        ++compared;
        CHECK_MESSAGE(different_bits(actual.view, expected.view) == 0, what, ": ", text_of(s), ", masking ",
                      static_cast<int>(masking), ", length ", length, ", isa ", isa());
      };
      const Tensor<3> residual = random_tensor<3>(wide.view.shape, random);
      Linear(state.dict, "linear1.").forward(x.view, wide.view, {Activation::gelu, residual.view});
      same(wide, sep::linear(x, state.dict, "linear1.", Activation::gelu, &residual), "Linear");
      Normalization(state.dict, "norm1.", s.layer.norm, 0.1f).forward(x.view, y.view);
      same(y, sep::norm(x, state.dict, "norm1.", s.layer.norm, 0.1f), "Normalization");
      FeedForward(state.dict, "", {s.layer.activation}).forward(x.view, y.view);
      same(y, sep::feed_forward(x, state.dict, s.layer.activation), "FeedForward");
      MultiHeadAttention(state.dict, "self_attn.", s.attention()).forward(x.view, y.view, self);
      same(y, sep::multi_head(x, x, state.dict, "self_attn.", s, self), "MultiHeadAttention");
      MultiHeadAttention(state.dict, "multihead_attn.", s.attention()).forward(x.view, memory.view, y.view, cross);
      same(y, sep::multi_head(x, memory, state.dict, "multihead_attn.", s, cross), "cross");
      EncoderLayer(state.dict, "", s.options()).forward(x.view, y.view, self);
      same(y, sep::encoder(x, state.dict, s, self), "EncoderLayer");
      DecoderLayer(state.dict, "", s.options()).forward(x.view, memory.view, y.view, self, cross);
      same(y, sep::decoder(x, memory, state.dict, s, self, cross), "DecoderLayer");
    }
  }
  CHECK(compared >= 400);
}

TEST_CASE("FeedForward: some rows of the hidden layer at a time, the bits of all of them") {
  for (const bool gated : {false, true}) {
    const LayerSizes s{.d_model = 6, .d_ff = 5000, .gated = gated};  // 192 rows at a time
    const RandomState state = random_layer(s, 1, false);
    const FeedForward layer(state.dict, "");
    for (const Index length : {191, 192, 193, 400}) {
      if (slow_isa() && length != 193) continue;
      Random random(4);
      Tensor<3> x({1, length, 6});
      fill_normal(x.view, random);
      const Tensor<3> y(x.view.shape);
      layer.forward(x.view, y.view);
      CHECK(different_bits(y.view, separate::feed_forward(x, state.dict, Activation::relu).view) == 0);
      // With what is added, which goes along in pieces too.
      const Tensor<3> encoded(x.view.shape);
      EncoderLayer(state.dict, "", s.options()).forward(x.view, encoded.view);
      CHECK(different_bits(encoded.view, separate::encoder(x, state.dict, s, {}).view) == 0);
      layer.forward(x.view, x.view);
      CHECK(different_bits(y.view, x.view) == 0);
    }
  }
}

TEST_CASE("layers: any layout of x, memory and y, and y in place, give the same bits") {
  for_calls([](const LayerCall& call, const LayerSizes& s) {
    const auto& [batch, length, in] = call.x.view.shape;
    std::size_t other = 0;
    for (const Layout& layout : layouts()) {
      const Layout& of_y = layouts()[++other * 3 % layouts().size()];
      const Tensor<3> x(call.x.view.shape, layout), memory(call.memory.view.shape, of_y), y(call.y.view.shape, of_y);
      copy<3>(call.x.view, x.view);
      copy<3>(call.memory.view, memory.view);
      call.layer.forward(x.view, memory.view, y.view, call.options);
      call.check(y.view, layout.name + std::string(" to ") + of_y.name + ", " + text_of(s));
      CHECK(y.surroundings_untouched());
      CHECK(different_bits(x.view, call.x.view) == 0);
      CHECK(different_bits(memory.view, call.memory.view) == 0);
      if (!call.layer.in_place) continue;
      call.layer.forward(x.view, memory.view, x.view, call.options);
      call.check(x.view, layout.name + std::string(", in place"));
      CHECK(x.surroundings_untouched());
    }
    // Batch elements that are columns of one matrix, or in reverse: no step leads through all rows.
    for (const bool reversed : {false, true}) {
      const Tensor<3> x({length, batch, in}), y({length, batch, call.layer.out});
      const auto transposed = [&](View<float, 3> view) {
        view = view.permuted({1, 0, 2});
        if (reversed)
          view = {view.data + (batch - 1) * view.strides[0],
                  view.shape,
                  {-view.strides[0], view.strides[1], view.strides[2]}};
        return view;
      };
      copy<3>(call.x.view, transposed(x.view));
      call.layer.forward(transposed(x.view), call.memory.view, transposed(y.view), call.options);
      call.check(transposed(y.view), "batch inside");
    }
    // One batch element for all.
    const View<const float, 3> shared = View<const float, 3>(call.x.view).select(0, 0).broadcast(0, batch);
    const View<const float, 3> shared_memory = View<const float, 3>(call.memory.view).select(0, 0).broadcast(0, batch);
    const Tensor<3> y(call.y.view.shape);
    call.layer.forward(shared, shared_memory, y.view, call.options);
    for (Index b = 0; b < batch; ++b) CHECK(different_bits(y.view.select(0, b), call.y.view.select(0, 0)) == 0);
  });
}

TEST_CASE("layers: threads, instruction sets, and a batch element alone: the same bits") {
  for_calls([](const LayerCall& call, const LayerSizes&) {
    const Tensor<3> y(call.y.view.shape);
    for (const int threads : {0, 1, 2, 3}) {
      AttentionOptions options = call.options;
      options.num_threads = threads;
      call.layer.forward(call.x.view, call.memory.view, y.view, options);
      call.check(y.view, std::to_string(threads) + " threads");
    }
    for (Index b = 0; b < call.x.view.shape[0]; ++b) {
      const Tensor<3> alone({1, y.view.shape[1], y.view.shape[2]});
      call.layer.forward(call.x.view.slice(0, b, b + 1), call.memory.view.slice(0, b, b + 1), alone.view, call.options);
      CHECK_MESSAGE(different_bits(alone.view.select(0, 0), call.y.view.select(0, b)) == 0, call.layer.name, " alone");
    }
    for (const std::string_view name : available_isas()) {
      const IsaScope scope(name);
      call.layer.forward(call.x.view, call.memory.view, y.view, call.options);
      call.check(y.view, "another instruction set");
    }
  });
}

#if !defined(HEADLANE_TEST_SANITIZED)
TEST_CASE("layers allocate nothing once warm") {
  for_calls([](const LayerCall& call, const LayerSizes&) {
    for (const int threads : {1, 2}) {
      AttentionOptions options = call.options;
      options.num_threads = threads;
      const Tensor<3> y(call.y.view.shape);
      const bool nothing =
          allocates_nothing_once_warm([&] { call.layer.forward(call.x.view, call.memory.view, y.view, options); });
      CHECK_MESSAGE(nothing, call.layer.name, ", threads ", threads);
    }
  });
}
#endif

TEST_CASE("one layer on four threads at once") {
  for_calls([](const LayerCall& call, const LayerSizes&) {
    std::atomic<Index> wrong = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        const Tensor<3> y(call.y.view.shape);
        AttentionOptions options = call.options;
        options.num_threads = 1 + t % 2;
        for (int i = 0; i < 3; ++i) {
          for_each(y.view, [](float& e) { e = nan; });
          call.layer.forward(call.x.view, call.memory.view, y.view, options);
          wrong += different_bits(y.view, call.y.view);
        }
      });
    for (std::thread& thread : threads) thread.join();
    CHECK_MESSAGE(wrong == 0, call.layer.name);
  });
}

}  // namespace
}  // namespace headlane::test
