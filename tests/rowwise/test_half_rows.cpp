// Operations on rows of bfloat16 and float16: the bits of the float32 result of the widened input,
// rounded once; in any layout, in place, on several threads.
#include "support/half_tensor.hpp"
#include "support/illegal.hpp"
#include "support/mask_case.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <functional>
#include <memory>
#include <string>

namespace headlane::test {
namespace {

using Shape = std::array<Index, 4>;

/// An operation on tensors of one shape, for each type.
struct Operation {
  std::string name;
  std::function<void(View<const float, 4>, View<float, 4>, int)> of_floats;
  std::function<void(View<const bfloat16, 4>, View<bfloat16, 4>, int)> of_bfloat16;
  std::function<void(View<const float16, 4>, View<float16, 4>, int)> of_float16;

  void operator()(const View<float, 4>& x, const View<float, 4>& y, int threads) const { of_floats(x, y, threads); }
  void operator()(const View<bfloat16, 4>& x, const View<bfloat16, 4>& y, int threads) const {
    of_bfloat16(x, y, threads);
  }
  void operator()(const View<float16, 4>& x, const View<float16, 4>& y, int threads) const {
    of_float16(x, y, threads);
  }
};

/// What the options of operations on this shape point to.
struct Options {
  explicit Options(const Shape& shape, const Layout& layout)
      : bias(shape, layout),
        residual(shape, layout),
        sum(shape, layout),
        weight({shape[3]}, {.step = 2}),
        vector({shape[3]}),
        frequencies({shape[3] / 2}),
        lengths(static_cast<std::size_t>(shape[0] * shape[1] * shape[2])),
        starts(static_cast<std::size_t>(shape[0])),
        flags(new bool[lengths.size()]) {
    Random random(3);
    for (const auto& view : {bias.view, residual.view}) fill_normal(view, random);
    for (const auto& view : {weight.view, vector.view, frequencies.view}) fill_normal(view, random);
    for (Index& length : lengths) length = random.integer(0, shape[3]);
    for (Index& start : starts) start = random.integer(0, 500);
    for (std::size_t i = 0; i < lengths.size(); ++i) flags[i] = random.integer(0, 3) != 0;
    bfloat_bias = HalfTensor<bfloat16, 4>(bias.view.slice(1, 0, 1), layout);
    half_bias = HalfTensor<float16, 4>(bias.view.slice(0, 0, 1).slice(3, 0, 1), layout);
  }

