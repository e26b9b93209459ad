// Empty operands whose other sizes and strides are huge: a result or an error, immediately and
// without overflow (which sanitizers report).
#include "support/data.hpp"
#include "support/layer_case.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <functional>

namespace headlane::test {
namespace {

constexpr Index huge = Index{1} << 62, most = std::numeric_limits<Index>::max(),
                least = std::numeric_limits<Index>::min();

/// Calls with extreme sizes and strides. Each returns or throws; both are counted.
struct Extremes {
  Random random{1};
  Index calls = 0, returned = 0, refused = 0;

  Index size() { return random.pick(std::vector<Index>{0, 0, 0, 1, 2, 3, huge, huge - 1, most}); }
  Index stride() { return random.pick(std::vector<Index>{0, 1, 3, -1, huge, -huge, most, least}); }
  /// A view of this shape, without data.
  template <class T, std::size_t Rank>
  View<T, static_cast<int>(Rank)> view(const std::array<Index, Rank>& shape) {
    std::array<Index, Rank> strides;
    for (Index& s : strides) s = stride();
    return {nullptr, shape, strides};
  }
  void call(const std::function<void()>& f) {
    ++calls;
    try {
      f();
      ++returned;
    } catch (const std::invalid_argument&) {
      ++refused;
    } catch (const std::bad_alloc&) {
      ++refused;
    } catch (const std::length_error&) {
      ++refused;
    }
  }
};

constexpr int rounds = 3000;

TEST_CASE("products of nothing") {
  Extremes e;
  std::vector<float> memory(16, 1.0f);
  const PackedMatrix none, no_rows(View<const float, 2>(nullptr, {0, 5})),
      no_columns(View<const float, 2>(nullptr, {5, 0}));
  for (int i = 0; i < rounds; ++i) {
    const Index batch = e.size(), m = e.size(), n = e.size(), k = e.size();
    const auto a = e.view<const float, 2>({m, k}), b = e.view<const float, 2>({k, n});
    const auto c = e.view<float, 2>({m, n});
    const auto as = e.view<const float, 3>({batch, m, k}), bs = e.view<const float, 3>({batch, k, n});
    const auto cs = e.view<float, 3>({batch, m, n});
    e.call([&] { gemm(a, b, c); });
    e.call([&] { gemm_batch(as, bs, cs); });
    e.call([&] { gemm_gated(a, b, b, c); });
    e.call([&] { (void)PackedMatrix(a); });
    e.call([&] { (void)PackedMatrix::from_bytes({}, m, n, DType::int8_group32); });
    const GemmProblem problem{a, b, nullptr, c, {}};
    const std::vector<GemmProblem> two{problem, problem};
    e.call([&] { gemm_batch(two); });
    // A sum of no products, whose operands have any strides, is written.
    const View<float, 2> real(memory.data(), {2, 3});
    const View<float, 3> real_batch(memory.data(), {2, 2, 3});
    const auto a0 = e.view<const float, 2>({2, 0}), b0 = e.view<const float, 2>({0, 3});
    const auto as0 = e.view<const float, 3>({2, 2, 0}), bs0 = e.view<const float, 3>({2, 0, 3});
    for (const int threads : {1, 2}) {
      e.call([&] { gemm(a0, b0, real, {.num_threads = threads}); });
      CHECK(memory[5] == 0);
      e.call([&] { gemm_batch(as0, bs0, real_batch, {.num_threads = threads}); });
      CHECK(memory[11] == 0);
      e.call([&] { gemm_gated(a0, b0, b0, real, {.num_threads = threads}); });
      const std::vector<GemmProblem> empty{{a0, b0, nullptr, real, {}}};
      e.call([&] { gemm_batch(empty, threads); });
    }
    for (const PackedMatrix* packed : {&none, &no_rows, &no_columns}) {
      const auto x = e.view<const float, 2>({m, packed->rows()});
      const auto y = e.view<float, 2>({m, packed->columns()});
      e.call([&] { gemm(x, *packed, y); });
      e.call([&] { gemm_gated(x, *packed, *packed, y); });
      e.call([&] { packed->unpack(e.view<float, 2>({m, n})); });
      e.call([&] { packed->unpack(e.view<bfloat16, 2>({packed->rows(), packed->columns()})); });
      e.call([&] { packed->unpack_columns(e.view<const Index, 1>({m}), e.view<float, 2>({m, packed->rows()})); });
      e.call([&] { packed->unpack_columns(e.view<const Index, 1>({0}), e.view<float16, 2>({0, packed->rows()})); });
      e.call([&] {
        gemm_batch(e.view<const float, 3>({batch, m, packed->rows()}), *packed,
                   e.view<float, 3>({batch, m, packed->columns()}));
      });
    }
    std::fill(memory.begin(), memory.end(), 1.0f);
  }
  CHECK(e.returned > e.calls / 4);
}

TEST_CASE("rows of nothing") {
  Extremes e;
  for (int i = 0; i < rounds; ++i) {
    const Index batch = e.size(), heads = e.size(), length = e.size(), width = e.size();
    const std::array<Index, 4> shape{batch, heads, length, width};
    const auto x = e.view<const float, 4>(shape);
    const auto y = e.view<float, 4>(shape);
    for (const int axis : {-1, 0, 1, 2}) e.call([&] { softmax(x, y, {.axis = axis}); });
    e.call([&] { softmax(x, y, {.mask = e.view<const bool, 4>(shape), .causal = true}); });
    e.call([&] { activate(x, y, Activation::gelu); });
    const auto half_x = e.view<const bfloat16, 4>(shape);
    const auto half_y = e.view<bfloat16, 4>(shape);
    e.call([&] { convert(x, half_y); });
    e.call([&] { convert(half_x, y); });
    for (const int axis : {-1, 1}) e.call([&] { softmax(half_x, half_y, {.axis = axis}); });
    e.call([&] { activate(half_x, half_y, Activation::gelu); });
    e.call([&] { layer_norm(half_x, half_y); });
    e.call([&] { rotary_embedding(half_x, half_y); });
    e.call([&] { add_sinusoidal_encoding(half_x, half_y); });
    e.call([&] { sinusoidal_encoding(e.view<float16, 2>({length, width})); });
    e.call([&] { layer_norm(x, y); });
    e.call([&] { rms_norm(x, y); });
    e.call([&] { rotary_embedding(x, y); });
    e.call([&] { add_sinusoidal_encoding(x, y); });
    e.call([&] { sinusoidal_encoding(e.view<float, 2>({length, width})); });
    e.call([&] { alibi_slopes(e.view<float, 1>({heads == 1 ? 0 : heads})); });
  }
  CHECK(e.returned > e.calls / 4);
}

TEST_CASE("sequences of nothing") {
  Extremes e;
  for (int i = 0; i < rounds; ++i) {
    const Index batch = e.size(), heads = e.size(), length = e.size(), dim = e.size(), width = e.random.integer(0, 65);
    const std::array<Index, 4> shape{batch, heads, length, dim};
    const auto q = e.view<const float, 4>(shape);
    const auto out = e.view<float, 4>(shape);
    e.call([&] { linear_attention(q, q, q, out); });
    const float one = 1;  // a view without data is an option that is not given
    float state = 1;
    LinearAttentionOptions options{.normalize = true, .discretize = i % 2 == 1, .sigmoid_beta = true};
    options.state = e.view<float, 4>({batch, heads, dim, dim});
    options.beta = e.view<const float, 3>({batch, heads, length});
    options.a_log = options.skip = e.view<const float, 1>({heads});
    options.log_decay = e.view<const float, 4>(shape), options.dt_bias = e.view<const float, 2>({heads, dim});
    if (options.discretize) options.log_decay = options.beta, options.dt_bias = options.a_log;
    options.log_decay.data = options.beta.data = options.a_log.data = options.dt_bias.data = options.skip.data = &one;
    options.state.data = &state;
    e.call([&] { linear_attention(q, q, q, out, options); });
    const auto half = e.view<const bfloat16, 4>(shape);
    e.call([&] { linear_attention(half, half, half, e.view<bfloat16, 4>(shape), options); });
    const auto x = e.view<const float, 3>({batch, length, dim});
    const auto half_x = e.view<const float16, 3>({batch, length, dim});
    const View<const float, 2> weight(&one, {dim, width}, {0, 0});
    CausalConvolutionOptions kept{.bias = {&one, {dim}, {0}}, .state = e.view<float, 3>({batch, dim, width - 1})};
    if (i % 2 == 0) kept.state.data = &state;
    e.call([&] { causal_convolution(x, weight, e.view<float, 3>(x.shape), kept); });
    e.call([&] { causal_convolution(half_x, weight, e.view<float16, 3>(x.shape), kept); });
    CHECK(state == 1);
  }
  CHECK(e.returned > e.calls / 10);
}

TEST_CASE("attention to nothing, of nothing") {
  Extremes e;
  const Index kv_heads = 2;
  KvCache cache(kv_heads, 4, 4);
  const std::vector<Index> sequences{cache.add(), cache.add()};
  for (int i = 0; i < rounds; ++i) {
    const Index batch = e.size(), heads = e.size(), length = e.size(), keys = e.size(), dim = e.random.integer(0, 3);
    const auto q = e.view<const float, 4>({batch, heads, length, dim});
    const auto k = e.view<const float, 4>({batch, heads, keys, dim}),
               v = e.view<const float, 4>({batch, heads, keys, dim});
    const auto out = e.view<float, 4>({batch, heads, length, dim});
    AttentionOptions options{
        .causal = i % 2 == 0, .causal_offset = e.stride(), .window_left = i % 3 == 0 ? most : -1, .lse = {}};
    e.call([&] { attention(q, k, v, out, options); });
    e.call([&] { (void)plan_attention(q, k, v, out, options); });
    e.call([&] { attention_weights(q, k, e.view<float, 4>({batch, heads, length, keys}), options); });
    e.call([&] { attention_key_sums(q, k, e.view<float, 3>({batch, heads, keys}), options); });
    e.call([&] {
      multi_head_attention(e.view<const float, 3>({batch, length, dim}), e.view<const float, 3>({batch, keys, dim}),
                           e.view<const float, 3>({batch, keys, dim}), e.view<float, 3>({batch, length, dim}), 1);
    });
    const AttentionPart part{
        e.view<const float, 4>({batch, heads, length, dim}), e.view<const float, 3>({batch, heads, length}), {}};
    e.call([&] { merge({&part, 1}, out); });
    e.call([&] {
      attention(e.view<const float, 4>({2, heads, length, 4}), cache, sequences,
                e.view<float, 4>({2, heads, length, 4}));
    });
    e.call([&] {
      (void)plan_attention(e.view<const float, 4>({2, 4, length, 4}), cache, sequences,
                           e.view<float, 4>({2, 4, length, 4}));
    });
    e.call([&] {
      cache.append(sequences[0], e.view<const float, 3>({kv_heads, 0, 4}), e.view<const float, 3>({kv_heads, 0, 4}));
    });
    e.call([&] {
      cache.append(sequences, e.view<const float, 4>({2, kv_heads, 0, 4}), e.view<const float, 4>({2, kv_heads, 0, 4}));
    });
  }
  CHECK(cache.length(sequences[0]) == 0);
  CHECK(e.returned > e.calls / 10);
}

TEST_CASE("products and attention of no 16-bit numbers") {
  Extremes e;
  for (int i = 0; i < rounds; ++i) {
    const Index batch = e.size(), m = e.size(), n = e.size(), k = e.size();
    e.call([&] {
      gemm(e.view<const bfloat16, 2>({m, k}), e.view<const bfloat16, 2>({k, n}), e.view<bfloat16, 2>({m, n}));
    });
    e.call([&] {
      gemm_batch(e.view<const float16, 3>({batch, m, k}), e.view<const float16, 3>({batch, k, n}),
                 e.view<float16, 3>({batch, m, n}));
    });
    e.call([&] {
      const auto right = e.view<const bfloat16, 2>({k, n});
      gemm_gated(e.view<const bfloat16, 2>({m, k}), right, right, e.view<bfloat16, 2>({m, n}));
    });
    e.call([&] {
      const GemmProblemOf<float16> one{.a = e.view<const float16, 2>({m, k}),
                                       .b = e.view<const float16, 2>({k, n}),
                                       .c = e.view<float16, 2>({m, n})};
      gemm_batch(std::vector<GemmProblemOf<float16>>{one, one});
    });
    const Index heads = e.size(), length = e.size(), keys = e.size(), dim = e.random.integer(0, 3);
    const AttentionOptions options{
        .causal = i % 2 == 0, .causal_offset = e.stride(), .window_left = i % 3 == 0 ? most : -1};
    e.call([&] {
      attention(e.view<const bfloat16, 4>({batch, heads, length, dim}),
                e.view<const bfloat16, 4>({batch, heads, keys, dim}),
                e.view<const bfloat16, 4>({batch, heads, keys, dim}), e.view<bfloat16, 4>({batch, heads, length, dim}),
                options);
    });
    e.call([&] {
      attention_weights(e.view<const bfloat16, 4>({batch, heads, length, dim}),
                        e.view<const bfloat16, 4>({batch, heads, keys, dim}),
                        e.view<bfloat16, 4>({batch, heads, length, keys}), options);
    });
    e.call([&] {
      attention_key_sums(e.view<const float16, 4>({batch, heads, length, dim}),
                         e.view<const float16, 4>({batch, heads, keys, dim}), e.view<float16, 3>({batch, heads, keys}),
                         options);
    });
    e.call([&] {
      const AttentionPartOf<bfloat16> half{e.view<const bfloat16, 4>({batch, heads, length, dim}),
                                           e.view<const float, 3>({batch, heads, length})};
      merge({&half, 1}, e.view<bfloat16, 4>({batch, heads, length, dim}));
    });
  }
  CHECK(e.returned > e.calls / 10);
}

TEST_CASE("layers of nothing, for nothing") {
  Extremes e;
  std::vector<float> results(64, 7.0f);
  for (const LayerSizes& s : {LayerSizes{}, LayerSizes{.d_ff = 0, .layer = {.norm_first = true}}}) {
    const std::vector<AnyLayer> layers = all_layers(s, 1);
    for (int i = 0; i < rounds / 10; ++i) {
      const Index batch = e.size(), length = e.size(), keys = e.size();
      for (const AnyLayer& layer : layers) {
        e.call([&] {
          layer.forward(e.view<const float, 3>({batch, length, layer.in}),
                        e.view<const float, 3>({batch, keys, s.memory_width}),
                        e.view<float, 3>({batch, length, layer.out}), {});
        });
        e.call([&] {
          layer.of<bfloat16>()(e.view<const bfloat16, 3>({batch, length, layer.in}),
                               e.view<const bfloat16, 3>({batch, keys, s.memory_width}),
                               e.view<bfloat16, 3>({batch, length, layer.out}), {});
        });
      }
    }
  }
  // Weights without elements: rows of nothing have biases alone, whatever the strides.
  const auto bias = View<const float, 1>(results.data(), {3});
  for (int i = 0; i < rounds / 10; ++i) {
    const Index huge_size = e.size();
    for (const auto& shape : {std::array<Index, 2>{huge_size, 0}, {0, huge_size}, {3, 0}, {0, 3}}) {
      const StateDict dict{{"weight", e.view<const float, 2>(shape)},
                           {"bias", shape[0] == 3 ? bias : View<const float, 1>{}}};
      e.call([&] { (void)Embedding(dict); });
      e.call([&] { (void)Embedding(dict, "", {.tied = true}); });
      if (shape[0] != 3) continue;
      const Linear linear(dict);
      linear.forward(e.view<const float, 3>({2, 4, 0}), {results.data() + 16, {2, 4, 3}});
      CHECK(results[16] == 7);
      linear.forward(e.view<const float, 3>({huge_size, 0, 0}), e.view<float, 3>({huge_size, 0, 3}));
    }
    const Embedding nothing(StateDict{{"weight", e.view<const float, 2>({5, 0})}});
    e.call([&] { nothing.forward(e.view<const Index, 2>({huge_size, 0}), e.view<float, 3>({huge_size, 0, 0})); });
    e.call([&] { nothing.forward(e.view<const Index, 2>({0, huge_size}), e.view<float, 3>({0, huge_size, 0})); });
    e.call([&] { nothing.forward(e.view<const Index, 2>({0, huge_size}), e.view<float16, 3>({0, huge_size, 0})); });
  }
  CHECK(e.returned > e.calls / 4);
}

}  // namespace
}  // namespace headlane::test
