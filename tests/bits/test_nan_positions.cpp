// NaN and infinities at random positions: every instruction set returns NaN at the same positions,
// and the same bits elsewhere. Sign and payload of a NaN are not compared, since IEEE 754 leaves
// them open.
#include "support/data.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <cmath>
#include <functional>

namespace headlane::test {
namespace {

/// NaNs of both signs and several payloads, infinities and zeros among normal numbers.
void fill_special(const View<float, 2>& view, Random& random, Index one_in) {
  static const std::vector<std::uint32_t> special{0x7fc00000u, 0xffc00000u, 0x7fc12345u, 0xffe54321u,
                                                  0x7f800000u, 0xff800000u, 0x00000000u, 0x80000000u};
  for_each(view, [&](float& x) {
    x = random.integer(1, one_in) == 1 ? std::bit_cast<float>(random.pick(special)) : random.normal();
  });
}

View<float, 4> one_head(const View<float, 2>& v) { return v.broadcast(0, 1).broadcast(0, 1); }

void delta_rule(const View<float, 2>& a, const View<float, 2>& b, const View<float, 2>& input,
                const View<float, 2>& y) {
  const View<const float, 3> beta = View<const float, 2>(a.slice(0, 0, 1)).broadcast(0, 1);
  linear_attention(one_head(a), one_head(b), one_head(input), one_head(y),
                   {.normalize = true, .log_decay = one_head(b), .beta = beta});
}

void gated_rule(const View<float, 2>& a, const View<float, 2>& b, const View<float, 2>& input,
                const View<float, 1>& weight, const View<float, 2>& y) {
  const View<const float, 3> beta = View<const float, 2>(a.slice(0, 0, 1)).broadcast(0, 1);
  linear_attention(one_head(a), one_head(b), one_head(input), one_head(y),
                   {.normalize = true,
                    .log_decay = one_head(b),
                    .beta = beta,
                    .a_log = weight.slice(0, 0, 1),
                    .dt_bias = input.slice(0, 0, 1),
                    .sigmoid_beta = true});
}

void discretized(const View<float, 2>& a, const View<float, 2>& b, const View<float, 2>& input,
                 const View<float, 1>& weight, const View<float, 2>& y) {
  const View<const float, 3> gate = View<const float, 2>(a.slice(0, 0, 1)).broadcast(0, 1);
  linear_attention(one_head(a), one_head(b), one_head(input), one_head(y),
                   {.log_decay = gate,
                    .a_log = weight.slice(0, 0, 1),
                    .dt_bias = weight.slice(0, 1, 2),
                    .discretize = true,
                    .skip = weight.slice(0, 2, 3)});
}

TEST_CASE("NaN stands at the same places on every instruction set") {
  constexpr Index n = 67;
  Index nans = 0, numbers = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Random random(seed);
    const Index one_in = random.pick(std::vector<Index>{30, 300, 3000});
    const Tensor<2> a({n, n}), b({n, n}), y({n, n}), expected({n, n}), input({n, n});
    const Tensor<1> weight({n});
    fill_special(a.view, random, one_in);
    fill_special(b.view, random, one_in);
    fill_special(input.view, random, one_in);
    fill_normal(weight.view, random);
    const std::vector<std::pair<const char*, std::function<void()>>> all{
        {"gemm", [&] { gemm(a.view, b.view, y.view, {.alpha = 0.7f, .beta = 0.3f, .bias = weight.view}); }},
        {"gemm gelu", [&] { gemm(a.view, b.view, y.view, {.activation = Activation::gelu, .residual = input.view}); }},
        {"gemm_gated", [&] { gemm_gated(a.view, b.view, input.view, y.view, {.activation = Activation::silu}); }},
        {"softmax", [&] { softmax(a.view, y.view); }},
        {"log softmax", [&] { softmax(a.view, y.view, {.log = true}); }},
        {"causal softmax", [&] { softmax(a.view, y.view, {.bias = View<const float, 2>(b.view), .causal = true}); }},
        {"layer_norm", [&] { layer_norm(a.view, y.view, {.weight = weight.view}); }},
        {"rms_norm", [&] { rms_norm(a.view, y.view, {.weight = weight.view}); }},
        {"gelu", [&] { activate(a.view, y.view, Activation::gelu); }},
        {"tanh", [&] { activate(a.view, y.view, Activation::tanh); }},
        {"linear_attention",
         [&] { linear_attention(one_head(a.view), one_head(b.view), one_head(input.view), one_head(y.view)); }},
        {"linear_attention, the delta rule", [&] { delta_rule(a.view, b.view, input.view, y.view); }},
        {"linear_attention, gates", [&] { gated_rule(a.view, b.view, input.view, weight.view, y.view); }},
        {"linear_attention, steps and skip", [&] { discretized(a.view, b.view, input.view, weight.view, y.view); }},
        {"causal_convolution",
         [&] {
           causal_convolution(a.view.broadcast(0, 1), b.view.slice(1, 0, 5), y.view.broadcast(0, 1),
                              {.bias = weight.view, .activation = Activation::silu});
         }},
        {"sinusoidal", [&] { add_sinusoidal_encoding(View<const float, 2>(a.view), y.view); }},
        {"attention", [&] { attention(one_head(a.view), one_head(b.view), one_head(input.view), one_head(y.view)); }},
        {"causal attention", [&] {
           attention(one_head(a.view), one_head(b.view), one_head(input.view), one_head(y.view),
                     {.softcap = 3, .causal = true, .window_left = 20});
         }}};
    for (const auto& [name, run] : all) {
      bool first = true;
      for (const std::string_view isa_name : available_isas()) {
        const IsaScope scope(isa_name);
        copy<2>(input.view, y.view);
        run();
        if (first) copy<2>(y.view, expected.view);
        first = false;
        CHECK_MESSAGE(different_bits(y.view, expected.view) == 0, name, ", ", isa_name, ", seed ", seed);
      }
      for_each(expected.view, [&](float x) { ++(std::isnan(x) ? nans : numbers); });
    }
  }
  MESSAGE(nans, " NaNs, ", numbers, " numbers");
  CHECK(nans > 10000);
  CHECK(numbers > 10000);
}

}  // namespace
}  // namespace headlane::test
