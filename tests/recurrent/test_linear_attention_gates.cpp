// linear_attention: decays that are computed from a_log and dt_bias, and sigmoid_beta and
// beta_scale: against the oracle, by bits, and illegal calls.
#include "support/bit_comparison.hpp"
#include "support/illegal_sequence.hpp"
#include "support/linear_attention_case.hpp"
#include "support/linear_attention_formula.hpp"
#include "support/reference_linear_attention.hpp"
#include "support/scope.hpp"
#include "support/sequence_case.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace headlane::test {
namespace {

// f(case) for combinations of options and gates, of which there are up to 768: every step-th of
// those that have a decay or beta.
template <class F>
void for_each_gate(const LinearCase& sizes, Index step, const F& f) {
  for (Index number = 0; number < 48; ++number)
    for (Index gates = 0; gates < 16; ++gates) {
      const LinearCase c = with_gates(with_options(sizes, number), gates);
      const bool gated = c.gate != Gate::none || c.sigmoid_beta || (c.beta && c.beta_scale != 1);
      if (gated && (number * 5 + gates) % step == 0) f(c);
    }
}

TEST_CASE("linear_attention, gates: every combination with other options, any length, grouped heads") {
  constexpr std::array<Index, 6> lengths{1, 2, 63, 64, 65, 130};
  std::size_t number = 0;
  for_each_gate({.batch = 2, .heads = 2, .key_dim = 18, .value_dim = 35, .seed = 1}, slow_isa() ? 3 : 1,
                [&](LinearCase c) {
                  c.length = lengths[++number % 6];
                  c.key_heads = 1 + static_cast<Index>(number / 6 % 2);
                  check_linear(c);
                });
  CHECK(number > 100);
}

TEST_CASE("linear_attention, gates: every tail of a row of decays, and of tokens") {
  for (Index n = 1; n <= 140; n += n < 70 ? 1 : 7)
    for (const Index gates : {1 + n % 3, 12 + n % 4}) {
      const LinearCase c{.heads = 2, .beta = true, .state = true, .seed = 2};
      LinearCase of_tokens = c, of_rows = c;
      of_tokens.length = n, of_tokens.decay = Decay::token, of_tokens.key_dim = 3;
      of_rows.length = 2, of_rows.decay = Decay::row, of_rows.key_dim = n;
      check_linear(with_gates(of_tokens, gates)), check_linear(with_gates(of_rows, gates));
    }
  check_linear(with_gates({.length = 2, .key_dim = 512, .value_dim = 5, .decay = Decay::row, .seed = 2}, 3));
}

TEST_CASE("linear_attention, gates: every layout of every operand") {
  for (Index layout = 0; layout < std::ssize(head_layouts()); ++layout)
    for (const bool alike : {false, true})
      for_each_gate({.batch = 2,
                     .key_heads = 2,
                     .heads = 4,
                     .length = layout % 3 == 0 ? 1 : 5,
                     .key_dim = 10,
                     .value_dim = 34,
                     .seed = 3,
                     .layout = layout,
                     .alike = alike},
                    slow_isa() ? 61 : 11, [](const LinearCase& c) { check_linear(c); });
}

// A state of ones and keys of 0: what is left of the state are the decays.
TEST_CASE("linear_attention, gates: decays from 0 to 1 are within the bound, whatever they are computed from") {
  const std::vector<float> rates{-infinity, -0x1p127f, -104, -87, -20, -5, -1, -0.0f, 1, 3, 5, 10, 40, 80, 88.7f};
  const Index heads = std::ssize(rates), n = 512;
  Random random(4);
  Comparison decays("linear_attention: gates", "512 gates of 15 heads", 4);
  for (const Gate gate : {Gate::rate, Gate::head_bias, Gate::row_bias})
    for (const int largest : {0, 3, 5, 7, 127}) {  // exponents
      const LinearCase c{
          .heads = heads, .key_dim = n, .decay = Decay::row, .state = true, .gate = gate, .seed = random.next()};
      const LinearTensors t(c);
      for_each(t.row_decay.view, [&](float& x) {
        x = std::ldexp(random.uniform(), static_cast<int>(random.integer(largest > 7 ? -140 : -20, largest)));
      });
      const std::array<float, 12> limits{0, -0.0f, 17.3f, -17.3f, -87, -88, -103, -104, -105, 1e30f, -1e30f, 88};
      for (Index h = 0; h < heads; ++h) {
        t.a_log.view(h) = rates[static_cast<std::size_t>(h)];
        for (Index i = 0; i < 12; ++i) t.row_decay.view(0, h, 0, 40 * i) = limits[static_cast<std::size_t>(i)];
      }
      for_each(t.state.view, [](float& x) { x = 1; });
      for (const auto* zeros : {&t.k, &t.v}) for_each(zeros->view, [](float& x) { x = 0; });
      const LinearCall all = t.call();
      all.run();
      for (Index h = 0; h < heads; ++h)
        for (Index i = 0; i < n; ++i) {
          const LinearCall one = all.head(0, h);
          const ExactDecay exact = exact_decay(one, i);
          // exp(-|s|) may be denormal, and is multiplied by exp(a_log).
          const double of_denormal = std::exp(double{one.a_log(0)}) * 3 * smallest;
          decays.add({h, i}, one.state(0, 0, i, 0), exact.factor,
                     exact.factor * ((3 + exact.roundings) * unit + of_denormal) + smallest);
        }
    }
  decays.finish();
}

TEST_CASE("linear_attention, gates: the bits of the formula, special values and limits included") {
  BitComparison bits;
  const std::vector<float> limits{-infinity, -1e30f, -200,  -104, -88,   -17,      -0.0f,
                                  0,         17,     88.7f, 89,   1e30f, infinity, nan};
  std::uint64_t seed = 0;
  const auto compare = [&](const LinearCase& c) {
    ++seed;
    compare_with_formula(bits, c, "numbers", [](const LinearTensors&) {});
    compare_with_formula(bits, c, "special values", [&](const LinearTensors& t) {
      Random random(seed);
      for (const auto* x : {&t.decay, &t.beta}) add_special(*x, random, 50);
      add_special(t.row_decay, random, 400), add_special(t.row_bias, random, 40);
      for (const auto* x : {&t.a_log, &t.dt_bias}) add_special(*x, random, 5);
    });
    compare_with_formula(bits, c, "limits", [&](const LinearTensors& t) {
      Random random(seed);
      const auto set = [&](float& x) { x = random.pick(limits); };
      set(t.a_log.view(0)), set(t.dt_bias.view(1)), set(t.row_bias.view(1, 2)), set(t.a_log.view(2));
      for (Index h = 0; h < 3; ++h) set(t.decay.view(0, h, 0)), set(t.beta.view(0, h, 0));
      for_each(t.row_decay.view.slice(2, 0, 1), [&](float& x) {
        if (random.integer(0, 3) == 0) set(x);
      });
    });
  };
  for (const Index length : {1, 2, 66})
    for_each_gate({.heads = 3, .length = length, .key_dim = 19, .value_dim = 37, .seed = 5}, slow_isa() ? 31 : 7,
                  compare);
  bits.finish("linear_attention, gates, formula", slow_isa() ? 80 : 350);
}

TEST_CASE("linear_attention, gates: broadcast options, absent ones, and those that change nothing") {
  BitComparison bits;
  for (const Gate gate : {Gate::head_bias, Gate::row_bias})
    for (unsigned axes = 0; axes < 8; ++axes) {
      LinearCase c{.batch = 2, .heads = 3, .length = 66, .key_dim = 9, .value_dim = 10, .beta = true, .state = true};
      c.decay = gate == Gate::row_bias || axes % 2 == 0 ? Decay::row : Decay::token;
      c.gate = gate, c.sigmoid_beta = axes % 2 == 0, c.beta_scale = 1.75f, c.seed = 6;
      const LinearTensors a(c), b(c);
      LinearCall x = a.call();
      if ((axes & 1) != 0) x.a_log.strides[0] = 0;
      if ((axes & 2) != 0) (gate == Gate::row_bias ? x.row_bias.strides[0] : x.dt_bias.strides[0]) = 0;
      if ((axes & 4) != 0 && x.row_bias) x.row_bias.strides[1] = 0;
      copy<1>(x.a_log, b.a_log.view);
      if (x.dt_bias) copy<1>(x.dt_bias, b.dt_bias.view);
      if (x.row_bias) copy<2>(x.row_bias, b.row_bias.view);
      x.run(), b.call().run();
      bits.add(a.out.view, b.out.view, "broadcast");
      bits.add(a.state.view, b.state.view, "broadcast: state");
    }
  const LinearCase c{.heads = 3, .length = 66, .key_dim = 9, .value_dim = 10, .decay = Decay::row, .seed = 7};
  const auto same = [&](const std::string& what, const LinearCase& of, const auto& change, const auto& other) {
    const LinearTensors a(of), b(of);
    LinearCall x = a.call(), y = b.call();
    change(x, a), other(y, b);
    x.run(), y.run();
    bits.add(a.out.view, b.out.view, what);
  };
  const LinearCase biased = with_gates(c, 2), rate = with_gates(c, 1);
  same(
      "beta_scale without beta", c, [](LinearCall& x, const LinearTensors&) { x.beta_scale = 3; },
      [](const LinearCall&, const LinearTensors&) {});
  same(
      "a bias of 0", biased,
      [](LinearCall&, const LinearTensors& t) { for_each(t.dt_bias.view, [](float& x) { x = 0; }); },
      [](LinearCall& x, const LinearTensors&) { x.dt_bias = {}; });
  same(
      "a bias of heads as one of rows", biased, [](const LinearCall&, const LinearTensors&) {},
      [](LinearCall& x, const LinearTensors& t) {
        x.dt_bias = {};
        x.row_bias = {t.dt_bias.view.data, {3, 9}, {1, 0}};
      });
  same(
      "views without data", rate, [](const LinearCall&, const LinearTensors&) {},
      [](LinearCall& x, const LinearTensors&) {
        x.dt_bias = {nullptr, {7}}, x.row_bias = {nullptr, {7, 8}}, x.beta = {nullptr, {1, 2, 3}};
      });
  bits.finish("linear_attention, gates, equal calls", 36);
}

TEST_CASE("linear_attention, gates: instruction sets, threads, strides, heads alone, cuts: the same bits") {
  BitComparison bits;
  const auto compare = [&](const LinearCase& c) {
    const SameBits<LinearTensors> same(c, bits);
    add_other_ways(same);
    if (!c.state) return;
    LinearCase strided = c;
    strided.layout = 4;
    for (const auto& cut : std::vector<std::vector<Index>>{std::vector<Index>(130, 1), {64, 64}, {63, 1}, {7, 0, 57}})
      same.add_cut(cut, c, 1), same.add_cut(cut, strided, 2);
  };
  for_each_gate({.batch = 2, .key_heads = 2, .heads = 4, .length = 130, .key_dim = 33, .value_dim = 70, .seed = 8},
                slow_isa() ? 97 : 31, compare);
  bits.finish("linear_attention, gates", slow_isa() ? 80 : 400);
}

Linear gate_operands(Decay decay, Gate gate) {
  LinearCase c{.batch = 2, .key_heads = 2, .heads = 4, .length = 3, .key_dim = 5, .value_dim = 6};
  c.decay = decay, c.gate = gate;
  c.beta = c.state = c.sigmoid_beta = true;
  return {.t = LinearTensors(c)};
}

TEST_CASE("linear_attention, gates: illegal views, and shapes that do not match") {
  for (const Gate gate : {Gate::head_bias, Gate::row_bias}) {
    Linear o = gate_operands(Decay::row, gate);
    const LinearCall good = o.t.call();
    const auto push = [&](const LinearCall& call, const std::string& message) {
      o.push(message, call, {std::string(linear) + ": " + message});
    };
    o.views(linear, "a_log", &LinearCall::a_log, without_null(wrong_views(good.a_log)));
    push(o.with(&LinearCall::a_log, with_size(good.a_log, 0, 2)), "a_log has 2 elements, v has 4 heads");
    if (gate == Gate::head_bias) {
      o.views(linear, "dt_bias", &LinearCall::dt_bias, without_null(wrong_views(good.dt_bias)));
      push(o.with(&LinearCall::dt_bias, with_size(good.dt_bias, 0, 5)), "dt_bias has 5 elements, v has 4 heads");
    } else {
      o.views(linear, "dt_bias", &LinearCall::row_bias, without_null(wrong_views(good.row_bias)));
      push(o.with(&LinearCall::row_bias, with_size(good.row_bias, 0, 2)), "dt_bias has 2 rows, v has 4 heads");
      push(o.with(&LinearCall::row_bias, with_size(good.row_bias, 1, 6)),
           "dt_bias has 6 elements a head, k has 5 elements a head (key_dim)");
    }
    o.check(o.t.out.view, gate == Gate::head_bias ? 15 : 21);
  }
}

TEST_CASE("linear_attention, gates: options without the one that they belong to, and ranks") {
  Linear o = gate_operands(Decay::row, Gate::row_bias);
  const LinearCall good = o.t.call();
  const auto push = [&](const LinearCall& call, const std::string& message) {
    o.push(message, call, {std::string(linear) + ": " + message});
  };
  LinearCall call = o.with(&LinearCall::row_decay, {});
  push(call, "a_log is given without log_decay");
  call.row_bias = {};
  push(call, "a_log is given without log_decay");
  call.a_log = {}, call.row_bias = good.row_bias;
  push(call, "dt_bias is given without a_log");
  push(o.with(&LinearCall::a_log, {}), "dt_bias is given without a_log");
  push(o.with(&LinearCall::a_log, {nullptr, {4}}), "dt_bias is given without a_log");
  push(o.with(&LinearCall::beta, {}), "sigmoid_beta is given without beta");
  push(o.with(&LinearCall::beta, {nullptr, {2, 4, 3}}), "sigmoid_beta is given without beta");
  const auto rank = [&](const AnyView<const float>& bias, bool of_rows, const std::string& message) {
    LinearAttentionOptions options = good.options();
    options.dt_bias = bias;
    if (!of_rows) options.log_decay = View<const float, 3>(o.t.decay.view);
    o.calls.push_back({message,
                       [=] { linear_attention(good.q, good.k, good.v, good.out, options); },
                       {std::string(linear) + ": dt_bias has rank " + message}});
  };
  const View<const float, 3> bias(o.t.row_bias.view.data, {4, 5, 1});
  AnyView<const float> of_rank = bias;
  rank(bias, true, "3, it may be 1 or 2");
  rank(View<const float, 2>(bias.data, {4, 5}), false, "2, it may be 1");
  rank(View<const float, 2>(bias.data, {4, 1}), false, "2, it may be 1");
  for (const int other : {0, 8})
    for (const bool of_rows : {false, true})
      of_rank.rank = other, rank(of_rank, of_rows, std::to_string(other) + ", it may be 1");
  for (const int other : {-1, 9, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()})
    of_rank.rank = other, rank(of_rank, true, std::to_string(other));
  o.check(o.t.out.view, 18);
  // A view without data is not given, whatever its shape.
  call = good;
  call.row_bias = {nullptr, {-1, 7}}, call.sigmoid_beta = false, call.beta = {};
  CHECK_NOTHROW(call.run());
}

}  // namespace
}  // namespace headlane::test
