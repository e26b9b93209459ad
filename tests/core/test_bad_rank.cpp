// Invalid views and sizes: an AnyView whose rank is out of range, a FloatingView whose element type
// is not a floating-point type, matrices whose packed copy does not fit into memory.
#include "support/illegal.hpp"
#include "support/sanitized.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <algorithm>
#include <limits>
#include <memory>

namespace headlane::test {
namespace {

void attend_linearly(const View<const float, 4>& x, const View<float, 4>& out, const AnyView<const float>& log_decay) {
  linear_attention(x, x, x, out, {.log_decay = log_decay});
}

void attend_with_bias(const View<const float, 4>& x, const View<float, 4>& out, const AnyView<const float>& dt_bias) {
  const View<const float, 1> a_log(x.data, {x.shape[1]});
  linear_attention(x, x, x, out, {.log_decay = x, .a_log = a_log, .dt_bias = dt_bias});
}

TEST_CASE("an AnyView has 0 to 8 axes: any other rank is an error in every function") {
  std::vector<float> memory(64, 0.5f);
  std::vector<Index> integers(64, 0);
  std::vector<bfloat16> rounded(64);
  const std::unique_ptr<bool[]> flags = std::make_unique<bool[]>(64);
  std::vector<Illegal> calls;
  const View<float, 3> good(memory.data() + 32, {2, 2, 2});
  const View<const float, 3> in(memory.data(), {2, 2, 2});
  for (const int rank : {-1, 9, 10, 100, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
    const auto bad = [&](auto view) { return view.rank = rank, view; };
    const AnyView<const float> x = bad(AnyView<const float>(in));
    const AnyView<float> y = bad(AnyView<float>(good));
    const auto push = [&](const char* function, const char* argument, const std::function<void()>& call) {
      calls.push_back({function, call, {function, argument, "rank " + std::to_string(rank)}});
    };
    push("softmax", "x", [=] { softmax(x, good); });
    push("softmax", "y", [=] { softmax(in, y); });
    push("softmax", "x", [=] { softmax(x, y); });
    push("softmax", "bias", [=] { softmax(in, good, {.bias = x}); });
    push("softmax", "mask", [=, &flags] {
      AnyView<const bool> mask = View<const bool, 3>(flags.get(), {2, 2, 2});
      mask.rank = rank;
      softmax(in, good, {.mask = mask});
    });
    AnyView<const Index> lengths = View<const Index, 2>(integers.data(), {2, 2});
    lengths.rank = rank;
    push("softmax", "lengths", [=] { softmax(in, good, {.lengths = lengths}); });
    for (const bool both : {false, true}) {
      const AnyView<const float> from = both ? x : AnyView<const float>(in);
      push("activate", "y", [=] { activate(from, y, Activation::relu); });
      push("layer_norm", "y", [=] { layer_norm(from, y); });
      push("rms_norm", "y", [=] { rms_norm(from, y); });
      push("add_sinusoidal_encoding", "x", [=] { add_sinusoidal_encoding(from, y); });
    }
    const auto halves = bad(AnyView<const bfloat16>(View<const bfloat16, 3>(rounded.data(), {2, 2, 2})));
    const View<bfloat16, 3> to(rounded.data() + 32, {2, 2, 2});
    push("softmax", "x", [=] { softmax(halves, to); });
    push("activate", "x", [=] { activate(halves, to, Activation::relu); });
    push("layer_norm", "x", [=] { layer_norm(halves, to); });
    push("add_sinusoidal_encoding", "x", [=] { add_sinusoidal_encoding(halves, to); });
    push("convert", "from", [=] { convert(halves, good); });
    push("layer_norm", "residual", [=] { layer_norm(in, good, {.residual = x}); });
    push("rms_norm", "sum", [=] { rms_norm(in, good, {.sum = y}); });
    const auto in4 = in.broadcast(0, 1);
    const auto good4 = good.broadcast(0, 1);
    push("rotary_embedding", "positions", [=] { rotary_embedding(in4, good4, {.positions = lengths}); });
    push("linear_attention", "log_decay", [=] { attend_linearly(in4, good4, x); });
    push("linear_attention", "dt_bias", [=] { attend_with_bias(in4, good4, x); });
    push("Normalization::forward", "x", [=] { Normalization().forward(x, good); });
    push("Linear", "weight", [=] { (void)Linear(StateDict{{"weight", x}}); });
    push("Embedding", "weight", [=] { (void)Embedding(StateDict{{"weight", x}}); });
    push("Normalization", "weight", [=] { (void)Normalization(StateDict{{"weight", x}}, "", NormKind::rms, 0); });
    push("MultiHeadAttention", "in_proj_weight",
         [=] { (void)MultiHeadAttention(StateDict{{"in_proj_weight", x}}, "", {.heads = 1}); });
    push("FeedForward", "linear1.weight", [=] { (void)FeedForward(StateDict{{"linear1.weight", x}}, ""); });
  }
  CHECK(calls.size() == 6 * 30);
  check_illegal(calls, [&] { return std::all_of(memory.begin(), memory.end(), [](float e) { return e == 0.5f; }); });
}

TEST_CASE("a FloatingView has elements of float32, bfloat16 or float16: any other type is an error") {
  std::vector<float> memory(64, 0.5f);
  std::vector<bfloat16> halves(64);
  const View<const float, 2> x(memory.data(), {2, 2});
  const View<float, 2> y(memory.data() + 32, {2, 2});
  const View<const bfloat16, 2> half_x(halves.data(), {2, 2});
  const View<bfloat16, 2> half_y(halves.data() + 32, {2, 2});
  const auto batch = [](const auto& view) { return view.broadcast(0, 1); };
  const auto heads = [&](const auto& view) { return batch(batch(view)); };
  const Linear linear(StateDict{{"weight", x}});
  std::vector<Illegal> calls;
  for (const int number : {3, 4, 5, 6, 255}) {
    const auto bad = [&](auto view) {
      view.type = static_cast<DType>(number);
      return view;
    };
    const FloatingView<2> added = bad(FloatingView<2>(x));
    const FloatingView<3> of_batch = bad(FloatingView<3>(batch(x)));
    const FloatingView<4> of_heads = bad(FloatingView<4>(heads(x)));
    const AnyFloatingView any = bad(AnyFloatingView(x));
    const auto push = [&](const char* function, const char* argument, const std::function<void()>& call) {
      calls.push_back({function, call, {function, argument, "DType " + std::to_string(number)}});
    };
    push("gemm", "residual", [=] { gemm(x, x, y, {.residual = added}); });
    push("gemm", "residual", [=] { gemm(half_x, half_x, half_y, {.residual = added}); });
    push("gemm_batch", "residual", [=] { gemm_batch(batch(x), batch(x), batch(y), {.residual = of_batch}); });
    push("Linear::forward", "residual", [=, &linear] { linear.forward(batch(x), batch(y), {.residual = of_batch}); });
    push("softmax", "bias", [=] { softmax(x, y, {.bias = any}); });
    push("softmax", "bias", [=] { softmax(half_x, half_y, {.bias = any}); });
    push("attention", "bias", [=] { attention(heads(x), heads(x), heads(x), heads(y), {.bias = of_heads}); });
    push("attention", "bias",
         [=] { attention(heads(half_x), heads(half_x), heads(half_x), heads(half_y), {.bias = of_heads}); });
  }
  check_illegal(calls, [&] { return std::all_of(memory.begin(), memory.end(), [](float e) { return e == 0.5f; }); });
}

// A matrix that is broadcast by strides of 0 may have more elements than fit into memory.
TEST_CASE("sizes that do not fit into memory: broadcast operands whose copies would be packed") {
  const float one = 1;
  std::vector<Illegal> calls;
  const auto push = [&](Index rows, Index columns) {
    calls.push_back({std::to_string(rows) + " x " + std::to_string(columns),
                     [&one, rows, columns] { (void)PackedMatrix({&one, {rows, columns}, {0, 0}}); },
                     {"PackedMatrix", "b", std::to_string(rows), std::to_string(columns), "does not fit into memory"}});
  };
  for (const int rows : {55, 56, 57, 58, 59, 60, 61, 62}) push(Index{1} << rows, 1);
  push(Index{1} << 30, (Index{1} << 30) + 1);
  push(1, (Index{1} << 60) + 1);
  push(1, std::numeric_limits<Index>::max());
  push(std::numeric_limits<Index>::max(), 1);
  check_illegal(calls, [] { return true; });
  // The largest size that can be represented: std::bad_alloc. Likewise for a layer's weight.
  const Index most = (Index{1} << 60) / 32 - 1;
  CHECK_THROWS_AS((void)PackedMatrix({&one, {most, 32}, {0, 0}}), std::bad_alloc);
  AnyView<const float> weight = View<const float, 2>(&one, {3, (Index{1} << 58)}, {0, 0});
  const StateDict dict{{"in_proj_weight", weight}, {"weight", weight}};
#if !defined(HEADLANE_TEST_SANITIZED)  // whose operator new ends the program
  CHECK_THROWS_AS((void)Embedding(dict), std::bad_alloc);
#endif
  CHECK_THROWS_AS((void)Linear(dict), std::invalid_argument);  // whole panels of 3 columns
  CHECK_THROWS_AS((void)MultiHeadAttention(dict, "", {.heads = 1}), std::invalid_argument);
  CHECK(PackedMatrix({nullptr, {Index{1} << 62, 0}}).bytes() == 0);
  CHECK(PackedMatrix({nullptr, {0, Index{1} << 62}}).bytes() == 0);
}

#if !defined(HEADLANE_TEST_SANITIZED)
TEST_CASE("keys that do not fit into memory: broadcast ones, of which few are visible") {
  const float one = 1;
  const Index length = 5, offset = 0;
  std::vector<float> queries(100);
  for (const int keys : {40, 50, 58}) {
    const View<const float, 4> q(queries.data(), {1, 1, 100, 1}), k(&one, {1, 1, (Index{1} << keys) - 1, 1}, {});
    const View<float, 4> out(queries.data(), {1, 1, 100, 1});
    std::vector<float> results(100);
    CHECK_THROWS_AS(attention(q, k, k, {results.data(), out.shape},
                              {.causal_offsets = {&offset, {1}}, .key_lengths = {&length, {1}}}),
                    std::bad_alloc);
  }
  KvCache cache(0, 8, 8);
  const Index sequence = cache.add();
  const View<const float, 3> tokens(nullptr, {0, std::numeric_limits<Index>::max(), 8});
  CHECK_THROWS_AS(cache.append(sequence, tokens, tokens), std::bad_alloc);
  CHECK(cache.length(sequence) == 0);
}
#endif

TEST_CASE("attention without heads may have any number of keys") {
  constexpr Index keys = std::numeric_limits<Index>::max();
  const std::uint8_t byte = 0;
  const float slope = 1;
  const View<const float, 4> q(nullptr, {1, 0, 2, 1}), k(nullptr, {1, 0, keys, 1});
  const AttentionOptions options{.mask_bits = {&byte, {1, 0, 2, keys / 8 + 1}}, .alibi_slopes = {&slope, {0}}};
  CHECK_NOTHROW(attention(q, k, k, View<float, 4>(nullptr, {1, 0, 2, 1}), options));
}

}  // namespace
}  // namespace headlane::test
