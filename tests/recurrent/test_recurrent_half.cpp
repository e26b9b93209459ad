// linear_attention and causal_convolution of bfloat16 and float16: the float32 result of the
// widened inputs, rounded once; in any layout, on several threads; states are float32.
#include "support/convolution_case.hpp"
#include "support/half_tensor.hpp"
#include "support/linear_attention_case.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>

namespace headlane::test {
namespace {

template <class T>
void check_linear_half(const LinearCase& c, int threads) {
  INFO(text_of(c), ", ", name_of_half<T>(), ", ", threads, " threads, isa ", isa());
  const LinearTensors half(c), wide(c);
  const HalfTensor<T, 4> q(half.q.view, c.layout_of(0)), k(half.k.view, c.layout_of(1)), v(half.v.view, c.layout_of(2)),
      out(half.out.view.shape, c.layout_of(3));
  const auto widen = [](const HalfTensor<T, 4>& from, const Tensor<4>& to) { copy<4>(from.widened().view, to.view); };
  widen(q, wide.q), widen(k, wide.k), widen(v, wide.v);
  wide.call(1).run();
  linear_attention(q.view, k.view, v.view, out.view, half.call(threads).options());
  CHECK(different_from_rounded(out.view, wide.out.view) == 0);
  CHECK(different_bits(half.state.view, wide.state.view) == 0);
  CHECK(different_bits(q.widened().view, wide.q.view) == 0);
  CHECK(different_bits(k.widened().view, wide.k.view) == 0);
  CHECK(different_bits(v.widened().view, wide.v.view) == 0);
  for (const auto* tensor : {&q, &k, &v, &out}) CHECK(tensor->surroundings_untouched());
  CHECK(half.state.surroundings_untouched());
}

TEST_CASE_TEMPLATE("linear_attention of 16-bit numbers: the rounded results of float32", T, bfloat16, float16) {
  for (Index number = 0; number < 48; number += slow_isa() ? 5 : 1)
    for (const Index length : {0, 1, 2, 66}) {
      LinearCase c = with_options(
          {.batch = 2, .key_heads = 2, .heads = 4, .length = length, .key_dim = 18, .value_dim = 35, .seed = 1},
          number);
      c = with_steps(with_gates(c, number / 3 + length), number / 2 + length);
      c.layout = (number + length) % 10 - 1;
      check_linear_half<T>(c, 1 + static_cast<int>(number % 3));
    }
  for (const Index dim : {1, 15, 33, 128})
    for (Index gates = 0; gates < 16; ++gates)
      check_linear_half<T>(with_steps(with_gates({.heads = 2,
                                                  .length = 70,
                                                  .key_dim = dim,
                                                  .value_dim = 129 - dim,
                                                  .decay = gates % 2 == 0 ? Decay::token : Decay::row,
                                                  .beta = true,
                                                  .state = true,
                                                  .normalize = true,
                                                  .seed = 2},
                                                 gates),
                                      gates / 2 + dim),
                           2);
}

template <class T>
void check_convolution_half(const ConvolutionCase& c, int threads) {
  INFO(text_of(c), ", ", name_of_half<T>(), ", ", threads, " threads, isa ", isa());
  const ConvolutionTensors half(c), wide(c);
  const HalfTensor<T, 3> x(half.x.view, c.layout_of(0)), y(half.y.view.shape, c.layout_of(1));
  copy<3>(x.widened().view, wide.x.view);
  wide.call(1).run();
  causal_convolution(x.view, half.weight.view, y.view, half.call(threads).options());
  CHECK(different_from_rounded(y.view, wide.y.view) == 0);
  CHECK(different_bits(half.state.view, wide.state.view) == 0);
  CHECK(different_bits(x.widened().view, wide.x.view) == 0);
  CHECK((x.surroundings_untouched() && y.surroundings_untouched() && half.state.surroundings_untouched()));
}

TEST_CASE_TEMPLATE("causal_convolution of 16-bit numbers: the rounded results of float32", T, bfloat16, float16) {
  for (Index number = 0; number < 32; ++number)
    for (const Index length : {0, 1, 2, 66}) {
      ConvolutionCase c =
          with_options({.batch = 2, .length = length, .channels = 35, .width = 1 + number % 6, .seed = 3}, number);
      c.layout = (number + length) % 9 - 1;
      check_convolution_half<T>(c, 1 + static_cast<int>(number % 3));
    }
  for (const Index channels : {1, 15, 257, 700})
    check_convolution_half<T>({.batch = 2,
                               .length = 140,
                               .channels = channels,
                               .width = 4,
                               .bias = true,
                               .state = true,
                               .activation = Activation::silu,
                               .seed = 4},
                              3);
}

TEST_CASE_TEMPLATE("16-bit numbers: a sequence in calls of one token", T, bfloat16, float16) {
  for (const Decay decay : {Decay::row, Decay::token}) {
    const LinearCase sizes{.heads = 2,
                           .length = 40,
                           .key_dim = 18,
                           .value_dim = 35,
                           .decay = decay,
                           .beta = true,
                           .state = true,
                           .normalize = true,
                           .seed = 5};
    const LinearCase c = decay == Decay::row ? with_gates(sizes, 15) : with_steps(with_gates(sizes, 14), 3);
    const LinearTensors whole(c), steps(c);
    const HalfTensor<T, 4> q(whole.q.view), k(whole.k.view), v(whole.v.view), one(whole.out.view.shape),
        other(whole.out.view.shape);
    linear_attention(q.view, k.view, v.view, one.view, whole.call().options());
    for (Index t = 0; t < c.length; ++t) {
      const auto at = [&](const View<T, 4>& view) { return view.slice(2, t, t + 1); };
      linear_attention(at(q.view), at(k.view), at(v.view), at(other.view), steps.call().tokens(t, t + 1).options());
    }
    CHECK(different_bits(whole.state.view, steps.state.view) == 0);
    CHECK(different_bits(one.widened().view, other.widened().view) == 0);
  }
}

}  // namespace
}  // namespace headlane::test
