// Each buffer of every product between guard pages, at every tail length, at either end; see
// test_guard.cpp.
#include "support/guard.hpp"

#include <headlane/gemm.hpp>
#include <headlane/gemm_batch.hpp>
#include <headlane/gemm_gated.hpp>

namespace headlane::test {
namespace {

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
    gemm(a.view, b.view, c.view, {.alpha = 1.3f, .beta = 0.7f});
    gemm(guarded_a.view, guarded_b.view, guarded_c.view, {.alpha = 1.3f, .beta = 0.7f});
    // The gaps of a padded output are sentinels of its own; its ends are checked here, its inside
    // by test_gemm.
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
  guard_gemm("k of many rows, two columns", 40, 2, -1, false);
  guard_gemm("m, one column", -1, 1, 21, false);
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
    guarded_bias.place(bias.view, gap % 2 == 0 ? Layout{} : Layout{.name = "inner stride 3", .step = 3}, gap, where);
    const PackedMatrix packed(b.view);
    gemm(a.view, packed, c.view, {.bias = bias.view, .activation = Activation::silu, .residual = residual.view});
    gemm(a.view, packed, guarded_c.view,
         {.bias = guarded_bias.view, .activation = Activation::silu, .residual = guarded_residual.view});
    counts.add(different_bits(guarded_c.view, c.view) == 0, guarded_c.buffer.surroundings_untouched(),
               text_of_case("gemm's bias and residual", length, gap, where));
  });
  counts.finish("gemm, bias and residual");
}

// A b beyond 32768 floats is read where it stands by the first rows and packed on the way: for 33
// rows and more, with AVX2 for 12.
void guard_kept(Counts& counts, Index m, Index n, Index k) {
  static Guarded<2> guarded_a, guarded_b, guarded_c;
  Random random(static_cast<std::uint64_t>(m + n + k));
  const Tensor<2> a = random_tensor<2>({m, k}, random), b = random_tensor<2>({k, n}, random);
  const Tensor<2> before = random_tensor<2>({m, n}, random), c({m, n});
  copy<2>(before.view, c.view);
  gemm(a.view, b.view, c.view, {.alpha = 1.3f, .beta = 0.7f});
  for (const Index gap : {0, 1, 15}) {
    for (const Place where : {Place::start, Place::end}) {
      guarded_a.place(a.view, {}, gap, where);
      guarded_b.place(b.view, {}, gap, where);
      guarded_c.place(before.view, {}, gap, where);
      gemm(guarded_a.view, guarded_b.view, guarded_c.view, {.alpha = 1.3f, .beta = 0.7f});
      counts.add(different_bits(guarded_c.view, c.view) == 0, guarded_c.buffer.surroundings_untouched(),
                 "b packed on the way, m " + std::to_string(m) + ", k " + std::to_string(k) +
                     text_of_case(", n", n, gap, where));
    }
  }
}

TEST_CASE("gemm between guard pages, b packed on the way") {
  Counts counts;
  const Index step = slow_isa() ? 9 : 1;
  for (Index n = 260; n <= 314; n += step) guard_kept(counts, 40, n, 130);
  for (Index m = 11; m <= 64; m += step) guard_kept(counts, m, 257, 130);
  for (Index k = 124; k <= 150; k += step) guard_kept(counts, 33, 270, k);
  for (Index k = 506; k <= 629; k += 4 * step) guard_kept(counts, 34, 65, k);
  for (Index n = 33; n <= 65; n += step) guard_kept(counts, 37, n, 629);
  counts.finish("gemm, b packed on the way", slow_isa() ? 80 : 900);
}

// As everywhere(), at two misalignments.
template <class F>
void at_two_gaps(F f) {
  everywhere([&](Index length, Index gap, Place where) {
    if (gap == 0 || gap == 1 + length % 15) f(length, gap, where);
  });
}

