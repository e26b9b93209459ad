// Floating-point state (rounding mode, flush to zero, exception flags): it changes no result, and
// no call changes it.
#include "support/every_call.hpp"
#include "support/floating_point_state.hpp"
#include "support/lone_team.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace headlane::test {
namespace {

#if defined(HEADLANE_TEST_HAS_STATE)

/// Calls f() in a thread that starts in this state, as do the threads that it starts; returns
/// whether the state is unchanged afterwards.
template <class F>
bool in_state(State wanted, const F& f) {
  bool kept = false;
  std::thread([&] {
    set_state(wanted);
    f();
    kept = state() == wanted;
  }).join();
  return kept;
}

TEST_CASE("the floating-point state of the caller and of its threads changes no bit") {
  for (const float magnitude : {1.0f, 1e-20f}) {  // 1e-20: products and variances are denormal
    const EveryCall work(slow_isa() ? 7 : 24, magnitude);
    work.run(1);
    const std::vector<std::uint64_t> expected = work.hashes();
    const auto check = [&](const char* what, State s, int threads) {
      const std::vector<std::uint64_t> actual = work.hashes();
      for (std::size_t i = 0; i < actual.size(); ++i)
        CHECK_MESSAGE(actual[i] == expected[i], work.calls()[i].name, ", ", what, ", state ", s, ", ", threads,
                      " threads, magnitude ", magnitude, ", isa ", isa());
    };
    for (const State s : all_states)
      for (const int threads : {1, 3}) {
        CHECK(in_state(s, [&] { work.run(threads); }));  // before the team exists
        check("set before", s, threads);
        if (threads == 1) continue;  // there is no team beside the caller
        bool kept = true;
        in_state(all_states.front(), [&] {
          work.run(threads);
          set_state(s);  // the team keeps its state
          work.run(threads);
          kept = state() == s;
          set_state(all_states.front());
        });
        CHECK(kept);
        check("set after", s, threads);
        in_state(s, [&] {
          work.run(threads);
          set_state(all_states.front());  // only the team has it
          work.run(threads);
        });
        check("set in the team alone", s, threads);
      }
  }
}

#if defined(__x86_64__)
TEST_CASE("exception flags are unchanged after a call, and unmasked exceptions do not trap") {
  const unsigned before = _mm_getcsr();
  for (const float magnitude : {5000.0f, 1e-20f}) {
    const EveryCall work(7, magnitude);
    for (const unsigned wanted : {0x1f80u, 0x1f80u | 0x3f, 0x1f80u & ~0x1f80u}) {  // none, all raised, all unmasked
      for (const EveryCall::Call& call : work.calls()) {
        _mm_setcsr(wanted);
        call.run(2);
        const unsigned after = _mm_getcsr();
        _mm_setcsr(before);
        CHECK_MESSAGE(after == wanted, call.name, ", magnitude ", magnitude);
      }
    }
  }
}

/// The value of an option, as float and as double. A call takes the type that it needs: a
/// conversion would already compute in the state under test.
struct Number {
  float single;
  double twice;
};

struct NumberCall {
  std::string name;
  std::function<void(const Number& option, const View<float, 2>& y)> run;
};

Tensor<2> filled(float value) {
  Tensor<2> result({4, 4});
  for_each(result.view, [&](float& x) { x = value; });
  return result;
}

/// Calls with each option that is a number, of tensors [4, 4].
class EveryNumber {
 public:
  EveryNumber() {
    add_products();
    add_others();
    add_layers();
  }
  EveryNumber(const EveryNumber&) = delete;
  EveryNumber& operator=(const EveryNumber&) = delete;
  [[nodiscard]] const std::vector<NumberCall>& calls() const { return calls_; }

 private:
  using Y = const View<float, 2>&;
  using Option = const Number&;
  void add_products();
  void add_others();
  void add_layers();