  Tensor<4> bias, residual, sum;
  HalfTensor<bfloat16, 4> bfloat_bias{{1, 1, 1, 1}};  ///< with some axes of one element
  HalfTensor<float16, 4> half_bias{{1, 1, 1, 1}};
  Tensor<1> weight, vector, frequencies;
  std::vector<Index> lengths, starts;
  std::unique_ptr<bool[]> flags;
};

template <class F>
void add(std::vector<Operation>& all, const std::string& name, const F& f) {
  all.push_back({name, f, f, f});
}

void add_softmax(std::vector<Operation>& all, const Shape& shape, const Options& o) {
  const auto plain = [&](const std::string& name, const SoftmaxOptions& options) {
    add(all, "softmax, " + name, [=](auto x, auto y, int threads) {
      SoftmaxOptions own = options;
      own.num_threads = threads;
      softmax(x, y, own);
    });
  };
  plain("plain", {});
  plain("log", {.scale = 0.7f, .log = true});
  for (const int axis : {0, 1, 2}) plain("axis " + std::to_string(axis), {.axis = axis});
  SoftmaxOptions options{.bias = View<const float, 4>(o.bias.view)};
  const View<const bool, 4> mask(o.flags.get(), shape, {shape[1] * shape[2], shape[2], 1, 0});
  options.mask = mask;
  plain("mask and bias", options);
  options.axis = 1;
  plain("mask and bias, axis 1", options);
  options.bias = stretched(o.half_bias.view, shape);
  plain("mask and bias of float16, axis 1", options);
  options.axis = -1;
  plain("mask and bias of float16", options);
  plain("bias of bfloat16", {.bias = stretched(o.bfloat_bias.view, shape)});
  options = {.lengths = View<const Index, 3>(o.lengths.data(), {shape[0], shape[1], shape[2]})};
  plain("lengths", options);
  for (const Index offset : {Index{0}, Index{-7}, Index{9}, Index{-9999}, std::numeric_limits<Index>::max(),
                             std::numeric_limits<Index>::min()})
    plain("causal " + std::to_string(offset), {.causal = true, .causal_offset = offset});
}

void add_norms(std::vector<Operation>& all, const Options& o) {
  const View<const float, 4> residual = o.residual.view;
  add(all, "layer_norm", [](auto x, auto y, int threads) { layer_norm(x, y, {.num_threads = threads}); });
  add(all, "layer_norm, all options", [=, &o](auto x, auto y, int threads) {
    layer_norm(x, y,
               {.eps = 1e-3f,
                .weight = o.weight.view,
                .bias = o.vector.view,
                .residual = residual,
                .sum = o.sum.view,
                .num_threads = threads});
  });
  add(all, "rms_norm",
      [=, &o](auto x, auto y, int threads) { rms_norm(x, y, {.weight = o.weight.view, .num_threads = threads}); });
  add(all, "rms_norm, residual", [=](auto x, auto y, int threads) {
    rms_norm(x, y, {.residual = residual.broadcast(0, 1).select(0, 0), .num_threads = threads});
  });
}

void add_activations(std::vector<Operation>& all) {
  for (int kind = static_cast<int>(Activation::none) + 1; kind <= static_cast<int>(Activation::erf); ++kind)
    add(all, "activation " + std::to_string(kind),
        [=](auto x, auto y, int threads) { activate(x, y, static_cast<Activation>(kind), {.num_threads = threads}); });
}

void add_positions(std::vector<Operation>& all, const Shape& shape, const Options& o) {
  const auto rotary = [&](const std::string& name, const RotaryOptions& options) {
    add(all, "rotary_embedding, " + name, [=](auto x, auto y, int threads) {
      RotaryOptions own = options;
      own.num_threads = threads;
      rotary_embedding(x, y, own);
    });
  };
  const Index even = shape[3] / 2 * 2;
  rotary("plain", {.rotary_dim = even});
  rotary("some, from 1000", {.rotary_dim = shape[3] / 4 * 2, .interleaved = true, .offset = 1000});
  rotary("starts", {.rotary_dim = even, .offset = 3, .positions = View<const Index, 1>(o.starts.data(), {shape[0]})});
  rotary("positions",
         {.rotary_dim = even, .offset = 3, .positions = View<const Index, 2>(o.lengths.data(), {shape[0], shape[2]})});
  rotary("frequencies", {.rotary_dim = even, .frequencies = View<const float, 1>(o.frequencies.view)});
  for (const bool interleaved : {false, true})
    add(all, "add_sinusoidal_encoding", [=](auto x, auto y, int threads) {
      add_sinusoidal_encoding(x, y, {.offset = 77, .interleaved = interleaved, .scale = 0, .num_threads = threads});
    });
}

std::vector<Operation> all_operations(const Shape& shape, const Options& o) {
  std::vector<Operation> all;
  add_softmax(all, shape, o);
  add_norms(all, o);
  add_activations(all);
  add_positions(all, shape, o);
  return all;
}

/// y, and x in place, beside the rounded result of floats.
template <class T>
void check(const Operation& operation, const HalfTensor<T, 4>& x, const Layout& layout_y, const Options& o) {
  const Tensor<4> floats = x.widened(), expected(x.view.shape), sum(x.view.shape);
  operation(floats.view, expected.view, 1);
  copy<4>(o.sum.view, sum.view);
  HalfTensor<T, 4> y(x.view.shape, layout_y);
  for (const int threads : {1, 3}) {
    INFO(operation.name, ", ", name_of_half<T>(), ", y ", layout_y.name, ", ", threads, " threads, isa ", isa());
    for_each(o.sum.view, [](float& e) { e = 0; });
    for_each(y.view, [](T& e) { e.bits = 0; });
    operation(x.view, y.view, threads);
    CHECK(different_from_rounded(y.view, expected.view) == 0);
    if (operation.name == "layer_norm, all options") CHECK(different_bits(o.sum.view, sum.view) == 0);
    CHECK(different_bits(x.widened().view, floats.view) == 0);
  }
  operation(x.view, x.view, 2);
  INFO(operation.name, ", ", name_of_half<T>(), " in place, isa ", isa());
  CHECK(different_from_rounded(x.view, expected.view) == 0);
  CHECK((x.surroundings_untouched() && y.surroundings_untouched()));
}

template <class T>
void check_all(const Shape& shape, const Layout& layout_x, const Layout& layout_y) {
  const Options o(shape, layout_y);
  for (const Operation& operation : all_operations(shape, o)) {
    Random random(9);
    Tensor<4> values(shape);
    for_each(values.view, [&](float& e) { e = 3 * random.normal(); });
    check(operation, HalfTensor<T, 4>(values.view, layout_x), layout_y, o);
  }
}

TEST_CASE_TEMPLATE("rows of 16-bit numbers: the rounded results of float32, in every layout", T, bfloat16, float16) {
  std::vector<Layout> all = layouts();
  all.push_back({.name = "middle", .order = Order::middle});
  for (const Layout& layout : all) {
    check_all<T>({2, 3, 5, 34}, layout, {});
    check_all<T>({2, 3, 5, 34}, {}, layout);
  }
}

TEST_CASE_TEMPLATE("rows of 16-bit numbers: many blocks, long rows, tails", T, bfloat16, float16) {
  if (slow_isa()) return check_all<T>({2, 2, 130, 66}, {}, {.name = "transposed", .order = Order::columns});
  check_all<T>({3, 4, 129, 66}, {}, {.name = "transposed", .order = Order::columns});
  check_all<T>({2, 3, 200, 130}, {.name = "middle", .order = Order::middle}, {});
  check_all<T>({1, 2, 3, 9002}, {}, {});
  check_all<T>({70, 1, 2, 300}, {}, {});
  for (const Index n : {2, 15, 17, 33}) check_all<T>({1, 1, 3, n}, {}, {});
}

template <class T>
HalfTensor<T, 3> zeros(const std::array<Index, 3>& shape) {
  HalfTensor<T, 3> x(shape);
  for_each(x.view, [](T& e) { e.bits = 0; });
  return x;
}

TEST_CASE_TEMPLATE("rows of 16-bit numbers: illegal calls", T, bfloat16, float16) {
  const HalfTensor<T, 3> x = zeros<T>({2, 4, 6});
  const HalfTensor<T, 3> y({2, 4, 6});
  const Tensor<3> floats({2, 4, 6});
  const View<const T, 3> in = x.view;
  const View<T, 3> out = y.view;
  std::vector<Illegal> calls;
  const auto push = [&](const std::string& what, const std::function<void()>& call,
                        const std::vector<std::string>& words) { calls.push_back({what, call, words}); };
  const auto heads = [](const auto& view) { return view.broadcast(0, 1); };
  for (const auto& wrong : wrong_views(in)) {
    const View<const T, 3> view = wrong.view;
    push("softmax, x " + wrong.what, [=] { softmax(view, out); }, {"softmax: x"});
    push("activate, x " + wrong.what, [=] { activate(view, out, Activation::silu); }, {"activate: x"});
    push("layer_norm, x " + wrong.what, [=] { layer_norm(view, out); }, {"layer_norm: x"});
    push("rms_norm, x " + wrong.what, [=] { rms_norm(view, out); }, {"rms_norm: x"});
    push("rotary_embedding, x " + wrong.what, [=] { rotary_embedding(heads(view), heads(out)); },
         {"rotary_embedding: x"});
    push("add_sinusoidal_encoding, x " + wrong.what, [=] { add_sinusoidal_encoding(view, out); },
         {"add_sinusoidal_encoding: x"});
  }
  const View<T, 3> zero(out.data, out.shape, {24, 0, 1});
  push("softmax, y", [=] { softmax(in, zero); }, {"softmax: y", "overlaps itself"});
  push("softmax, axis", [=] { softmax(in, out, {.axis = 3}); }, {"softmax: axis is 3", "[2, 4, 6]"});
  push("softmax, partly in place", [=] { softmax(out.slice(2, 0, 5), out.slice(2, 1, 6)); },
       {"softmax: y", "overlaps x"});
  push("softmax, bias", [=, &floats] { softmax(in, out, {.bias = View<const float, 3>(floats.view.slice(1, 0, 3))}); },
       {"softmax: bias has 3 elements along axis 1, x has 4"});
  const View<const float, 3> over(reinterpret_cast<const float*>(out.data), {2, 4, 6}, out.strides);
  push("softmax, bias over y", [=] { softmax(in, out, {.bias = over}); }, {"softmax: y", "overlaps bias"});
  const View<const bfloat16, 3> half_over(reinterpret_cast<const bfloat16*>(out.data), {2, 4, 6}, {0, 0, 0});
  push("softmax, bias of bfloat16 over y", [=] { softmax(in, out, {.bias = half_over}); },
       {"softmax: y", "overlaps bias"});
  push("layer_norm, residual over y", [=] { layer_norm(in, out, {.residual = over}); },
       {"layer_norm: y", "overlaps residual"});
  push("layer_norm, weight",
       [=, &floats] { layer_norm(in, out, {.weight = floats.view.select(0, 0).select(0, 0).slice(0, 0, 5)}); },
       {"layer_norm: weight has 5 elements, x has 6"});
  push("rms_norm, eps", [=] { rms_norm(in, out, {.eps = -1}); }, {"rms_norm: eps is -1"});
  push("activate, activation", [=] { activate(in, out, Activation::none); }, {"activate: activation is 0"});
  push("rotary_embedding", [=] { rotary_embedding(heads(in), heads(out), {.rotary_dim = 8}); },
       {"rotary_embedding: rotary_dim is 8, x has 6 columns"});
  push("sinusoidal_encoding", [=] { sinusoidal_encoding(out.select(0, 0), {.scale = 2}); },
       {"sinusoidal_encoding: scale is 2"});
  push("sinusoidal_encoding", [=] { sinusoidal_encoding(zero.select(0, 0)); },
       {"sinusoidal_encoding: y", "overlaps itself"});
  push("num_threads", [=] { activate(in, out, Activation::relu, {.num_threads = -1}); },
       {"activate: num_threads is -1"});
  check_illegal(calls, [&] {
    bool untouched = true;
    for_each(y.view, [&](const T& e) { untouched = untouched && e.bits == half_sentinel; });
    return untouched && y.surroundings_untouched() && x.surroundings_untouched();
  });
}

/// The table of a type is that of floats, rounded.
TEST_CASE_TEMPLATE("sinusoidal_encoding in 16-bit numbers", T, bfloat16, float16) {
  for (const std::array<Index, 2>& shape : {std::array<Index, 2>{3, 7}, {700, 130}, {2, 20001}})
    for (const Layout& layout : layouts()) {
      const Tensor<2> expected(shape);
      const HalfTensor<T, 2> y(shape, layout);
      sinusoidal_encoding(expected.view, {.offset = 1000});
      sinusoidal_encoding(y.view, {.offset = 1000});
      CHECK(different_from_rounded(y.view, expected.view) == 0);
      CHECK(y.surroundings_untouched());
    }
}

}  // namespace
}  // namespace headlane::test