// The dimension under test is -1.
void guard_batch(const char* dimension, Index batch, Index m, Index n, Index k, bool vary) {
  Counts counts;
  Guarded<3> guarded_a, guarded_b, guarded_c, guarded_residual;
  Guarded<2> guarded_bias;
  at_two_gaps([&](Index length, Index gap, Place where) {
    const auto size = [&](Index fixed) { return fixed < 0 ? length : fixed; };
    const Index count = size(batch), rows = size(m), columns = size(n), depth = size(k);
    Random random(static_cast<std::uint64_t>(length));
    const Tensor<3> a = random_tensor<3>({count, rows, depth}, random);
    const Tensor<3> b = random_tensor<3>({count, depth, columns}, random);
    const Tensor<3> c = random_tensor<3>({count, rows, columns}, random),
                    residual = random_tensor<3>(c.view.shape, random);
    const Tensor<2> bias = random_tensor<2>({count, columns}, random);
    const auto layout = [&](Index operand) { return vary ? layout_of(length, gap, operand) : Layout{}; };
    guarded_a.place(a.view, layout(1), gap, where);
    guarded_b.place(b.view, layout(2), gap, where);
    guarded_c.place(c.view, layout(3), gap, where);
    guarded_residual.place(residual.view, layout(4), gap, where);
    guarded_bias.place(bias.view, layout(5), gap, where);
    const auto options = [&](const View<const float, 2>& of_bias, const View<const float, 3>& of_residual) {
      GemmBatchOptions result{.alpha = 1.3f, .beta = 0.7f, .activation = Activation::silu, .residual = of_residual};
      if (gap == 0) result.bias = of_bias;  // without one, a c by columns is computed as its transpose
      return result;
    };
    gemm_batch(a.view, b.view, c.view, options(bias.view, residual.view));
    gemm_batch(guarded_a.view, guarded_b.view, guarded_c.view, options(guarded_bias.view, guarded_residual.view));
    counts.add(different_bits(guarded_c.view, c.view) == 0, guarded_c.buffer.surroundings_untouched(),
               text_of_case(dimension, length, gap, where));
  });
  counts.finish(std::string("gemm_batch, ") + dimension + (vary ? ", strided" : ""));
}

TEST_CASE("gemm_batch between guard pages") {
  for (const bool vary : {false, true}) {
    guard_batch("products", -1, 3, 7, 5, vary);
    guard_batch("m", 2, -1, 17, 5, vary);
    guard_batch("n", 3, 5, -1, 7, vary);
    guard_batch("k", 2, 5, 19, -1, vary);
  }
}

void guard_gated(const char* dimension, Index m, Index n, Index k, bool vary) {
  Counts counts;
  Guarded<2> guarded_a, guarded_gate, guarded_up, guarded_c;
  Guarded<1> gate_bias, up_bias;
  at_two_gaps([&](Index length, Index gap, Place where) {
    const auto size = [&](Index fixed) { return fixed < 0 ? length : fixed; };
    Random random(static_cast<std::uint64_t>(length));
    const Tensor<2> a = random_tensor<2>({size(m), size(k)}, random), c({size(m), size(n)});
    const Tensor<2> gate = random_tensor<2>({size(k), size(n)}, random),
                    up = random_tensor<2>({size(k), size(n)}, random);
    const Tensor<1> bias = random_tensor<1>({size(n)}, random);
    const auto layout = [&](Index operand) { return vary ? layout_of(length, gap, operand) : Layout{}; };
    guarded_a.place(a.view, layout(1), gap, where);
    guarded_gate.place(gate.view, layout(2), gap, where);
    guarded_up.place(up.view, layout(3), gap, where);
    guarded_c.place(c.view, layout(4), gap, where);
    gate_bias.place(bias.view, {}, gap, where);
    up_bias.place(bias.view, {.name = "stride 3", .step = 3}, gap, where);
    gemm_gated(a.view, gate.view, up.view, c.view, {.gate_bias = bias.view, .up_bias = bias.view});
    gemm_gated(guarded_a.view, guarded_gate.view, guarded_up.view, guarded_c.view,
               {.gate_bias = gate_bias.view, .up_bias = up_bias.view});
    counts.add(different_bits(guarded_c.view, c.view) == 0, guarded_c.buffer.surroundings_untouched(),
               text_of_case(dimension, length, gap, where));
  });
  counts.finish(std::string("gemm_gated, ") + dimension + (vary ? ", strided" : ""));
}

TEST_CASE("gemm_gated between guard pages") {
  for (const bool vary : {false, true}) {
    guard_gated("m", -1, 17, 5, vary);
    guard_gated("n", 5, -1, 7, vary);
    guard_gated("k", 5, 19, -1, vary);
  }
  guard_gated("n of many rows", 40, -1, 3, false);
}

}  // namespace
}  // namespace headlane::test
