// Every buffer of every operation between two inaccessible pages, at every tail length, at either end: a read or write of one
// element too many is a crash, a write within the page a changed sentinel.
#include "mask_case.hpp"
#include "scope.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

namespace headlane::test {
namespace {

constexpr Index longest = 257;

// One buffer for each operand, used again and again; the result has the values of ordinary memory.
template <int Rank>
struct Guarded {
  GuardedBuffer buffer{Index{40} << 10};
  View<float, Rank> view;

  // A view of that shape and layout that ends (or begins) where the buffer does, with the values of `from`.
  void place(const View<float, Rank>& from, const Layout& layout, Index gap, Place where) {
    const Tensor<Rank> model(from.shape, layout);
    view.shape = from.shape;
    view.strides = model.view.strides;
    Index low = 0, high = 0;
    for (std::size_t axis = 0; axis < view.shape.size(); ++axis) {
      const Index reach = std::max<Index>(view.shape[axis] - 1, 0) * view.strides[axis];
      (reach < 0 ? low : high) += reach;
    }
    bool empty = false;
    for (const Index size : view.shape) empty = empty || size == 0;
    float* first = buffer.place(empty ? 0 : high - low + 1, gap, where);
    view.data = first - low;
    if (!empty) copy<Rank>(from, view);
  }
};

struct Counts {
  Index cases = 0, wrong = 0, stray = 0;
  std::string first;
  void add(bool right, bool untouched, const std::string& text) {
    ++cases;
    wrong += right ? 0 : 1;
    stray += untouched ? 0 : 1;
    if ((!right || !untouched) && first.empty()) first = text;
  }
  void finish(const std::string& op) const {
    MESSAGE(op, ", isa ", isa(), ": ", cases, " guarded cases");
    CHECK(cases > 1000);
    CHECK_MESSAGE(wrong == 0, "not the result that ordinary memory gives; the first: ", first);
    CHECK_MESSAGE(stray == 0, "written outside the output; the first: ", first);
  }
};

// f(length, gap, where) for lengths 0 … 257, misalignments 0 … 15 and both ends. A slow ISA runs every length, but not at
// every misalignment.
template <class F>
void everywhere(F f) {
  for (Index length = 0; length <= longest; ++length) {
    for (Index gap = 0; gap < 16; ++gap) {
      if (slow_isa() && gap != 0 && gap != 1 + length % 15) continue;
      f(length, gap, Place::start);
      f(length, gap, Place::end);
    }
  }
}

const std::vector<Layout>& guard_layouts() {
  static const std::vector<Layout> all{
      {}, {"transposed", Order::columns}, {"padded", Order::rows, 1, 3}, {"inner stride 2", Order::rows, 2}};
  return all;
}

const Layout& layout_of(Index length, Index gap, Index operand) {
  return guard_layouts()[static_cast<std::size_t>((length + gap + gap / 4 * operand) % 4)];
}

std::string text_of_case(const char* what, Index length, Index gap, Place where) {
  std::ostringstream text;
  text << what << " " << length << ", gap " << gap << (where == Place::end ? ", end" : ", start") << ", isa " << isa();
  return text.str();
}

void guard_gemm(const char* dimension, Index m, Index n, Index k, bool vary) {
  Counts counts;
  Guarded<2> guarded_a, guarded_b, guarded_c;
  everywhere([&](Index length, Index gap, Place where) {
    Random random(static_cast<std::uint64_t>(length));
    const auto size = [&](Index fixed) { return fixed < 0 ? length : fixed; };
    const Tensor<2> a = random_tensor<2>({size(m), size(k)}, random), b = random_tensor<2>({size(k), size(n)}, random);
    const Tensor<2> c = random_tensor<2>({size(m), size(n)}, random);
    const auto layout = [&](Index operand) { return vary ? layout_of(length, gap, operand) : Layout{}; };
    guarded_a.place(a.view, layout(1), gap, where);
    guarded_b.place(b.view, layout(2), gap, where);
    guarded_c.place(c.view, layout(3), gap, where);
    gemm(a.view, b.view, c.view, {1.3f, 0.7f});
    gemm(guarded_a.view, guarded_b.view, guarded_c.view, {1.3f, 0.7f});
    // The gaps of a padded output are sentinels of its own; its ends are checked here, its inside by test_gemm.
    counts.add(different_bits(guarded_c.view, c.view) == 0, guarded_c.buffer.surroundings_untouched(),
               text_of_case(dimension, length, gap, where));
  });
  counts.finish(std::string("gemm, ") + dimension + (vary ? ", strided" : ""));
}

TEST_CASE("gemm between guard pages") {
  for (const bool vary : {false, true}) {
    guard_gemm("m", -1, 17, 5, vary);
    guard_gemm("n", 5, -1, 7, vary);
    guard_gemm("k", 5, 19, -1, vary);
  }
  guard_gemm("n of many rows", 40, -1, 3, false);
}

TEST_CASE("gemm's bias and residual between guard pages, b packed") {
  Counts counts;
  Guarded<2> guarded_c, guarded_residual;
  Guarded<1> guarded_bias;
  everywhere([&](Index length, Index gap, Place where) {
    Random random(static_cast<std::uint64_t>(length));
    const Tensor<2> a = random_tensor<2>({3, 5}, random), b = random_tensor<2>({5, length}, random);
    const Tensor<2> c({3, length}), residual = random_tensor<2>({3, length}, random);
    const Tensor<1> bias = random_tensor<1>({length}, random);
    guarded_c.place(c.view, {}, gap, where);
    guarded_residual.place(residual.view, layout_of(length, gap, 1), gap, where);
    guarded_bias.place(bias.view, gap % 2 == 0 ? Layout{} : Layout{"inner stride 3", Order::rows, 3}, gap, where);
    const PackedMatrix packed(b.view);
    gemm(a.view, packed, c.view, {.bias = bias.view, .activation = Activation::silu, .residual = residual.view});
    gemm(a.view, packed, guarded_c.view,
         {.bias = guarded_bias.view, .activation = Activation::silu, .residual = guarded_residual.view});
    counts.add(different_bits(guarded_c.view, c.view) == 0, guarded_c.buffer.surroundings_untouched(),
               text_of_case("gemm's bias and residual", length, gap, where));
  });
  counts.finish("gemm, bias and residual");
}

TEST_CASE("softmax between guard pages") {
  Counts counts;
  Guarded<2> guarded_x, guarded_y;
  for (const bool log : {false, true}) {
    everywhere([&](Index length, Index gap, Place where) {
      Random random(static_cast<std::uint64_t>(length));
      const Tensor<2> x = random_tensor<2>({3, length}, random), y({3, length});
      for (const bool vary : {false, true}) {
        guarded_x.place(x.view, vary ? layout_of(length, gap, 1) : Layout{}, gap, where);
        guarded_y.place(x.view, vary ? layout_of(length, gap, 2) : Layout{}, gap, where);
        softmax(x.view, y.view, {0.7f, log});
        softmax(guarded_x.view, guarded_y.view, {0.7f, log});
        counts.add(different_bits(guarded_y.view, y.view) == 0, guarded_y.buffer.surroundings_untouched(),
                   text_of_case("softmax", length, gap, where));
        softmax(guarded_x.view, guarded_x.view, {0.7f, log});
        counts.add(different_bits(guarded_x.view, y.view) == 0, guarded_x.buffer.surroundings_untouched(),
                   text_of_case("softmax in place", length, gap, where));
      }
    });
  }
  counts.finish("softmax");
}

TEST_CASE("activate between guard pages") {
  Counts counts;
  Guarded<2> guarded_x, guarded_y;
  everywhere([&](Index length, Index gap, Place where) {
    Random random(static_cast<std::uint64_t>(length));
    const auto activation = static_cast<Activation>(1 + (length + gap) % 7);
    const Tensor<2> x = random_tensor<2>({3, length}, random), y({3, length});
    for (const bool vary : {false, true}) {
      guarded_x.place(x.view, vary ? layout_of(length, gap, 1) : Layout{}, gap, where);
      guarded_y.place(x.view, vary ? layout_of(length, gap, 2) : Layout{}, gap, where);
      activate(x.view, y.view, activation);
      activate(guarded_x.view, guarded_y.view, activation);
      counts.add(different_bits(guarded_y.view, y.view) == 0, guarded_y.buffer.surroundings_untouched(),
                 text_of_case("activate", length, gap, where));
    }
  });
  counts.finish("activate");
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
    guard_attention("q_length", {1, 1, 1, -1, 9, 8, 8}, vary);
    guard_attention("kv_length", {1, 1, 1, 3, -1, 16, 16}, vary);
    guard_attention("head_dim", {1, 1, 1, 3, 5, -1, 16}, vary);
    guard_attention("value_dim", {1, 1, 1, 3, 5, 16, -1}, vary);
  }
  // Values read where they stand, or packed: 64 is a whole number of panels.
  guard_attention("kv_length of one query", {1, 2, 1, 1, -1, 8, 64}, false);
  guard_attention("kv_length of many queries", {1, 1, 1, 26, -1, 8, 32}, false);
}

// A mask and a bias for one row each, which all rows share; flags are bytes, so that their last one ends where the page does.
TEST_CASE("attention's mask and bias between guard pages") {
  Counts counts;
  GuardedBuffer flags{2048}, numbers{2048};
  everywhere([&](Index length, Index gap, Place where) {
    const AttentionSizes s{1, 1, 1, 1 + gap, length, 8, 16};
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
