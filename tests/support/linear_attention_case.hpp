// Calls of linear_attention with any options and operands in any layout.
#pragma once

#include "support/scope.hpp"
#include "support/sequence_case.hpp"
#include "support/tolerance.hpp"

#include <headlane/linear_attention.hpp>

#include <array>
#include <cmath>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace headlane::test {

/// Whether log_decay is not given, has a decay for each token, or one for each row of the state.
enum class Decay { none, token, row };

/// Whether decays are computed from a gate, and its bias: none, one for each head, or one for
/// each row of the state.
enum class Gate { none, rate, head_bias, row_bias };

/// layouts(), and heads that are adjacent in memory: [batch, length, heads, dim].
inline const std::vector<Layout>& head_layouts() {
  static const std::vector<Layout> all = [] {
    std::vector<Layout> list = layouts();
    list.push_back({.name = "middle", .order = Order::middle});
    return list;
  }();
  return all;
}

struct LinearCase {
  Index batch = 1, key_heads = 1, heads = 1, length = 1, key_dim = 1, value_dim = 1;
  Decay decay = Decay::none;
  bool beta = false, state = false, normalize = false;
  std::optional<float> scale = std::nullopt;
  Gate gate = Gate::none;
  bool sigmoid_beta = false;
  float beta_scale = 1;
  bool discretize = false, skip = false;
  float min_step = 0, max_step = infinity;
  std::uint64_t seed = 1;
  Index layout = -1;   ///< of head_layouts(), for the first operand; -1: all operands are dense
  bool alike = false;  ///< the same layout for all operands, otherwise each has the next one

  [[nodiscard]] Layout layout_of(Index operand) const { return layout_from(head_layouts(), layout, alike, operand); }
};

inline std::string text_of(const LinearCase& c) {
  std::ostringstream text;
  text << text_of(std::array{c.batch, c.key_heads, c.heads, c.length, c.key_dim, c.value_dim}) << ", decay "
       << static_cast<int>(c.decay) << (c.beta ? ", beta" : "") << (c.state ? ", state" : "")
       << (c.normalize ? ", normalize" : "") << (c.scale ? ", scale" : "") << ", gate " << static_cast<int>(c.gate)
       << (c.sigmoid_beta ? ", sigmoid" : "") << ", beta_scale " << c.beta_scale << (c.discretize ? ", discretize" : "")
       << (c.min_step > 0 ? ", limits" : "") << (c.skip ? ", skip" : "") << ", layout " << c.layout_of(0).name
       << (c.alike ? ", alike" : "");
  return text.str();
}

/// The number-th of all 48 combinations of options.
inline LinearCase with_options(LinearCase c, Index number) {
  number %= 48;
  c.decay = static_cast<Decay>(number % 3);
  c.beta = number / 3 % 2 == 1;
  c.state = number / 6 % 2 == 1;
  c.normalize = number / 12 % 2 == 1;
  if (number / 24 == 1) c.scale = -0.7f;
  return c;
}

/// The number-th of all 16 combinations of what decays and beta are computed from, if the case
/// has them.
inline LinearCase with_gates(LinearCase c, Index number) {
  if (c.decay != Decay::none) c.gate = static_cast<Gate>(number % (c.decay == Decay::row ? 4 : 3));
  c.sigmoid_beta = c.beta && number / 4 % 2 == 1;
  c.beta_scale = number / 8 % 2 == 1 ? 1.75f : 1.0f;
  return c;
}

/// The number-th of all 8 combinations of discretize, if the case has a gate for each token, skip,
/// and limits of the steps.
inline LinearCase with_steps(LinearCase c, Index number) {
  c.discretize = number % 2 == 1 && c.decay == Decay::token && c.gate != Gate::none;
  c.skip = number / 2 % 2 == 1;
  if (c.discretize && number / 4 % 2 == 1) c.min_step = 0.4f, c.max_step = 1.5f;
  return c;
}

