// Each buffer of every operation but GEMM (test_guard_gemm.cpp) between guard pages, at every tail
// length, at either end: an access beyond its end crashes, a write within the page changes a
// sentinel.
#include "support/guard.hpp"
#include "support/mask_case.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

namespace headlane::test {
namespace {

TEST_CASE("softmax between guard pages") {
  GuardedRows<2> guarded;
  // Short rows have a way of their own where the scale is 1.
  for (const SoftmaxOptions& options :
       {SoftmaxOptions{}, {.scale = 0.7f}, {.log = true}, {.scale = 0.7f, .log = true}}) {
    everywhere([&](Index length, Index gap, Place where) {
      Random random(static_cast<std::uint64_t>(length));
      const Tensor<2> x = random_tensor<2>({3, length}, random), y({3, length});
      const auto run = [&](const View<float, 2>& from, const View<float, 2>& to) { softmax(from, to, options); };
      run(x.view, y.view);
      guarded.check("softmax", x.view, y.view, length, gap, where, run);
    });
  }
  guarded.counts.finish("softmax");
}

TEST_CASE("activate between guard pages") {
  GuardedRows<2> guarded;
  everywhere([&](Index length, Index gap, Place where) {
    Random random(static_cast<std::uint64_t>(length));
    const auto activation = static_cast<Activation>(1 + (length + gap) % 7);
    const Tensor<2> x = random_tensor<2>({3, length}, random), y({3, length});
    activate(x.view, y.view, activation);
    guarded.check("activate", x.view, y.view, length, gap, where,
                  [&](const View<float, 2>& from, const View<float, 2>& to) { activate(from, to, activation); });
  });
  guarded.counts.finish("activate");
}

struct GuardedAttention {
  Guarded<4> q, k, v, out;
  Guarded<3> lse;
};

// The dimension under test is -1 in `sizes`.
void guard_attention(const char* dimension, const AttentionSizes& sizes, bool vary) {
  Counts counts;
  GuardedAttention g;
  const bool is_dim = sizes.head_dim < 0 || sizes.value_dim < 0;
  everywhere([&](Index length, Index gap, Place where) {
    if (is_dim && (length == 0 || length > 256)) return;
    AttentionSizes s = sizes;
    for (Index* size : {&s.q_length, &s.kv_length, &s.head_dim, &s.value_dim}) *size = *size < 0 ? length : *size;
    const AttentionTensors t(s, static_cast<std::uint64_t>(length));
    const auto layout = [&](Index operand) { return vary ? layout_of(length, gap, operand) : Layout{}; };
    g.q.place(t.q.view, layout(1), gap, where);
    g.k.place(t.k.view, layout(2), gap, where);
    g.v.place(t.v.view, layout(3), gap, where);
    g.out.place(t.out.view, layout(4), gap, where);
    g.lse.place(t.lse.view, layout(5), gap, where);
    AttentionOptions options;
    if (gap % 2 == 1) options = causal(s.kv_length - s.q_length);
    t.run(options);
    options.lse = g.lse.view;
    attention(g.q.view, g.k.view, g.v.view, g.out.view, options);
    const bool right = different_bits(g.out.view, t.out.view) == 0 && different_bits(g.lse.view, t.lse.view) == 0;
    counts.add(right, g.out.buffer.surroundings_untouched() && g.lse.buffer.surroundings_untouched(),
               text_of_case(dimension, length, gap, where));
  });
  counts.finish(std::string("attention, ") + dimension + (vary ? ", strided" : ""));
}

TEST_CASE("attention between guard pages") {
  for (const bool vary : {false, true}) {
    guard_attention("q_length", {.q_length = -1, .kv_length = 9, .head_dim = 8}, vary);
    guard_attention("kv_length", {.q_length = 3, .kv_length = -1, .head_dim = 16}, vary);
    guard_attention("head_dim", {.q_length = 3, .kv_length = 5, .head_dim = -1, .value_dim = 16}, vary);
    guard_attention("head_dim of 19 keys", {.q_length = 2, .kv_length = 19, .head_dim = -1, .value_dim = 16}, vary);
    guard_attention("value_dim", {.q_length = 3, .kv_length = 5, .head_dim = 16, .value_dim = -1}, vary);
  }
  // Values are read in place, or packed: 64 is a whole number of panels.
  guard_attention("kv_length of one query",
                  {.q_heads = 2, .kv_heads = 1, .kv_length = -1, .head_dim = 8, .value_dim = 64}, false);
  guard_attention("kv_length of many queries", {.q_length = 26, .kv_length = -1, .head_dim = 8, .value_dim = 32},
                  false);
}

// A mask and a bias of one row each, shared by all rows. Flags are bytes, so the last one ends
// where the page does.
TEST_CASE("attention's mask and bias between guard pages") {
  Counts counts;
  GuardedBuffer flags{2048}, numbers{2048};
  everywhere([&](Index length, Index gap, Place where) {
    const AttentionSizes s{.q_length = 1 + gap, .kv_length = length, .head_dim = 8, .value_dim = 16};
    Random random(static_cast<std::uint64_t>(length));
    const Index step = gap % 3 == 2 ? 2 : 1, span = length == 0 ? 0 : (length - 1) * step + 1;
    const Index words = span / 4 + 1;
    float* word = flags.place(words, gap, where);
    bool* flag = where == Place::start ? reinterpret_cast<bool*>(word) : reinterpret_cast<bool*>(word + words) - span;
    const View<bool, 4> mask(flag, {1, 1, s.q_length, length}, {0, 0, 0, step});
    const View<float, 4> bias(numbers.place(span, gap, where), {1, 1, s.q_length, length}, {0, 0, 0, step});
    const Mask mask_copy({1, 1, 1, length});
    const Tensor<4> bias_copy({1, 1, 1, length});
    for (Index j = 0; j < length; ++j) {
      mask(0, 0, 0, j) = mask_copy.view(0, 0, 0, j) = random.integer(0, 3) != 0;
      bias(0, 0, 0, j) = bias_copy.view(0, 0, 0, j) = random.integer(0, 5) == 0 ? -infinity : random.normal();
    }
    const AttentionTensors guarded(s, 7), t(s, 7);
    guarded.run(with_bias(with_mask({}, mask), bias));
    t.run(with_bias(with_mask({}, stretched<const bool>(mask_copy.view, score_shape(s))),
                    stretched<const float>(bias_copy.view, score_shape(s))));
    const bool right = different_bits(guarded.out.view, t.out.view) == 0;
    counts.add(right, true, text_of_case("mask and bias", length, gap, where));
  });
  counts.finish("attention, mask and bias");
}

}  // namespace
}  // namespace headlane::test
