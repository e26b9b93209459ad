// linear_attention: discretize and skip, with which it is Mamba-2: against the oracle and against
// the recurrence of Mamba-2, by bits, and illegal calls.
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
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace headlane::test {
namespace {

// f(case) for combinations of all options that have discretize or skip, of which there are 640:
// every step-th of them.
template <class F>
void for_each_step(const LinearCase& sizes, Index step, const F& f) {
  std::set<std::string> seen;  // some numbers of gates are the same combination
  Index count = 0;
  for (Index number = 0; number < 48; ++number)
    for (Index gates = 0; gates < 16; ++gates)
      for (const Index steps : {1, 2, 3, 5, 7}) {
        LinearCase c = with_steps(with_gates(with_options(sizes, number), gates), steps);
        if (!c.beta) c.beta_scale = 1;
        if ((c.discretize || c.skip) && seen.insert(text_of(c)).second && count++ % step == 0) f(c);
      }
  CHECK(count == 640);
}

TEST_CASE("linear_attention, steps and skip: every combination with other options, any length, grouped heads") {
  const std::vector<Index> lengths{1, 2, 63, 64, 65, 130};
  Random random(1);
  for_each_step({.batch = 2, .heads = 2, .key_dim = 5, .value_dim = 35, .seed = 1}, slow_isa() ? 3 : 1,
                [&](LinearCase c) {
                  c.length = random.pick(lengths), c.key_heads = random.integer(1, 2);
                  check_linear(c);
                });
}

TEST_CASE("linear_attention, steps and skip: every tail of a row of values, and of tokens") {
  for (Index n = 1; n <= 140; n += n < 70 ? 1 : 7)
    for (const Gate gate : {Gate::none, Gate::rate, Gate::head_bias}) {
      LinearCase c{.heads = 2, .key_dim = 3, .decay = Decay::token, .seed = 2};
      c.beta = n % 2 == 1, c.state = n / 2 % 2 == 1;
      c.gate = gate, c.discretize = gate != Gate::none, c.skip = true;
      LinearCase of_values = c, of_tokens = c;
      of_values.length = 2, of_values.value_dim = n;
      of_tokens.length = n, of_tokens.value_dim = 3;
      check_linear(of_values), check_linear(of_tokens);
    }
}

TEST_CASE("linear_attention, steps and skip: every layout of every operand") {
  const std::vector<Index> lengths{1, 1, 2, 5, 66};
  Random random(3);
  for (Index layout = 0; layout < std::ssize(head_layouts()); ++layout)
    for (const bool alike : {false, true}) {
      const LinearCase sizes{.batch = 2, .key_heads = 2, .heads = 4, .key_dim = 5, .value_dim = 34, .seed = 3};
      for_each_step(sizes, slow_isa() ? 61 : 23, [&](LinearCase c) {
        c.layout = layout, c.alike = alike, c.length = random.pick(lengths);
        check_linear(c);
      });
    }
}

// Keys and queries of 1, and a state of 0: out is what is added to the state.
TEST_CASE("linear_attention, steps: products with values of any size are within the bound") {
  Random random(4);
  Comparison products("linear_attention: steps", "512 steps of 3 heads", 4);
  const std::array<float, 14> limits{0,    -0.0f, 17.3f, -17.3f, -87,   -88,    -103,
                                     -104, -105,  1e30f, -1e30f, 88.7f, -0.69f, 0x1p-149f};
  for (const Gate gate : {Gate::rate, Gate::head_bias})
    for (const int largest : {0, 3, 7, 60}) {  // exponents
      const LinearCase c{.batch = 512,
                         .heads = 3,
                         .value_dim = 3,
                         .decay = Decay::token,
                         .scale = 1.0f,
                         .gate = gate,
                         .discretize = true,
                         .seed = random.next()};
      const LinearTensors t(c);
      for (const auto* ones : {&t.q, &t.k}) for_each(ones->view, [](float& x) { x = 1; });
      const auto any_size = [&](float& x) {
        x = std::ldexp(random.uniform(), static_cast<int>(random.integer(largest > 7 ? -140 : -20, largest)));
      };
      for_each(t.decay.view, any_size), for_each(t.v.view, any_size);
      for (Index b = 0; b < std::ssize(limits); ++b) t.decay.view(b, 1, 0) = limits[static_cast<std::size_t>(b)];
      t.call().run();
      for_each_position(t.out.view.shape, [&](const auto& at) {
        const auto [b, h, token, j] = at;
        const LinearCall one = t.call().head(b, h);
        const auto [value, bound] = exact_input(one, exact_step(one, 0), double{t.v.view(b, h, token, j)});
        products.add({b, h, token, j}, t.out.view(b, h, token, j), value, bound);
      });
    }
  products.finish();
}

// h = exp(dt · A) · h + dt · x · Bᵀ and y = h · C + D · x, in double, for states
// [value_dim, key_dim] as Mamba-2 has them; dt = softplus(log_decay + dt_bias), A = -exp(a_log).
void compare_with_mamba(const LinearTensors& t, const std::vector<float>& before, const View<const float, 4>& after,
                        Comparison& y, Comparison& h) {
  const Index rows = t.c.value_dim, columns = t.c.key_dim, of_group = t.c.heads / t.c.key_heads;
  for (Index b = 0; b < t.c.batch; ++b)
    for (Index head = 0; head < t.c.heads; ++head) {
      const auto of_head = static_cast<std::ptrdiff_t>((b * t.c.heads + head) * rows * columns);
      std::vector<double> state(before.begin() + of_head, before.begin() + of_head + rows * columns);
      for (Index token = 0; token < t.c.length; ++token) {
        const double dt = std::log(1 + std::exp(double{t.decay.view(b, head, token)} + double{t.dt_bias.view(head)}));
        const double decay = std::exp(-std::exp(double{t.a_log.view(head)}) * dt);
        for (Index i = 0; i < rows; ++i) {
          const double x = double{t.v.view(b, head, token, i)};
          double sum = 0;
          for (Index j = 0; j < columns; ++j) {
            double& e = state[static_cast<std::size_t>(i * columns + j)];
            e = decay * e + dt * x * double{t.k.view(b, head / of_group, token, j)};
            sum += e * double{t.q.view(b, head / of_group, token, j)};
          }
          y.add({b, head, token, i}, t.out.view(b, head, token, i), sum + double{t.skip.view(head)} * x, 2e-5);
        }
      }
      for (Index i = 0; i < rows; ++i)
        for (Index j = 0; j < columns; ++j)
          h.add({b, head, i, j}, after(b, head, i, j), state[static_cast<std::size_t>(i * columns + j)], 2e-5);
    }
}

TEST_CASE("linear_attention is the recurrence of Mamba-2: a prompt, and tokens after it") {
  LinearCase c{.batch = 2, .key_heads = 2, .heads = 6, .length = 150, .key_dim = 20, .value_dim = 37, .seed = 5};
  c.decay = Decay::token, c.gate = Gate::head_bias, c.scale = 1.0f;
  c.state = c.discretize = c.skip = true;
  const LinearTensors t(c);
  const Tensor<4> states({c.batch, c.heads, c.value_dim, c.key_dim});
  Random random(5);
  fill_normal(states.view, random);
  const std::vector<float> before = elements(states.view);
  LinearCall call = t.call();
  call.state = states.view.transposed();
  call.tokens(0, 140).run();
  for (Index token = 140; token < c.length; ++token) call.tokens(token, token + 1).run();
  Comparison y("linear_attention as Mamba-2", text_of(c), c.seed),
      h("linear_attention as Mamba-2: state", text_of(c), c.seed);
  compare_with_mamba(t, before, states.view, y, h);
  y.finish(), h.finish();
}

TEST_CASE("linear_attention, steps and skip: the bits of the formula, special values and limits included") {
  BitComparison bits;
  const std::vector<float> limits{-infinity, -1e30f, -104,  -88,   -17,      -0.0f, 0,
                                  0x1p-149f, 17,     88.7f, 1e30f, infinity, nan};
  std::uint64_t seed = 0;
  const auto compare = [&](const LinearCase& c) {
    ++seed;
    compare_with_formula(bits, c, "numbers", [](const LinearTensors&) {});
    compare_with_formula(bits, c, "special values", [&](const LinearTensors& t) {
      Random random(seed);
      add_special(t.v, random, 200);
      for (const auto* x : {&t.decay, &t.beta}) add_special(*x, random, 50);
      for (const auto* x : {&t.a_log, &t.dt_bias, &t.skip}) add_special(*x, random, 5);
    });
    compare_with_formula(bits, c, "limits", [&](const LinearTensors& t) {
      Random random(seed);
      const auto set = [&](float& x) { x = random.pick(limits); };
      set(t.skip.view(0)), set(t.skip.view(1)), set(t.dt_bias.view(2));
      for (Index h = 0; h < 3; ++h) set(t.decay.view(0, h, 0)), set(t.v.view(0, h, 0, 0)), set(t.v.view(0, h, 0, 36));
    });
    compare_with_formula(bits, c, "zeros", [&](const LinearTensors& t) {
      for (const auto* x : {&t.v, &t.state}) for_each(x->view, [](float& e) { e = -0.0f; });
      for_each(t.q.view, [](float& e) { e = -1; });
      t.skip.view(2) = -0.0f;
    });
    compare_with_formula(bits, c, "denormals", [&](const LinearTensors& t) {
      for (const auto* x : {&t.v, &t.state}) for_each(x->view, [](float& e) { e *= 0x1p-130f; });
    });
  };
  for (const Index length : {1, 2, 66})
    for_each_step({.heads = 3, .length = length, .key_dim = 5, .value_dim = 37, .seed = 6}, slow_isa() ? 23 : 7,
                  compare);
  bits.finish("linear_attention, steps and skip, formula", slow_isa() ? 450 : 1500);
}

TEST_CASE("linear_attention, steps and skip: broadcast and absent ones, and calls that compute the same") {
  BitComparison bits;
  const LinearCase plain{.batch = 2, .heads = 3, .length = 66, .key_dim = 9, .value_dim = 35, .state = true, .seed = 7};
  const auto same = [&](const std::string& what, const LinearCase& c, const auto& change, const auto& other) {
    const LinearTensors a(c), b(c);
    LinearCall x = a.call(), y = b.call();
    change(x, a), other(y, b);
    x.run(), y.run();
    bits.add(a.out.view, b.out.view, text_of(c) + ", " + what);
    bits.add(a.state.view, b.state.view, text_of(c) + ", " + what + ": state");
  };
  const auto unchanged = [](const LinearCall&, const LinearTensors&) {};
  for (Index number = 0; number < 6; ++number)
    for (const Index gates : {1, 2, 5, 10})
      for (const Index length : {1, 66}) {
        LinearCase c = with_gates(with_options(plain, number), gates), stepped = with_steps(c, 1);
        c.length = stepped.length = length, c.state = stepped.state = true;
        same("a view without data", c, unchanged,
             [](LinearCall& x, const LinearTensors&) { x.skip = {nullptr, {-7}}; });
        c.skip = true;
        same(
            "a skip of stride 0", c, [](LinearCall& x, const LinearTensors&) { x.skip.strides[0] = 0; },
            [](LinearCall&, const LinearTensors& t) {
              for_each(t.skip.view, [v = t.skip.view(0)](float& x) { x = v; });
            });
        same(
            "a skip of 0", c,
            [](LinearCall&, const LinearTensors& t) { for_each(t.skip.view, [](float& x) { x = 0; }); },
            [](LinearCall& x, const LinearTensors&) { x.skip = {}; });
        if (!stepped.discretize) continue;
        same("values that are multiplied before", stepped, unchanged, [](LinearCall& x, const LinearTensors& t) {
          x.discretize = false;
          for_each_position(t.v.view.shape, [&](const auto& at) {
            const auto [b, h, token, j] = at;
            t.v.view(b, h, token, j) *= rounded_step(t.call().head(b, h), token, 0);
          });
        });
      }
  bits.finish("linear_attention, steps and skip, equal calls", 280);
}

TEST_CASE("linear_attention, steps and skip: instruction sets, threads, strides, heads alone, cuts: the same bits") {
  BitComparison bits;
  const auto compare = [&](const LinearCase& c) {
    const SameBits<LinearTensors> same(c, bits);
    add_other_ways(same);
    if (!c.state) return;
    LinearCase strided = c;
    for (strided.layout = 0; strided.layout < std::ssize(head_layouts()); ++strided.layout)
      for (const bool alike : {false, true}) {
        strided.alike = alike;
        same.add_cut(std::vector<Index>(130, 1), strided, 1 + static_cast<int>(strided.layout % 2));
      }
    for (const auto& cut : std::vector<std::vector<Index>>{{64, 64}, {63, 1}, {1, 65}, {7, 0, 57}})
      same.add_cut(cut, c, 2);
  };
  for_each_step({.batch = 2, .key_heads = 2, .heads = 4, .length = 130, .key_dim = 5, .value_dim = 70, .seed = 8},
                slow_isa() ? 71 : 31, compare);
  bits.finish("linear_attention, steps and skip", slow_isa() ? 250 : 600);
}

Linear step_operands(Decay decay) {
  LinearCase c{.batch = 2, .key_heads = 2, .heads = 4, .length = 3, .key_dim = 5, .value_dim = 6, .decay = decay};
  c.gate = Gate::rate, c.discretize = decay == Decay::token;
  c.beta = c.state = c.skip = true;
  return {.t = LinearTensors(c)};
}

TEST_CASE("linear_attention, steps and skip: illegal calls") {
  Linear o = step_operands(Decay::token);
  const Linear of_rows = step_operands(Decay::row);
  const LinearCall good = o.t.call();
  const auto push = [&](const LinearCall& call, const std::string& message) {
    o.push(message, call, {std::string(linear) + ": " + message});
  };
  o.views(linear, "skip", &LinearCall::skip, without_null(wrong_views(good.skip)));
  for (const Index size : {0, 2, 5})
    push(o.with(&LinearCall::skip, with_size(good.skip, 0, size)),
         "skip has " + std::to_string(size) + " elements, v has 4 heads");
  push(o.with(&LinearCall::a_log, {}), "discretize is given without a_log");
  LinearCall call = o.with(&LinearCall::decay, {});
  push(call, "a_log is given without log_decay");
  call.a_log = {};
  push(call, "discretize is given without a_log");
  call = good, call.decay = {}, call.row_decay = of_rows.t.row_decay.view;
  push(call, "discretize is given with a log_decay of rank 4, it must be 3");
  // Nor is a call legal that has nothing to write.
  push(o.with(&LinearCall::a_log, {}).tokens(1, 1), "discretize is given without a_log");
  push(o.with(&LinearCall::skip, with_size(good.skip, 0, 2)).tokens(1, 1), "skip has 2 elements, v has 4 heads");
  const auto limits = [&](float least, float most, const std::string& message, bool discretize = true) {
    LinearCall changed = good;
    changed.min_step = least, changed.max_step = most, changed.discretize = discretize;
    push(changed, message);
  };
  limits(0.5f, infinity, "min_step or max_step is given without discretize", false);
  limits(0, 0.5f, "min_step or max_step is given without discretize", false);
  for (const auto& [least, most] :
       {std::pair{-1.0f, 1.0f}, {1.0f, 0.5f}, {nan, 1.0f}, {0.0f, nan}, {infinity, infinity}})
    limits(least, most, "min_step is ");
  o.check(o.t.out.view, 21);
  // A view without data is not given, whatever its shape.
  call = good;
  call.skip = {nullptr, {-1}};
  CHECK_NOTHROW(call.run());
  CHECK_NOTHROW(of_rows.t.call().run());
}

}  // namespace
}  // namespace headlane::test