/// The operands of a call. Those of a view without data are not given.
struct LinearCall {
  View<const float, 4> q, k, v;
  View<float, 4> out, state = {};
  View<const float, 3> decay = {}, beta = {};
  View<const float, 4> row_decay = {};
  View<const float, 1> a_log = {}, dt_bias = {}, skip = {};
  View<const float, 2> row_bias = {};
  bool discretize = false, sigmoid_beta = false;
  float min_step = 0, max_step = infinity, beta_scale = 1;
  std::optional<float> scale = std::nullopt;
  bool normalize = false;
  float eps = 1e-6f;
  int num_threads = 0;

  [[nodiscard]] LinearAttentionOptions options() const {
    LinearAttentionOptions o{.scale = scale, .normalize = normalize, .eps = eps};
    if (decay) o.log_decay = decay;
    if (row_decay) o.log_decay = row_decay;
    o.beta = beta;
    o.a_log = a_log;
    if (dt_bias) o.dt_bias = dt_bias;
    if (row_bias) o.dt_bias = row_bias;
    o.discretize = discretize;
    o.min_step = min_step;
    o.max_step = max_step;
    o.sigmoid_beta = sigmoid_beta;
    o.beta_scale = beta_scale;
    o.skip = skip;
    o.state = state;
    o.num_threads = num_threads;
    return o;
  }
  void run() const { linear_attention(q, k, v, out, options()); }

  /// Elements first … end - 1 of axes of all operands that have them: the batch, or tokens.
  [[nodiscard]] LinearCall slice(int axis, Index first, Index end) const {
    const auto part = [&](auto& view) {
      if (view) view = view.slice(axis, first, end);
    };
    LinearCall result = *this;
    part(result.q), part(result.k), part(result.v), part(result.out);
    part(result.decay), part(result.beta), part(result.row_decay);
    if (axis == 0) part(result.state);
    return result;
  }
  [[nodiscard]] LinearCall tokens(Index first, Index end) const { return slice(2, first, end); }

  /// One head of a batch element.
  [[nodiscard]] LinearCall head(Index b, Index h) const {
    LinearCall result = slice(0, b, b + 1);
    const Index of_key = h / (v.size(1) / k.size(1));
    const auto part = [](auto& view, Index i, int axis = 1) {
      if (view) view = view.slice(axis, i, i + 1);
    };
    part(result.q, of_key), part(result.k, of_key), part(result.v, h), part(result.out, h);
    part(result.decay, h), part(result.beta, h), part(result.row_decay, h), part(result.state, h);
    part(result.a_log, h, 0), part(result.dt_bias, h, 0), part(result.row_bias, h, 0);
    part(result.skip, h, 0);
    return result;
  }
};

/// All tensors of a call; those that the case does not use are not passed.
struct LinearTensors {
  LinearCase c;
  Tensor<4> q, k, v, out, state, row_decay;
  Tensor<3> decay, beta;
  Tensor<1> a_log, dt_bias, skip;
  Tensor<2> row_bias;

  explicit LinearTensors(const LinearCase& c_)
      : c(c_),
        q({c.batch, c.key_heads, c.length, c.key_dim}, c.layout_of(0)),
        k({c.batch, c.key_heads, c.length, c.key_dim}, c.layout_of(1)),
        v({c.batch, c.heads, c.length, c.value_dim}, c.layout_of(2)),
        out({c.batch, c.heads, c.length, c.value_dim}, c.layout_of(3)),
        state({c.batch, c.heads, c.key_dim, c.value_dim}, c.layout_of(4)),
        row_decay({c.batch, c.heads, c.length, c.key_dim}, c.layout_of(5)),
        decay({c.batch, c.heads, c.length}, c.layout_of(6)),
        beta({c.batch, c.heads, c.length}, c.layout_of(7)),
        a_log({c.heads}, c.layout_of(8)),
        dt_bias({c.heads}, c.layout_of(9)),
        skip({c.heads}, c.layout_of(11)),
        row_bias({c.heads, c.key_dim}, c.layout_of(10)) {
    Random random(c.seed);
    // Keys of a length about 1, so that the delta rule is stable.
    const float size = c.normalize ? 2.0f : 1 / std::sqrt(static_cast<float>(c.key_dim));
    for (const auto* keys : {&q, &k}) for_each(keys->view, [&](float& x) { x = size * random.normal(); });
    for (const auto* values : {&v, &state}) fill_normal(values->view, random);
    const auto log_decay = [&](float& x) { x = -0.3f * std::abs(random.normal()); };
    for_each(row_decay.view, log_decay);
    for_each(decay.view, log_decay);
    for_each(beta.view, [&](float& x) { x = 0.5f + 0.5f * random.uniform(); });
    fill_gates(random);
    fill_normal(skip.view, random);
  }