  const Tensor<2> x_ = filled(4e18f), zeros_ = filled(0), small_ = filled(-200);  // products of two x are finite
  const PackedMatrix packed_x_{View<const float, 2>(x_.view)}, packed_zeros_{View<const float, 2>(zeros_.view)};
  RandomState norm_{1}, layer_ = random_layer({}, 1, false);
  LoneTeam team_;
  std::vector<NumberCall> calls_;
};

void EveryNumber::add_products() {
  const View<const float, 2> x = x_.view, zeros = zeros_.view;
  const View<const float, 3> all_x = x.broadcast(0, 1), all_zeros = zeros.broadcast(0, 1);
  const auto sgemm = [x](float alpha, const View<const float, 2>& b, float beta, Y y) {
    headlane_cblas_sgemm(101, 111, 111, 4, 4, 4, alpha, x.data, 4, b.data, 4, beta, y.data, 4);
  };
  const std::vector<NumberCall> products{
      {"gemm, alpha", [=](Option o, Y y) { gemm(x, x, y, {.alpha = o.single}); }},
      {"gemm, beta", [=](Option o, Y y) { gemm(x, zeros, y, {.beta = o.single}); }},
      {"gemm, packed, alpha", [=, this](Option o, Y y) { gemm(x, packed_x_, y, {.alpha = o.single}); }},
      {"gemm, packed, beta", [=, this](Option o, Y y) { gemm(x, packed_zeros_, y, {.beta = o.single}); }},
      {"gemm_batch, alpha", [=](Option o, Y y) { gemm_batch(all_x, all_x, y.broadcast(0, 1), {.alpha = o.single}); }},
      {"gemm_batch, beta", [=](Option o, Y y) { gemm_batch(all_x, all_zeros, y.broadcast(0, 1), {.beta = o.single}); }},
      {"gemm_batch, list",
       [=](Option o, Y y) {
         const std::array<GemmProblem, 2> problems{
             {{.a = x, .b = x.slice(1, 0, 2), .c = y.slice(1, 0, 2), .options = {.alpha = o.single}},
              {.a = x, .b = zeros.slice(1, 2, 4), .c = y.slice(1, 2, 4), .options = {.beta = o.single}}}};
         gemm_batch(problems);
       }},
      {"headlane_cblas_sgemm, alpha", [=](Option o, Y y) { sgemm(o.single, x, 0, y); }},
      {"headlane_cblas_sgemm, alpha with beta 1", [=](Option o, Y y) { sgemm(o.single, x, 1, y); }},
      {"headlane_cblas_sgemm, beta", [=](Option o, Y y) { sgemm(1, zeros, o.single, y); }},
      {"headlane_cblas_sgemm, beta with alpha 0", [=](Option o, Y y) { sgemm(0, x, o.single, y); }},
  };
  calls_.insert(calls_.end(), products.begin(), products.end());
}

void EveryNumber::add_others() {
  const View<const float, 2> x = x_.view;
  const View<const float, 2> small = small_.view;
  const View<const float, 4> q(x.data, {1, 1, 4, 4});
  const auto heads = [](Y y) { return View<float, 4>(y.data, {1, 1, 4, 4}); };
  const std::vector<NumberCall> others{
      {"softmax, scale", [=](Option o, Y y) { softmax(x, y, {.scale = o.single}); }},
      {"layer_norm, eps", [=](Option o, Y y) { layer_norm(x, y, {.eps = o.single}); }},
      {"rms_norm, eps", [=](Option o, Y y) { rms_norm(x, y, {.eps = o.single}); }},
      {"attention, scale", [=](Option o, Y y) { attention(q, q, q, heads(y), {.scale = o.single}); }},
      {"attention, softcap", [=](Option o, Y y) { attention(q, q, q, heads(y), {.softcap = o.single}); }},
      {"plan_attention, softcap",
       [=](Option o, Y y) { static_cast<void>(plan_attention(q, q, q, heads(y), {.softcap = o.single})); }},
      {"attention_weights, scale", [=](Option o, Y y) { attention_weights(q, q, heads(y), {.scale = o.single}); }},
      {"linear_attention, scale", [=](Option o, Y y) { linear_attention(q, q, q, heads(y), {.scale = o.single}); }},
      {"linear_attention, beta_scale",
       [=](Option o, Y y) {
         linear_attention(q, q, q, heads(y), {.beta = {x.data, {1, 1, 4}}, .beta_scale = o.single});
       }},
      {"linear_attention, min_step",
       [=](Option o, Y y) {
         linear_attention(q, q, q, heads(y),
                          {.log_decay = View<const float, 3>(small.data, {1, 1, 4}),
                           .a_log = {small.data, {1}},
                           .discretize = true,
                           .min_step = o.single});
       }},
      {"linear_attention, eps",
       [=](Option o, Y y) { linear_attention(q, q, q, heads(y), {.normalize = true, .eps = o.single}); }},
      {"rotary_embedding, base", [=](Option o, Y y) { rotary_embedding(q, heads(y), {.base = o.twice}); }},
      {"sinusoidal_encoding, base", [=](Option o, Y y) { sinusoidal_encoding(y, {.base = o.twice}); }},
      {"add_sinusoidal_encoding, scale", [=](Option o, Y y) { add_sinusoidal_encoding(x, y, {.scale = o.single}); }},
  };
  calls_.insert(calls_.end(), others.begin(), others.end());
}

void EveryNumber::add_layers() {
  norm_.vector("weight", 4, 1);
  const View<const float, 2> x = x_.view;
  const auto encoder = [this](float eps, Team* team) {
    const EncoderLayer made(layer_.dict, "", {.attention = {.heads = 3}, .eps = eps, .team = team});
  };
  const std::vector<NumberCall> layers{
      {"Normalization, eps",
       [=, this](Option o, Y y) { Normalization(norm_.dict, "", NormKind::rms, o.single).forward(x, y); }},
      {"EncoderLayer, eps", [=](Option o, Y) { encoder(o.single, nullptr); }},
      {"EncoderLayer of a team, eps", [=, this](Option o, Y) { encoder(o.single, &team_); }},
      {"MultiHeadAttention of a team, scale",
       [this](Option o, Y) {
         const MultiHeadAttention made(layer_.dict, "self_attn.", {.heads = 3, .scale = o.single, .team = &team_});
       }},
  };
  calls_.insert(calls_.end(), layers.begin(), layers.end());
}

/// Makes a call in this state and returns its message, if it throws, and the hash of y. Checks that
/// the call leaves the state as it was, exception flags included.
std::string result_of(const NumberCall& call, const Number& option, unsigned wanted) {
  const Tensor<2> y = filled(1e38f);
  std::string error;
  const unsigned before = _mm_getcsr();
  _mm_setcsr(wanted);
  try {
    call.run(option, y.view);
  } catch (const std::invalid_argument& refused) {
    error = refused.what();
  }
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  CHECK_MESSAGE(after == wanted, call.name, " ", option.single);
  Hash hash;
  hash.add(y.view);
  return error + std::to_string(hash.value());
}

TEST_CASE("options that are denormal or NaN: the caller's state changes no bit, and they do not change it") {
  const EveryNumber numbers;
  const std::vector<Number> options{{1e-40f, 1e-310}, {nan, std::numeric_limits<double>::quiet_NaN()}};
  for (const NumberCall& call : numbers.calls())
    for (const Number& option : options) {
      const std::string expected = result_of(call, option, 0x1f80);
      for (const unsigned wanted : {0x9fc0u, 0u, 0x8040u})  // FTZ and DAZ; all exceptions unmasked; both
        CHECK_MESSAGE(result_of(call, option, wanted) == expected, call.name, " ", option.single, ", state ", wanted);
    }
}
#endif
#endif

}  // namespace
}  // namespace headlane::test
