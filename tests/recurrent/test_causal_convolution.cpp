// causal_convolution against the oracle: sizes, options, layouts, special values; the same bits
// everywhere, and for every cut of a sequence; guard pages.
#include "support/bit_comparison.hpp"
#include "support/convolution_case.hpp"
#include "support/guard.hpp"
#include "support/scope.hpp"
#include "support/sequence_case.hpp"

#include <doctest/doctest.h>
#include <headlane/limits.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace headlane::test {
namespace {

constexpr std::array<Index, 7> lengths{0, 1, 2, 63, 64, 65, 130};

TEST_CASE("causal_convolution: every number of channels, length, width and option") {
  Index number = 0;
  for (const Index channels : {1, 2, 15, 16, 17, 31, 32, 33, 64, 100, 128, 255, 256, 257, 530})
    for (const Index length : lengths)
      for (const Index width : {1, 2, 4, 5, 64}) {
        if (++number % 6 != 0 && (slow_isa() || channels * length * width > 100000)) continue;
        check_convolution(with_options(
            {.batch = 1 + number % 2, .length = length, .channels = channels, .width = width, .seed = 1}, number));
      }
  for (Index width = 1; width <= max_convolution_width; ++width)
    check_convolution(
        with_options({.length = width + width % 3 - 1, .channels = 18, .width = width, .seed = 2}, width));
  for (number = 0; number < 32; ++number)
    for (const Index length : {1, 2, 3, 4, 70})
      check_convolution(with_options({.batch = 2, .length = length, .channels = 35, .width = 4, .seed = 3}, number));
}

TEST_CASE("causal_convolution: every layout of every operand") {
  for (Index layout = 0; layout < std::ssize(layouts()); ++layout)
    for (const bool alike : {false, true})
      for (Index number = 0; number < 32; ++number) {
        const ConvolutionCase c{.batch = 2,
                                .length = number % 3 == 0 ? 1 : 66,
                                .channels = std::array<Index, 3>{1, 35, 290}[static_cast<std::size_t>(number % 3)],
                                .width = 1 + number % 5,
                                .seed = 4 + static_cast<std::uint64_t>(number),
                                .layout = layout,
                                .alike = alike};
        if (slow_isa() && number % 5 != 0) continue;
        check_convolution(with_options(c, number + layout));
      }
}

TEST_CASE("causal_convolution: broadcast inputs and weights, and inputs that are the same") {
  const ConvolutionCase c{.batch = 3, .length = 70, .channels = 40, .width = 4, .bias = true, .state = true, .seed = 5};
  for (unsigned axes = 0; axes < 8; ++axes) {  // those of stride 0
    const auto strided = [&](const auto& view) {
      auto result = view;
      for (std::size_t axis = 0; axis < result.shape.size(); ++axis)
        if ((axes >> axis & 1) != 0) result.strides[axis] = 0;
      return result;
    };
    const ConvolutionTensors a(c), b(c);
    ConvolutionCall broadcast = a.call();
    broadcast.x = strided(broadcast.x);
    broadcast.weight =
        View<const float, 2>(broadcast.x.data, {40, 4}, {axes % 2 == 0 ? 1 : 0, axes / 2 % 2 == 0 ? 3 : 0});
    broadcast.bias = View<const float, 1>(broadcast.x.data, {40}, {axes % 4 == 0 ? 0 : 2});
    copy<3>(broadcast.x, b.x.view), copy<2>(broadcast.weight, b.weight.view), copy<1>(broadcast.bias, b.bias.view);
    broadcast.run(), b.call().run();
    CHECK_MESSAGE(first_difference(a.y.view, b.y.view).empty(), "axes ", axes, ", isa ", isa());
    CHECK_MESSAGE(first_difference(a.state.view, b.state.view).empty(), "axes ", axes, ", isa ", isa());
  }
}

TEST_CASE("causal_convolution has the bits of its formula, special values included") {
  BitComparison bits;
  for (Index number = 0; number < 32; ++number)
    for (const Index one_in : {0, 7, 100, 3000}) {
      const ConvolutionCase c =
          with_options({.batch = 2, .length = 70, .channels = 35, .width = 1 + number / 2 % 5, .seed = 6}, number);
      const ConvolutionTensors actual(c), expected(c);
      for (const ConvolutionTensors* t : {&actual, &expected}) {
        Random random(static_cast<std::uint64_t>(one_in + number));
        if (one_in == 0) continue;
        add_special(t->x, random, one_in), add_special(t->state, random, one_in);
        add_special(t->weight, random, one_in), add_special(t->bias, random, one_in);
      }
      convolve_by_formula(expected.call());
      actual.call(2).run();
      bits.add(actual.y.view, expected.y.view, text_of(c) + ", one in " + std::to_string(one_in));
    }
  bits.finish("causal_convolution, formula", 128);
}

TEST_CASE("causal_convolution: a NaN or an infinity reaches the tokens that read it, in its channel") {
  for (const float value : {nan, infinity, -infinity})
    for (const Index width : {1, 4, 7})
      for (const Index token : {-3, -1, 0, 5, 62, 63, 64, 69}) {
        if (token <= -width) continue;
        const ConvolutionCase c{.batch = 2, .length = 70, .channels = 35, .width = width, .state = true, .seed = 7};
        const ConvolutionTensors t(c), clean(c);
        if (token < 0) t.state.view(1, 33, width - 1 + token) = value;
        else t.x.view(1, token, 33) = value;
        clean.call().run(), t.call().run();
        Index wrong = 0;
        for_each_position(t.y.view.shape, [&](const auto& at) {
          const auto [b, i, channel] = at;
          const bool reached = b == 1 && channel == 33 && i >= token && i < token + width;
          const float y = t.y.view(b, i, channel);
          wrong += (reached ? !std::isfinite(y) : bits_of(y) == bits_of(clean.y.view(b, i, channel))) ? 0 : 1;
        });
        CHECK_MESSAGE(wrong == 0, text_of(c), ", ", value, " at ", token, ", isa ", isa());
        CHECK((different_bits(t.state.view, clean.state.view) == 0) == (token < 70 - (width - 1)));
      }
}

TEST_CASE("causal_convolution: instruction sets, threads, strides, channels alone: the same bits") {
  BitComparison bits;
  for (Index number = 0; number < 32; number += slow_isa() ? 11 : 5)
    for (const auto& [batch, length, channels] :
         {std::array<Index, 3>{1, 130, 900}, {3, 130, 290}, {40, 3, 700}, {7, 65, 35}}) {
      const SameBits<ConvolutionTensors> same(
          with_options({.batch = batch, .length = length, .channels = channels, .width = 1 + number % 6, .seed = 8},
                       number),
          bits);
      for (const int threads : {1, 2, 3, 7})
        same.add("threads", same.c, [&](const ConvolutionTensors& t) { t.call(threads).run(); });
      for (const auto name : available_isas()) {
        const IsaScope scope(name);
        same.add(std::string(name), same.c, [&](const ConvolutionTensors& t) { t.call(2).run(); });
      }
      ConvolutionCase strided = same.c;
      for (strided.layout = 1; strided.layout < std::ssize(layouts()); ++strided.layout)
        same.add("strided", strided, [&](const ConvolutionTensors& t) { t.call(3).run(); });
      for (const Index count : {1, 17, 300})
        same.add("some channels", same.c, [&](const ConvolutionTensors& t) {
          for (Index b = 0; b < batch; ++b)
            for (Index first = 0; first < channels; first += count)
              t.call(2).part(b, first, std::min(first + count, channels)).run();
        });
    }
  bits.finish("causal_convolution", slow_isa() ? 200 : 700);
}

TEST_CASE("causal_convolution: every cut of a sequence into calls has the bits of one call") {
  BitComparison bits;
  for (Index number = 2; number < 32; ++number) {
    for (const Index width : {1, 2, 4, 9, 64}) {
      ConvolutionCase c = with_options({.batch = 2, .length = 130, .channels = 19, .width = width, .seed = 9}, number);
      if (!c.state || (slow_isa() && (number + width) % 3 != 0)) continue;
      const SameBits<ConvolutionTensors> same(c, bits);
      same.add_cut(std::vector<Index>(130, 1), c, 1);
      Random random(static_cast<std::uint64_t>(number));
      for (const auto& cut :
           std::vector<std::vector<Index>>{{64, 64}, {63, 1}, {65}, {129}, {1, 128}, {7, 0, 57}, {2, 2, 3, 0, 1}}) {
        c.layout = random.integer(-1, 7);
        same.add_cut(cut, c, static_cast<int>(random.integer(1, 3)));
      }
      c.layout = 1 + number % 7;
      same.add_cut(std::vector<Index>(130, 1), c, 2);
    }
  }
  const SameBits<ConvolutionTensors> short_one(
      {.length = 67, .channels = 5, .width = 6, .bias = true, .state = true, .seed = 10}, bits);
  for (Index first = 0; first <= 67; ++first) short_one.add_cut({first}, short_one.c, 1);
  bits.finish("causal_convolution, cut", slow_isa() ? 400 : 1000);
}

// Each length is that of channels, of a sequence and of the weights.
TEST_CASE("causal_convolution between guard pages") {
  Counts counts;
  Guarded<3> x, y, state;
  Guarded<2> weight;
  Guarded<1> bias;
  everywhere([&](Index length, Index gap, Place where) {
    for (const Index role : {0, 1, 2}) {
      if (role == 2 && (length == 0 || length > max_convolution_width)) continue;
      if (length <= 96 && !slow_isa() && gap % 3 != role) continue;  // there are 16 gaps
      const Index other = 1 + (length + gap / 3) % 3;
      ConvolutionCase c{.batch = 2,
                        .length = role == 1 ? length : other,
                        .channels = role == 0 ? length : other,
                        .width = role == 2 ? length : other + 1,
                        .seed = 11};
      c = with_options(c, length + 7 * gap);
      const ConvolutionTensors t(c), copies(c);
      const bool vary = (length + gap / 2) % 2 == 0;
      const auto place = [&](auto& guarded, const auto& tensor, Index operand) {
        guarded.place(tensor.view, vary ? layout_of(length, gap, operand) : Layout{}, gap, where);
      };
      place(x, t.x, 1), place(y, t.y, 2), place(weight, t.weight, 3);
      ConvolutionCall call = t.call();
      call.x = x.view, call.y = y.view, call.weight = weight.view;
      if (call.state) place(state, t.state, 4), call.state = state.view;
      if (call.bias) place(bias, t.bias, 5), call.bias = bias.view;
      call.run();
      copies.call().run();
      counts.add(different_bits(y.view, copies.y.view) == 0 &&
                     (!call.state || different_bits(state.view, copies.state.view) == 0),
                 y.buffer.surroundings_untouched() && (!call.state || state.buffer.surroundings_untouched()),
                 text_of_case("causal_convolution, role " + std::to_string(role) + ",", length, gap, where));
    }
  });
  counts.finish("causal_convolution", slow_isa() ? 2000 : 4000);
}

}  // namespace
}  // namespace headlane::test
