// linear_attention: the bits of the header's formula, special values, guard pages.
#include "support/bit_comparison.hpp"
#include "support/guard.hpp"
#include "support/linear_attention_case.hpp"
#include "support/linear_attention_formula.hpp"
#include "support/scope.hpp"
#include "support/sequence_case.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

namespace headlane::test {
namespace {

TEST_CASE("linear_attention has the bits of its formula, special values included") {
  BitComparison bits;
  for (Index number = 0; number < 48; number += slow_isa() ? 5 : 1) {
    for (const LinearCase& sizes : {LinearCase{.heads = 2, .length = 66, .key_dim = 19, .value_dim = 37, .seed = 1},
                                    LinearCase{.heads = 2, .length = 1, .key_dim = 70, .value_dim = 130, .seed = 2},
                                    LinearCase{.length = 2, .key_dim = 3, .value_dim = 3, .seed = 3}}) {
      const LinearCase c = with_options(sizes, number);
      compare_with_formula(bits, c, "numbers", [](const LinearTensors&) {});
      for (const Index one_in : {10, 500, 5000})
        compare_with_formula(bits, c, "special values", [&](const LinearTensors& t) {
          Random random(static_cast<std::uint64_t>(one_in + number));
          for (const auto* tensor : {&t.q, &t.k, &t.v, &t.state, &t.row_decay}) add_special(*tensor, random, one_in);
          for (const auto* tensor : {&t.decay, &t.beta}) add_special(*tensor, random, one_in);
        });
    }
  }
  bits.finish("linear_attention, formula", slow_isa() ? 150 : 700);
}

TEST_CASE("linear_attention: decays from 0 to beyond the largest float, denormal states, eps") {
  BitComparison bits;
  for (const float log_decay :
       {-infinity, -1000.0f, -104.0f, -88.0f, -1e-8f, 0.0f, 1.0f, 80.0f, 88.7f, 89.0f, infinity})
    for (Index number = 0; number < 48; number += 1 + number % 2)
      compare_with_formula(bits,
                           with_options({.heads = 2, .length = 9, .key_dim = 18, .value_dim = 34, .seed = 4}, number),
                           "log_decay " + std::to_string(log_decay), [&](const LinearTensors& t) {
                             for (Index h = 0; h < 2; ++h) {
                               t.decay.view(0, h, 4) = log_decay;
                               t.row_decay.view(0, h, 4, 7) = log_decay;
                             }
                           });
  for (const float size : {0x1p-140f, 0x1p-100f, 0x1p-70f, 0x1p30f})
    for (Index number = 0; number < 48; number += 1 + number % 2)
      compare_with_formula(bits, with_options({.length = 9, .key_dim = 18, .value_dim = 34, .seed = 5}, number),
                           "size " + std::to_string(size), [&](const LinearTensors& t) {
                             for (const auto* tensor : {&t.q, &t.v, &t.state})
                               for_each(tensor->view, [&](float& x) { x *= size; });
                           });
  for (Index number = 0; number < 24; ++number)  // sums of -0, which are from 0 on
    compare_with_formula(
        bits, with_options({.length = 1 + number / 12, .key_dim = 18, .value_dim = 34, .seed = 5}, number % 12),
        "zeros", [](const LinearTensors& t) {
          for_each(t.q.view, [](float& x) { x = -0.0f; });
          for (const auto* tensor : {&t.k, &t.v, &t.state}) for_each(tensor->view, [](float& x) { x = 1; });
        });
  for (const float eps : {0.0f, 1e-12f, 0.1f, 100.0f}) {
    const LinearCase c{
        .length = 9, .key_dim = 18, .value_dim = 34, .beta = true, .state = true, .normalize = true, .seed = 6};
    const LinearTensors actual(c), expected(c);
    LinearCall one = actual.call(), other = expected.call();
    one.eps = other.eps = eps;
    one.run();
    linear_by_formula(other);
    bits.add(actual.out.view, expected.out.view, "eps " + std::to_string(eps));
  }
  bits.finish("linear_attention, decays", 400);
}

TEST_CASE("linear_attention: a decay of -inf forgets all that was before") {
  BitComparison bits;
  for (const Decay decay : {Decay::token, Decay::row})
    for (const bool beta : {false, true})
      for (const Index at : {0, 1, 40, 64, 69}) {
        const LinearCase c{.heads = 2,
                           .length = 70,
                           .key_dim = 17,
                           .value_dim = 40,
                           .decay = decay,
                           .beta = beta,
                           .state = true,
                           .seed = 7};
        const LinearTensors t(c), fresh(c);
        for (Index h = 0; h < 2; ++h) {
          t.decay.view(0, h, at) = -infinity;
          for (Index i = 0; i < 17; ++i) t.row_decay.view(0, h, at, i) = -infinity;
        }
        t.call().run();
        for_each(fresh.state.view, [](float& x) { x = 0; });
        fresh.call().tokens(at, 70).run();
        bits.add(t.out.view.slice(2, at, 70), fresh.out.view.slice(2, at, 70), text_of(c));
        bits.add(t.state.view, fresh.state.view, text_of(c) + ": state");
      }
  bits.finish("linear_attention, -inf", 40);
}

// Whether a special value reaches element i, j of the state, and column j of out at token t.
struct Reached {
  std::function<bool(Index i, Index j)> state;
  std::function<bool(Index t, Index j)> out;
};

// Checks that a special value reached exactly the elements that `reach` names, in these heads of
// batch element 1, or of all: they are not finite, and all others have the bits of `clean`.
void check_reach(const LinearTensors& changed, const LinearTensors& clean, const std::vector<Index>& heads,
                 const Reached& reach, const std::string& what, bool in_all = false) {
  Index wrong = 0;
  const auto check = [&](bool reached, float actual, float expected) {
    wrong += (reached ? !std::isfinite(actual) : bits_of(actual) == bits_of(expected)) ? 0 : 1;
  };
  const auto is_there = [&](const auto& at) {
    return (in_all || at[0] == 1) && std::find(heads.begin(), heads.end(), at[1]) != heads.end();
  };
  for_each_position(clean.out.view.shape, [&](const auto& at) {
    const auto [b, h, t, j] = at;
    check(is_there(at) && reach.out(t, j), changed.out.view(b, h, t, j), clean.out.view(b, h, t, j));
  });
  for_each_position(clean.state.view.shape, [&](const auto& at) {
    const auto [b, h, i, j] = at;
    check(is_there(at) && reach.state(i, j), changed.state.view(b, h, i, j), clean.state.view(b, h, i, j));
  });
  CHECK_MESSAGE(wrong == 0, text_of(clean.c), ", ", what, ", isa ", isa(), ": ", wrong, " elements");
}

TEST_CASE("linear_attention: a NaN or an infinity stays in its head, in the columns that it reaches") {
  for (Index number = 0; number < 12; ++number)
    for (const Index token : {0, 63, 64, 69})
      for (const float value : {nan, infinity}) {
        LinearCase c = with_options({.batch = 2,
                                     .key_heads = 2,
                                     .heads = 4,
                                     .length = 70,
                                     .key_dim = 17,
                                     .value_dim = 40,
                                     .state = true,
                                     .seed = 8},
                                    number % 6 + 6 + number / 6 * 12);
        c.skip = (number + token) % 2 == 0;
        const LinearTensors clean(c);
        clean.call().run();
        const auto check = [&](const std::string& what, const std::vector<Index>& heads, const Reached& reach,
                               const std::function<void(const LinearTensors&)>& change) {
          const LinearTensors t(c);
          change(t);
          t.call().run();
          check_reach(t, clean, heads, reach, what + " at " + std::to_string(token));
        };
        const auto later = [=](Index t) { return t >= token; };
        const auto all = [](Index, Index) { return true; };
        const auto all_later = [=](Index t, Index) { return later(t); };
        const auto row = [&](Index i, Index) { return c.beta || i == 6; };  // by p every row of the state
        const auto of_key = [&](Index i, Index j) { return c.normalize || row(i, j); };
        check("v", {2}, {[](Index, Index j) { return j == 33; }, [=](Index t, Index j) { return j == 33 && later(t); }},
              [=](const LinearTensors& t) { t.v.view(1, 2, token, 33) = value; });
        check("q", {2, 3}, {[](Index, Index) { return false; }, [=](Index t, Index) { return t == token; }},
              [=](const LinearTensors& t) { t.q.view(1, 1, token, 6) = value; });
        check("k", {0, 1}, {of_key, all_later}, [=](const LinearTensors& t) { t.k.view(1, 0, token, 6) = value; });
        if (c.beta)
          check("beta", {1}, {all, all_later}, [=](const LinearTensors& t) { t.beta.view(1, 1, token) = value; });
        if (c.decay == Decay::token)
          check("log_decay", {1}, {all, all_later}, [=](const LinearTensors& t) { t.decay.view(1, 1, token) = value; });
        if (c.decay == Decay::row)
          check("log_decay", {3}, {row, all_later},
                [=](const LinearTensors& t) { t.row_decay.view(1, 3, token, 6) = value; });
        const auto of_column = [=](Index, Index j) { return j == 39; };
        check("state", {1}, {[=, &c](Index i, Index j) { return j == 39 && (c.beta || i == 6); }, of_column},
              [=](const LinearTensors& t) { t.state.view(1, 1, 6, 39) = value; });
      }
}

TEST_CASE("linear_attention: a NaN of a gate stays in its head, and in its row but for beta") {
  for (Index number = 0; number < 16 * 6; ++number) {
    const LinearCase sizes{.batch = 2,
                           .key_heads = 2,
                           .heads = 4,
                           .length = 70,
                           .key_dim = 17,
                           .value_dim = 40,
                           .state = true,
                           .seed = 10};
    const LinearCase c = with_steps(with_gates(with_options(sizes, number % 6 + 6), number / 6), number / 4);
    const LinearTensors clean(c);
    clean.call().run();
    const auto check = [&](const char* what, Index head, Index token, bool of_row, const auto& change) {
      const LinearTensors t(c);
      change(t);
      t.call().run();
      const Reached reach{[&](Index i, Index) { return !of_row || c.beta || i == 6; },
                          [&](Index at, Index) { return at >= token; }};
      check_reach(t, clean, {head}, reach, what, token == 0);
    };
    for (const Index at : {1, 64}) {
      if (c.decay == Decay::token)
        check("log_decay", 1, at, false, [&](const LinearTensors& t) { t.decay.view(1, 1, at) = nan; });
      if (c.decay == Decay::row)
        check("log_decay", 2, at, true, [&](const LinearTensors& t) { t.row_decay.view(1, 2, at, 6) = nan; });
      if (c.beta) check("beta", 3, at, false, [&](const LinearTensors& t) { t.beta.view(1, 3, at) = nan; });
    }
    if (c.gate != Gate::none) check("a_log", 2, 0, false, [](const LinearTensors& t) { t.a_log.view(2) = nan; });
    if (c.gate == Gate::head_bias)
      check("dt_bias", 1, 0, false, [](const LinearTensors& t) { t.dt_bias.view(1) = nan; });
    if (c.gate == Gate::row_bias)
      check("dt_bias", 3, 0, true, [](const LinearTensors& t) { t.row_bias.view(3, 6) = nan; });
    if (!c.skip) continue;
    const LinearTensors t(c);
    t.skip.view(2) = nan;
    t.call().run();
    const auto all = [](Index, Index) { return true; };
    check_reach(t, clean, {2}, {[](Index, Index) { return false; }, all}, "skip", true);
  }
}

// Each length is that of keys, of values and of a sequence.
TEST_CASE("linear_attention between guard pages") {
  Counts counts;
  Guarded<4> q, k, v, out, state, row_decay;
  Guarded<3> decay, beta;
  Guarded<2> row_bias;
  Guarded<1> a_log, dt_bias, skip;
  everywhere([&](Index length, Index gap, Place where) {
    for (const Index role : {0, 1, 2}) {
      if (length == 0 || (role == 2 && length > 140)) continue;
      if (length <= 96 && !slow_isa() && gap % 3 != role) continue;  // there are 16 gaps
      const Index other = 1 + (length + gap / 3) % 3;
      LinearCase c{.heads = 2,
                   .length = role == 2 ? length : other,
                   .key_dim = role == 0 ? length : other + 2,
                   .value_dim = role == 1 ? length : other + 3,
                   .seed = 9};
      c = with_steps(with_gates(with_options(c, length + 7 * gap), length / 3 + gap), length / 2 + gap / 3);
      const LinearTensors t(c), copies(c);
      const bool vary = (length + gap / 2) % 2 == 0;
      const auto place = [&](auto& guarded, const auto& tensor, Index operand) {
        guarded.place(tensor.view, vary ? layout_of(length, gap, operand) : Layout{}, gap, where);
      };
      place(q, t.q, 1), place(k, t.k, 2), place(v, t.v, 3), place(out, t.out, 4);
      LinearCall call = t.call();
      call.q = q.view, call.k = k.view, call.v = v.view, call.out = out.view;
      if (call.state) place(state, t.state, 5), call.state = state.view;
      if (call.decay) place(decay, t.decay, 6), call.decay = decay.view;
      if (call.row_decay) place(row_decay, t.row_decay, 6), call.row_decay = row_decay.view;
      if (call.beta) place(beta, t.beta, 7), call.beta = beta.view;
      if (call.a_log) place(a_log, t.a_log, 8), call.a_log = a_log.view;
      if (call.dt_bias) place(dt_bias, t.dt_bias, 9), call.dt_bias = dt_bias.view;
      if (call.row_bias) place(row_bias, t.row_bias, 10), call.row_bias = row_bias.view;
      if (call.skip) place(skip, t.skip, 11), call.skip = skip.view;
      call.run();
      copies.call().run();
      counts.add(different_bits(out.view, copies.out.view) == 0 &&
                     (!call.state || different_bits(state.view, copies.state.view) == 0),
                 out.buffer.surroundings_untouched() && (!call.state || state.buffer.surroundings_untouched()),
                 text_of_case("linear_attention, role " + std::to_string(role) + ",", length, gap, where));
    }
  });
  counts.finish("linear_attention", slow_isa() ? 2000 : 4000);
}

}  // namespace
}  // namespace headlane::test
