// linear_attention against the oracle: sizes, options, layouts, broadcast decays, the models
// that it computes; the same bits everywhere, and for every cut of a sequence.
#include "support/bit_comparison.hpp"
#include "support/linear_attention_case.hpp"
#include "support/reference_linear_attention.hpp"
#include "support/scope.hpp"
#include "support/sequence_case.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

namespace headlane::test {
namespace {

constexpr std::array<Index, 11> dims{1, 2, 15, 16, 17, 31, 32, 33, 64, 100, 128};
constexpr std::array<Index, 7> lengths{0, 1, 2, 63, 64, 65, 130};

TEST_CASE("linear_attention: every pair of dims and every length, with any options") {
  Index number = 0;
  for (const Index key_dim : dims)
    for (const Index value_dim : dims) {
      const bool large = key_dim * value_dim > 4000;
      const Index length = large ? 3 + number % 4 : lengths[static_cast<std::size_t>(number % 7)];
      check_linear(with_options({.length = length, .key_dim = key_dim, .value_dim = value_dim, .seed = 1},
                                number * 5 + number / 11));
      ++number;
    }
  for (const Index dim : dims) check_linear({.length = 65, .key_dim = 9, .value_dim = dim, .beta = true, .seed = 2});
  check_linear({.length = 2, .key_dim = 512, .value_dim = 35, .decay = Decay::row, .beta = true, .seed = 3});
  check_linear({.length = 2, .key_dim = 35, .value_dim = 512, .normalize = true, .seed = 3});
}

TEST_CASE("linear_attention: every combination of options, at every length, with grouped heads") {
  for (Index number = 0; number < 48; ++number)
    for (const Index length : lengths) {
      if (length > 2 && (number + length) % (slow_isa() ? 8 : 4) != 0) continue;
      const LinearCase c{.batch = 2,
                         .key_heads = 1 + number % 2,
                         .heads = 2,
                         .length = length,
                         .key_dim = 18,
                         .value_dim = 35,
                         .seed = 4};
      check_linear(with_options(c, number));
    }
  for (const auto& [key_heads, heads] : {std::pair<Index, Index>{1, 6}, {2, 6}, {3, 6}, {6, 6}})
    check_linear({.batch = 2,
                  .key_heads = key_heads,
                  .heads = heads,
                  .length = 7,
                  .key_dim = 16,
                  .value_dim = 33,
                  .decay = Decay::token,
                  .beta = true,
                  .state = true,
                  .seed = 5});
}

TEST_CASE("linear_attention: every layout of every operand") {
  for (Index layout = 0; layout < std::ssize(head_layouts()); ++layout)
    for (const bool alike : {false, true})
      for (Index number = 0; number < 48; number += slow_isa() ? 7 : 1) {
        const LinearCase c{.batch = 2,
                           .key_heads = 2,
                           .heads = 4,
                           .length = number % 5 == 0 ? 1 : 5 + number % 3,
                           .key_dim = 10,
                           .value_dim = std::array<Index, 3>{34, 32, 7}[static_cast<std::size_t>(number % 3)],
                           .seed = 6 + static_cast<std::uint64_t>(number),
                           .layout = layout,
                           .alike = alike};
        check_linear(with_options(c, number + layout));
      }
  for (Index layout = 0; layout < std::ssize(head_layouts()); ++layout) {  // from one block of tokens to the next
    const LinearCase c{.heads = 1,
                       .length = 67,
                       .key_dim = 17,
                       .value_dim = 40,
                       .decay = Decay::row,
                       .beta = true,
                       .state = true,
                       .normalize = true,
                       .seed = 7,
                       .layout = layout};
    check_linear(c);
  }
}

// Operands of any strides have the bits of dense ones, of which there are copies in `dense`.
TEST_CASE("linear_attention: broadcast decays, beta, keys and values, and inputs that are the same") {
  const Index batch = 2, heads = 4, length = 66, dim = 33;
  const LinearCase c{.batch = batch,
                     .key_heads = heads,
                     .heads = heads,
                     .length = length,
                     .key_dim = dim,
                     .value_dim = dim,
                     .beta = true,
                     .state = true,
                     .seed = 8};
  for (unsigned axes = 0; axes < 16; ++axes) {  // those of stride 0
    const auto strided = [&](const auto& view) {
      auto result = view;
      for (std::size_t axis = 0; axis < result.shape.size(); ++axis)
        if ((axes >> axis & 1) != 0) result.strides[axis] = 0;
      return result;
    };
    const LinearTensors a(c), b(c);
    LinearCall broadcast = a.call(), dense = b.call();
    broadcast.beta = strided(broadcast.beta);
    copy<3>(broadcast.beta, b.beta.view);
    if (axes % 2 == 0) {
      broadcast.row_decay = strided(View<const float, 4>(a.row_decay.view));
      copy<4>(broadcast.row_decay, b.row_decay.view);
      dense.row_decay = b.row_decay.view;
    } else {
      broadcast.decay = strided(View<const float, 3>(a.decay.view));
      copy<3>(broadcast.decay, b.decay.view);
      dense.decay = b.decay.view;
    }
    const bool same = axes / 2 % 2 == 0;
    broadcast.k = strided(broadcast.k);
    broadcast.v = same ? broadcast.k : strided(broadcast.v);
    if (same) broadcast.q = broadcast.k;
    copy<4>(broadcast.q, b.q.view), copy<4>(broadcast.k, b.k.view), copy<4>(broadcast.v, b.v.view);
    broadcast.run(), dense.run();
    CHECK_MESSAGE(first_difference(a.out.view, b.out.view).empty(), "axes ", axes, ", isa ", isa());
    CHECK_MESSAGE(first_difference(a.state.view, b.state.view).empty(), "axes ", axes, ", isa ", isa());
  }
}

// The largest |value - expected| in `out`, whose elements are about 1.
template <class F>
double worst_error(const View<float, 4>& out, const F& expected) {
  double worst = 0;
  for_each_position(out.shape, [&](const auto& at) {
    worst = std::max(worst, std::abs(double{out.data[offset_of(at, out.strides)]} - expected(at[1], at[2], at[3])));
  });
  return worst;
}

TEST_CASE("linear_attention without beta is attention without softmax, with a decay that of RetNet") {
  for (const bool decays : {false, true}) {
    const LinearTensors t({.key_heads = 2,
                           .heads = 4,
                           .length = 80,
                           .key_dim = 24,
                           .value_dim = 20,
                           .decay = decays ? Decay::token : Decay::none,
                           .scale = 0.5f,
                           .seed = 9});
    t.call().run();
    const double worst = worst_error(t.out.view, [&](Index h, Index i, Index j) {
      double sum = 0, decay = 0;
      for (Index s = i; s >= 0; --s) {
        double score = 0;
        for (Index e = 0; e < 24; ++e) score += double{t.q.view(0, h / 2, i, e)} * double{t.k.view(0, h / 2, s, e)};
        sum += score * std::exp(decay) * double{t.v.view(0, h, s, j)};
        if (decays) decay += double{t.decay.view(0, h, s)};
      }
      return 0.5 * sum;
    });
    CHECK_MESSAGE(worst < 1e-5, "isa ", isa());
    CHECK(std::abs(t.out.view(0, 3, 79, 19)) > 1e-3f);
  }
}

TEST_CASE("linear_attention with beta 1 and normalised keys: the state returns the value of a key") {
  const LinearTensors t({.heads = 2,
                         .length = 90,
                         .key_dim = 24,
                         .value_dim = 40,
                         .decay = Decay::row,
                         .beta = true,
                         .normalize = true,
                         .scale = 1.0f,
                         .seed = 10});
  for_each(t.beta.view, [](float& x) { x = 1; });
  LinearCall call = t.call();
  call.eps = 0;
  call.q = call.k;
  call.run();
  const double worst = worst_error(t.out.view, [&](Index h, Index i, Index j) { return double{t.v.view(0, h, i, j)}; });
  CHECK_MESSAGE(worst < 2e-5, "isa ", isa());
}

TEST_CASE("linear_attention: instruction sets, threads, strides, a head alone: the same bits") {
  BitComparison bits;
  const LinearCase wide{
      .batch = 2, .key_heads = 2, .heads = 4, .length = 130, .key_dim = 33, .value_dim = 70, .seed = 11};
  const LinearCase tall{.length = 130, .key_dim = 64, .value_dim = 100, .seed = 12};
  for (Index number = 0; number < 48; number += slow_isa() ? 11 : 5) {
    for (const LinearCase& sizes : {wide, tall})
      add_other_ways(SameBits<LinearTensors>(with_options(sizes, number), bits));
  }
  bits.finish("linear_attention", slow_isa() ? 250 : 500);
}

TEST_CASE("linear_attention: every cut of a sequence into calls has the bits of one call") {
  BitComparison bits;
  for (Index number = 0; number < 48; ++number) {
    LinearCase c = with_options(
        {.batch = 2, .key_heads = 1, .heads = 2, .length = 130, .key_dim = 17, .value_dim = 35, .seed = 13}, number);
    if (!c.state) continue;
    if (slow_isa() && number % 4 != 0) continue;
    const SameBits<LinearTensors> same(c, bits);
    const std::vector<Index> tokens(130, 1);
    same.add_cut(tokens, c, 1);
    Random random(static_cast<std::uint64_t>(number));
    for (const auto& cut :
         std::vector<std::vector<Index>>{{64, 64}, {63, 1}, {65}, {129}, {1}, {1, 128}, {7, 0, 57}, {0, 64, 0, 1}}) {
      c.layout = random.integer(-1, 8);
      same.add_cut(cut, c, static_cast<int>(random.integer(1, 3)));
    }
    c.layout = 1 + number % 8;
    same.add_cut(tokens, c, 2);
  }
  const SameBits<LinearTensors> short_one({.length = 67,
                                           .key_dim = 5,
                                           .value_dim = 33,
                                           .decay = Decay::row,
                                           .beta = true,
                                           .state = true,
                                           .normalize = true,
                                           .seed = 14},
                                          bits);
  for (Index first = 0; first <= 67; ++first) short_one.add_cut({first}, short_one.c, 1);
  bits.finish("linear_attention, cut", slow_isa() ? 200 : 600);
}

TEST_CASE("linear_attention: a state of zeros is none, and a length of 0 writes nothing") {
  const LinearCase c{.batch = 2,
                     .heads = 3,
                     .length = 70,
                     .key_dim = 20,
                     .value_dim = 37,
                     .decay = Decay::token,
                     .beta = true,
                     .seed = 15};
  const LinearTensors with(c), without(c);
  with.call_with_state().run();
  without.call().run();
  CHECK(first_difference(with.out.view, without.out.view).empty());
  LinearCall nothing = with.call_with_state().tokens(30, 30);
  for_each(with.state.view, [](float& x) { x = std::bit_cast<float>(sentinel_bits); });
  nothing.run();
  nothing.q.data = nothing.k.data = nothing.v.data = nullptr;
  nothing.out.data = nullptr;
  nothing.run();
  const std::vector<float> after = elements(with.state.view);
  CHECK(std::all_of(after.begin(), after.end(), is_sentinel));
}

}  // namespace
}  // namespace headlane::test
