// Fault injection, as in test_no_memory.cpp: each allocation of linear_attention and
// causal_convolution fails in turn.
#include "support/convolution_case.hpp"
#include "support/failing_allocation.hpp"
#include "support/half_tensor.hpp"
#include "support/hash.hpp"
#include "support/linear_attention_case.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>
#include <headlane/convert.hpp>
#include <headlane/dtype.hpp>

#include <string>

namespace headlane::test {
namespace {

/// A call whose outputs are these; the state is 0 before it.
template <int Rank, class F>
FailingCall writes(const std::string& name, const Tensor<Rank>& out, const Tensor<Rank>& state, F call) {
  return {name,
          [&] {
            for_each(out.view, [](float& x) { x = 0.25f; });
            for_each(state.view, [](float& x) { x = 0; });
          },
          call,
          [&] {
            Hash hash;
            hash.add(out.view);
            hash.add(state.view);
            return hash.value();
          }};
}

TEST_CASE("linear_attention: each allocation fails") {
  const LinearTensors t({.heads = 8,
                         .length = 70,
                         .key_dim = 64,
                         .value_dim = 48,
                         .decay = Decay::row,
                         .beta = true,
                         .state = true,
                         .normalize = true}),
      without({.heads = 8, .length = 70, .key_dim = 64, .value_dim = 48, .seed = 2}),
      strided({.heads = 8,
               .length = 70,
               .key_dim = 64,
               .value_dim = 48,
               .state = true,
               .seed = 3,
               .layout = 1,
               .alike = true});
  const LinearTensors gates(with_gates(t.c, 15));
  const HalfTensor<bfloat16, 4> q(t.q.view), k(t.k.view), v(t.v.view), out(t.out.view.shape);
  for (const int threads : {1, 2}) {
    const ThreadsScope team(threads);
    check_failing(writes("linear_attention", t.out, t.state, [&] { t.call().run(); }), 1);
    check_failing(writes("linear_attention, gates", gates.out, gates.state, [&] { gates.call().run(); }), 1);
    check_failing(writes("linear_attention, no state", without.out, without.state, [&] { without.call().run(); }), 1);
    check_failing(writes("linear_attention, strided", strided.out, strided.state, [&] { strided.call().run(); }), 1);
    check_failing(writes("linear_attention, one token", t.out, t.state, [&] { t.call().tokens(5, 6).run(); }), 1);
    check_failing(writes("linear_attention, bfloat16", t.out, t.state,
                         [&] {
                           linear_attention(q.view, k.view, v.view, out.view, t.call().options());
                           convert(out.view, t.out.view);
                         }),
                  1);
  }
}

TEST_CASE("causal_convolution: each allocation fails") {
  const ConvolutionTensors t({.batch = 2,
                              .length = 70,
                              .channels = 600,
                              .width = 4,
                              .bias = true,
                              .state = true,
                              .activation = Activation::silu}),
      strided({.batch = 2,
               .length = 70,
               .channels = 600,
               .width = 4,
               .state = true,
               .seed = 2,
               .layout = 1,
               .alike = true});
  const HalfTensor<float16, 3> x(t.x.view), y(t.y.view.shape);
  for (const int threads : {1, 2}) {
    const ThreadsScope team(threads);
    check_failing(writes("causal_convolution", t.y, t.state, [&] { t.call().run(); }), 1);
    check_failing(writes("causal_convolution, strided", strided.y, strided.state, [&] { strided.call().run(); }), 1);
    check_failing(writes("causal_convolution, float16", t.y, t.state,
                         [&] {
                           causal_convolution(x.view, t.weight.view, y.view, t.call().options());
                           convert(y.view, t.y.view);
                         }),
                  1);
  }
}

}  // namespace
}  // namespace headlane::test
