// Illegal calls of linear_attention and causal_convolution; see test_bad_input.cpp.
#include "support/convolution_case.hpp"
#include "support/half_tensor.hpp"
#include "support/illegal.hpp"
#include "support/illegal_sequence.hpp"
#include "support/linear_attention_case.hpp"

#include <doctest/doctest.h>
#include <headlane/limits.hpp>

#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace headlane::test {
namespace {

constexpr const char* convolution = "causal_convolution";

using Convolution = Operands<ConvolutionTensors, ConvolutionCall>;

Convolution convolution_operands() {
  return {.t = ConvolutionTensors({.batch = 2, .length = 4, .channels = 5, .width = 3, .bias = true, .state = true})};
}

TEST_CASE("linear_attention: illegal views") {
  for (const Decay decay : {Decay::token, Decay::row}) {
    Linear o = linear_operands(decay);
    const LinearCall good = o.t.call();
    o.views(linear, "q", &LinearCall::q, wrong_views(good.q));
    o.views(linear, "k", &LinearCall::k, wrong_views(good.k));
    o.views(linear, "v", &LinearCall::v, wrong_views(good.v));
    o.views(linear, "out", &LinearCall::out, wrong_outputs(good.out));
    o.views(linear, "state", &LinearCall::state, without_null(wrong_outputs(good.state)));
    o.views(linear, "beta", &LinearCall::beta, without_null(wrong_views(good.beta)));
    if (decay == Decay::row)
      o.views(linear, "log_decay", &LinearCall::row_decay, without_null(wrong_views(good.row_decay)));
    else o.views(linear, "log_decay", &LinearCall::decay, without_null(wrong_views(good.decay)));
    o.check(o.t.out.view, 150);
  }
}

// Messages name both sizes.
TEST_CASE("linear_attention: shapes that do not match, and dims out of range") {
  Linear o = linear_operands(Decay::row);
  const LinearCall good = o.t.call();
  const auto push = [&](const LinearCall& call, const std::string& message) {
    o.push(message, call, {std::string(linear) + ": " + message});
  };
  push(o.with(&LinearCall::k, with_size(good.k, 0, 1)), "k has 1 batch elements, q has 2 batch elements");
  push(o.with(&LinearCall::k, with_size(good.k, 1, 1)), "k has 1 heads, q has 2 heads");
  push(o.with(&LinearCall::k, with_size(good.k, 2, 2)), "k has 2 rows, q has 3 rows");
  push(o.with(&LinearCall::k, with_size(good.k, 3, 4)), "k has 4 elements a head (key_dim), q has 5");
  push(o.with(&LinearCall::v, with_size(good.v, 0, 1)), "v has 1 batch elements, q has 2");
  push(o.with(&LinearCall::v, with_size(good.v, 2, 2)), "v has 2 tokens, q has 3 tokens");
  push(o.with(&LinearCall::v, with_size(good.v, 1, 3)), "v has 3 heads, k has 2, which does not divide them");
  push(o.with(&LinearCall::out, with_size(good.out, 1, 2)), "out has 2 heads, v has 4 heads");
  push(o.with(&LinearCall::out, with_size(good.out, 3, 5)), "out has 5 elements a head (value_dim), v has 6");
  push(o.with(&LinearCall::state, with_size(good.state, 1, 2)), "state has 2 heads, v has 4 heads");
  push(o.with(&LinearCall::state, with_size(good.state, 2, 4)), "state has 4 rows, k has 5");
  push(o.with(&LinearCall::state, with_size(good.state, 3, 5)), "state has 5 columns, v has 6");
  push(o.with(&LinearCall::beta, with_size(good.beta, 1, 2)), "beta has 2 heads, v has 4 heads");
  push(o.with(&LinearCall::beta, with_size(good.beta, 2, 2)), "beta has 2 tokens, v has 3 tokens");
  push(o.with(&LinearCall::row_decay, with_size(good.row_decay, 2, 2)), "log_decay has 2 tokens, v has 3 tokens");
  push(o.with(&LinearCall::row_decay, with_size(good.row_decay, 3, 4)), "log_decay has 4 elements a token, k has 5");
  LinearCall call = good;
  call.q = call.k = with_size(good.q, 1, 0);
  push(call, "v has 4 heads, k has 0, which does not divide them");
  for (const Index dim : {Index{0}, max_head_dim + 1, Index{1} << 40}) {
    const std::string range = std::to_string(dim) + ", it must be 1 to 512";
    call.q = call.k = View<const float, 4>(good.q.data, {2, 2, 3, dim}, {0, 0, 0, 0});
    push(call, "q has key_dim " + range);
    push(o.with(&LinearCall::v, View<const float, 4>(good.v.data, {2, 4, 3, dim}, {0, 0, 0, 0})),
         "v has value_dim " + range);
  }
  o.check(o.t.out.view, 20);
}

TEST_CASE("linear_attention: illegal values") {
  Linear o = linear_operands(Decay::none);
  for (const float eps : {-1.0f, -0x1p-149f, nan, infinity, -infinity})
    o.push("eps", o.with(&LinearCall::eps, eps), {linear, "eps"});
  for (const int threads : {-1, -2, std::numeric_limits<int>::min()})
    o.push("num_threads", o.with(&LinearCall::num_threads, threads), {linear, "num_threads", std::to_string(threads)});
  const LinearCall good = o.t.call();
  std::vector<float> memory(1000);
  const auto decay = [&](const AnyView<const float>& view) {
    o.calls.push_back({"rank",
                       [=] {
                         LinearAttentionOptions options = good.options();
                         options.log_decay = view;
                         linear_attention(good.q, good.k, good.v, good.out, options);
                       },
                       {linear, "log_decay has rank " + std::to_string(view.rank), "3 or 4"}});
  };
  decay(View<const float, 1>(memory.data(), {2}));
  decay(View<const float, 2>(memory.data(), {2, 4}));
  decay(View<const float, 5>(memory.data(), {2, 4, 3, 5, 1}));
  decay(View<const float, 8>(memory.data(), {2, 4, 3, 1, 1, 1, 1, 1}));
  o.check(o.t.out.view, 12);
  // Without normalize eps is not used.
  LinearCall unused = o.with(&LinearCall::eps, nan);
  unused.normalize = false;
  CHECK_NOTHROW(unused.run());
}

// Shifted by some elements, and with only the last element in common.
TEST_CASE("linear_attention: out and state over each other, and over inputs") {
  Linear o = linear_operands(Decay::none);
  float* const p = o.shared.view.data + 250;
  const View<float, 4> out(p, {2, 4, 3, 6}), state(p, {2, 4, 5, 6});
  const auto both = [&](const char* name, Index size, const std::function<void(LinearCall&, const float*)>& place) {
    for (const Index shift : {1 - size, Index{-1}, Index{0}, Index{17}, Index{143}}) {
      LinearCall call = o.with(&LinearCall::out, out);
      place(call, p + shift);
      o.push("out over an input", call, {linear, "out", name, "overlap"});
      call = o.with(&LinearCall::state, state);
      place(call, p + shift);
      o.push("state over an input", call, {linear, "state", name, "overlap"});
    }
  };
  both("q", 60, [](LinearCall& call, const float* at) { call.q = {at, {2, 2, 3, 5}}; });
  both("k", 60, [](LinearCall& call, const float* at) { call.k = {at, {2, 2, 3, 5}}; });
  both("v", 144, [](LinearCall& call, const float* at) { call.v = {at, {2, 4, 3, 6}}; });
  both("beta", 24, [](LinearCall& call, const float* at) { call.beta = {at, {2, 4, 3}}; });
  both("log_decay", 24, [](LinearCall& call, const float* at) { call.decay = {at, {2, 4, 3}}; });
  both("log_decay", 120, [](LinearCall& call, const float* at) { call.row_decay = {at, {2, 4, 3, 5}}; });
  const View<const float, 4> decay = o.t.row_decay.view;
  const View<const float, 1> a_log = o.t.a_log.view;
  both("a_log", 4, [&](LinearCall& call, const float* at) { call.row_decay = decay, call.a_log = {at, {4}}; });
  both("dt_bias", 4, [&](LinearCall& call, const float* at) {
    call.row_decay = decay, call.a_log = a_log, call.dt_bias = {at, {4}};
  });
  both("dt_bias", 20, [&](LinearCall& call, const float* at) {
    call.row_decay = decay, call.a_log = a_log, call.row_bias = {at, {4, 5}};
  });
  both("skip", 4, [](LinearCall& call, const float* at) { call.skip = {at, {4}}; });
  for (const Index shift : {-143, -1, 0, 1, 239}) {
    LinearCall call = o.with(&LinearCall::state, state);
    call.out = {p + shift, {2, 4, 3, 6}};
    o.push("state over out", call, {linear, "state", "out", "overlap"});
  }
  o.check(o.t.out.view, 105);
}

TEST_CASE("causal_convolution: illegal views") {
  Convolution o = convolution_operands();
  const ConvolutionCall good = o.t.call();
  o.views(convolution, "x", &ConvolutionCall::x, wrong_views(good.x));
  o.views(convolution, "weight", &ConvolutionCall::weight, wrong_views(good.weight));
  o.views(convolution, "y", &ConvolutionCall::y, wrong_outputs(good.y));
  o.views(convolution, "state", &ConvolutionCall::state, without_null(wrong_outputs(good.state)));
  o.views(convolution, "bias", &ConvolutionCall::bias, without_null(wrong_views(good.bias)));
  o.check(o.t.y.view.broadcast(0, 1), 75);
}

TEST_CASE("causal_convolution: shapes that do not match, widths out of range, illegal values") {
  Convolution o = convolution_operands();
  const ConvolutionCall good = o.t.call();
  const auto push = [&](const ConvolutionCall& call, const std::string& message) {
    o.push(message, call, {std::string(convolution) + ": " + message});
  };
  push(o.with(&ConvolutionCall::weight, with_size(good.weight, 0, 4)), "weight has 4 channels, x has 5 channels");
  push(o.with(&ConvolutionCall::y, with_size(good.y, 0, 1)), "y has 1 batch elements, x has 2 batch elements");
  push(o.with(&ConvolutionCall::y, with_size(good.y, 1, 3)), "y has 3 tokens, x has 4 tokens");
  push(o.with(&ConvolutionCall::y, with_size(good.y, 2, 4)), "y has 4 channels, x has 5 channels");
  push(o.with(&ConvolutionCall::state, with_size(good.state, 0, 1)), "state has 1 batch elements, x has 2");
  push(o.with(&ConvolutionCall::state, with_size(good.state, 1, 4)), "state has 4 channels, x has 5 channels");
  push(o.with(&ConvolutionCall::state, with_size(good.state, 2, 1)),
       "state has 1 tokens, wanted 2 (weight has width 3)");
  push(o.with(&ConvolutionCall::bias, with_size(good.bias, 0, 4)), "bias has 4 channels, x has 5 channels");
  for (const Index width : {Index{0}, max_convolution_width + 1, Index{1} << 40})
    push(o.with(&ConvolutionCall::weight, View<const float, 2>(good.weight.data, {5, width}, {0, 0})),
         "weight has width " + std::to_string(width) + ", it must be 1 to 64");
  push(o.with(&ConvolutionCall::activation, static_cast<Activation>(8)), "activation is 8");
  push(o.with(&ConvolutionCall::activation, static_cast<Activation>(255)), "activation is 255");
  for (const int threads : {-1, -2, std::numeric_limits<int>::min()})
    push(o.with(&ConvolutionCall::num_threads, threads), "num_threads is " + std::to_string(threads));
  o.check(o.t.y.view.broadcast(0, 1), 16);
}

TEST_CASE("causal_convolution: y and state over each other, and over inputs") {
  Convolution o = convolution_operands();
  float* const p = o.shared.view.data + 250;
  const View<float, 3> y(p, {2, 4, 5}), state(p, {2, 5, 2});
  const auto both = [&](const char* name, Index size,
                        const std::function<void(ConvolutionCall&, const float*)>& place) {
    for (const Index shift : {1 - size, Index{-1}, Index{0}, Index{1}, Index{19}}) {
      ConvolutionCall call = o.with(&ConvolutionCall::y, y);
      place(call, p + shift);
      o.push("y over an input", call, {convolution, "y", name, "overlap"});
      call = o.with(&ConvolutionCall::state, state);
      place(call, p + shift);
      o.push("state over an input", call, {convolution, "state", name, "overlap"});
    }
  };
  both("x", 40, [](ConvolutionCall& call, const float* at) { call.x = {at, {2, 4, 5}}; });
  both("weight", 15, [](ConvolutionCall& call, const float* at) { call.weight = {at, {5, 3}}; });
  both("bias", 5, [](ConvolutionCall& call, const float* at) { call.bias = {at, {5}}; });
  for (const Index shift : {-39, -1, 0, 1, 19}) {
    ConvolutionCall call = o.with(&ConvolutionCall::state, state);
    call.y = {p + shift, {2, 4, 5}};
    o.push("y over state", call, {convolution, "y", "state", "overlap"});
  }
  o.check(o.t.y.view.broadcast(0, 1), 35);
}

TEST_CASE_TEMPLATE("16-bit numbers: illegal calls", T, bfloat16, float16) {
  const Linear a = linear_operands(Decay::token);
  const Convolution b = convolution_operands();
  const HalfTensor<T, 4> q(a.t.q.view), v(a.t.v.view), out(a.t.out.view.shape);
  const HalfTensor<T, 3> x(b.t.x.view), y(b.t.y.view.shape);
  const View<const T, 4> in = q.view, values = v.view;
  const View<const T, 3> tokens = x.view;
  const View<T, 4> to = out.view;
  const View<T, 3> to_y = y.view;
  const View<const float, 2> weight = b.t.weight.view;
  const LinearAttentionOptions options = a.t.call().options();
  const CausalConvolutionOptions own = b.t.call().options();
  std::vector<Illegal> calls;
  add(calls, linear, "q", wrong_views(in), [=](auto view) { linear_attention(view, in, values, to, options); });
  add(calls, linear, "k", wrong_views(in), [=](auto view) { linear_attention(in, view, values, to, options); });
  add(calls, linear, "v", wrong_views(values), [=](auto view) { linear_attention(in, in, view, to, options); });
  add(calls, linear, "out", wrong_views(to), [=](auto view) { linear_attention(in, in, values, view, options); });
  add(calls, convolution, "x", wrong_views(tokens), [=](auto view) { causal_convolution(view, weight, to_y, own); });
  add(calls, convolution, "y", wrong_views(to_y), [=](auto view) { causal_convolution(tokens, weight, view, own); });
  // Options of float32 over outputs of 16 bits, and a state over an input.
  const HalfTensor<T, 1> shared({2000});
  float* const p = reinterpret_cast<float*>(shared.view.data + 200);
  const View<T, 4> over_out(shared.view.data + 200, {2, 4, 3, 6});
  const View<T, 3> over_y(shared.view.data + 200, {2, 4, 5});
  LinearAttentionOptions state = options, beta = options, over_input = options, a_log = options, dt_bias = options,
                         skip = options;
  state.state = {p + 71, {2, 4, 5, 6}};
  beta.beta = {p + 71, {2, 4, 3}};
  a_log.a_log = {p + 71, {4}};
  dt_bias.a_log = a.t.a_log.view;
  dt_bias.dt_bias = View<const float, 1>(p + 71, {4});
  skip.skip = {p + 71, {4}};
  over_input.state = {p, {2, 4, 5, 6}};
  CausalConvolutionOptions own_state = own, bias = own;
  own_state.state = {p + 19, {2, 5, 2}};
  bias.bias = {p + 19, {5}};
  const auto push = [&](const std::function<void()>& call, const std::vector<std::string>& words) {
    calls.push_back({words[0] + ", " + words[1] + " over " + words[2], call, words});
  };
  push([=] { linear_attention(in, in, values, over_out, state); }, {linear, "state", "out", "overlap"});
  push([=] { linear_attention(in, in, values, over_out, beta); }, {linear, "out", "beta", "overlap"});
  push([=] { linear_attention(in, in, values, over_out, a_log); }, {linear, "out", "a_log", "overlap"});
  push([=] { linear_attention(in, in, values, over_out, dt_bias); }, {linear, "out", "dt_bias", "overlap"});
  push([=] { linear_attention(in, in, values, over_out, skip); }, {linear, "out", "skip", "overlap"});
  push([=] { linear_attention(in, in, over_out, to, over_input); }, {linear, "state", "v", "overlap"});
  push([=] { causal_convolution(tokens, weight, over_y, own_state); }, {convolution, "y", "state", "overlap"});
  push([=] { causal_convolution(tokens, weight, over_y, bias); }, {convolution, "y", "bias", "overlap"});
  check_illegal(calls, [&] {
    bool untouched = true;
    const auto look = [&](const T& e) { untouched = untouched && e.bits == half_sentinel; };
    for_each(out.view, look), for_each(y.view, look), for_each(shared.view, look);
    return untouched && elements(a.t.state.view) == a.state && elements(b.t.state.view) == b.state;
  });
  CHECK(calls.size() >= 148);
}

}  // namespace
}  // namespace headlane::test