  [[nodiscard]] LinearCall call(int num_threads = 0) const {
    LinearCall call{.q = q.view, .k = k.view, .v = v.view, .out = out.view};
    if (c.state) call.state = state.view;
    if (c.decay == Decay::token) call.decay = decay.view;
    if (c.decay == Decay::row) call.row_decay = row_decay.view;
    if (c.beta) call.beta = beta.view;
    if (c.gate != Gate::none) call.a_log = a_log.view;
    if (c.gate == Gate::head_bias) call.dt_bias = dt_bias.view;
    if (c.gate == Gate::row_bias) call.row_bias = row_bias.view;
    if (c.skip) call.skip = skip.view;
    call.discretize = c.discretize;
    call.min_step = c.min_step;
    call.max_step = c.max_step;
    call.sigmoid_beta = c.sigmoid_beta;
    call.beta_scale = c.beta_scale;
    call.scale = c.scale;
    call.normalize = c.normalize;
    call.num_threads = num_threads;
    return call;
  }
  /// With the state, which is 0 before if the case has none.
  [[nodiscard]] LinearCall call_with_state() const {
    if (!c.state) for_each(state.view, [](float& x) { x = 0; });
    LinearCall result = call();
    result.state = state.view;
    return result;
  }
  [[nodiscard]] const Tensor<4>& output() const { return out; }
  [[nodiscard]] std::vector<std::vector<float>> inputs() const {
    return {elements(q.view),        elements(k.view),    elements(v.view),     elements(row_decay.view),
            elements(decay.view),    elements(beta.view), elements(a_log.view), elements(dt_bias.view),
            elements(row_bias.view), elements(skip.view)};
  }
  [[nodiscard]] bool surroundings_untouched() const {
    return out.surroundings_untouched() && state.surroundings_untouched();
  }

 private:
  /// Fills the inputs of the gates with numbers of both signs.
  void fill_gates(Random& random) const {
    fill_normal(dt_bias.view, random), fill_normal(row_bias.view, random);
    for_each(a_log.view, [&](float& x) { x = random.normal() - 1; });
    const auto gate = [&](float& x) { x = 2 * random.normal(); };
    if (c.gate != Gate::none) for_each(row_decay.view, gate), for_each(decay.view, gate);
    if (c.sigmoid_beta) fill_normal(beta.view, random);
  }
};

/// The calls of one sequence that have the bits of a plain one: on several threads, on every
/// instruction set, of strided operands, of each head and of each batch element alone.
inline void add_other_ways(const SameBits<LinearTensors>& same) {
  const LinearCase& c = same.c;
  for (const int threads : {1, 2, 3, 7}) same.add("threads", c, [&](const LinearTensors& t) { t.call(threads).run(); });
  for (const auto name : available_isas()) {
    const IsaScope scope(name);
    same.add(std::string(name), c, [&](const LinearTensors& t) { t.call(2).run(); });
  }
  LinearCase strided = c;
  for (strided.layout = 1; strided.layout < std::ssize(head_layouts()); ++strided.layout)
    same.add("strided", strided, [&](const LinearTensors& t) { t.call(3).run(); });
  same.add("a head alone", c, [&](const LinearTensors& t) {
    for (Index b = 0; b < c.batch; ++b)
      for (Index h = 0; h < c.heads; ++h) t.call(1).head(b, h).run();
  });
  same.add("a batch element alone", c, [&](const LinearTensors& t) {
    for (Index b = 0; b < c.batch; ++b) t.call(2).slice(0, b, b + 1).run();
  });
}

}  // namespace headlane::test
