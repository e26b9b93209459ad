// linear_attention token by token in double, with the bounds of linear_attention.hpp, and calls
// with operands in any layout.
#pragma once

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
  std::uint64_t seed = 1;
  Index layout = -1;   ///< of head_layouts(), for the first operand; -1: all operands are dense
  bool alike = false;  ///< the same layout for all operands, otherwise each has the next one

  [[nodiscard]] Layout layout_of(Index operand) const { return layout_from(head_layouts(), layout, alike, operand); }
};

inline std::string text_of(const LinearCase& c) {
  std::ostringstream text;
  text << text_of(std::array{c.batch, c.key_heads, c.heads, c.length, c.key_dim, c.value_dim}) << ", decay "
       << static_cast<int>(c.decay) << (c.beta ? ", beta" : "") << (c.state ? ", state" : "")
       << (c.normalize ? ", normalize" : "") << (c.scale ? ", scale" : "") << ", layout " << c.layout_of(0).name
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

/// The operands of a call. Those of a view without data are not given.
struct LinearCall {
  View<const float, 4> q, k, v;
  View<float, 4> out, state = {};
  View<const float, 3> decay = {}, beta = {};
  View<const float, 4> row_decay = {};
  std::optional<float> scale = std::nullopt;
  bool normalize = false;
  float eps = 1e-6f;
  int num_threads = 0;

  [[nodiscard]] LinearAttentionOptions options() const {
    LinearAttentionOptions o{.scale = scale, .normalize = normalize, .eps = eps};
    if (decay) o.log_decay = decay;
    if (row_decay) o.log_decay = row_decay;
    o.beta = beta;
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
    const auto part = [](auto& view, Index i) {
      if (view) view = view.slice(1, i, i + 1);
    };
    part(result.q, of_key), part(result.k, of_key), part(result.v, h), part(result.out, h);
    part(result.decay, h), part(result.beta, h), part(result.row_decay, h), part(result.state, h);
    return result;
  }
};

/// All tensors of a call; those that the case does not use are not passed.
struct LinearTensors {
  LinearCase c;
  Tensor<4> q, k, v, out, state, row_decay;
  Tensor<3> decay, beta;

  explicit LinearTensors(const LinearCase& c_)
      : c(c_),
        q({c.batch, c.key_heads, c.length, c.key_dim}, c.layout_of(0)),
        k({c.batch, c.key_heads, c.length, c.key_dim}, c.layout_of(1)),
        v({c.batch, c.heads, c.length, c.value_dim}, c.layout_of(2)),
        out({c.batch, c.heads, c.length, c.value_dim}, c.layout_of(3)),
        state({c.batch, c.heads, c.key_dim, c.value_dim}, c.layout_of(4)),
        row_decay({c.batch, c.heads, c.length, c.key_dim}, c.layout_of(5)),
        decay({c.batch, c.heads, c.length}, c.layout_of(6)),
        beta({c.batch, c.heads, c.length}, c.layout_of(7)) {
    Random random(c.seed);
    // Keys of a length about 1, so that the delta rule is stable.
    const float size = c.normalize ? 2.0f : 1 / std::sqrt(static_cast<float>(c.key_dim));
    for (const auto* keys : {&q, &k}) for_each(keys->view, [&](float& x) { x = size * random.normal(); });
    for (const auto* values : {&v, &state}) fill_normal(values->view, random);
    const auto log_decay = [&](float& x) { x = -0.3f * std::abs(random.normal()); };
    for_each(row_decay.view, log_decay);
    for_each(decay.view, log_decay);
    for_each(beta.view, [&](float& x) { x = 0.5f + 0.5f * random.uniform(); });
  }

  [[nodiscard]] LinearCall call(int num_threads = 0) const {
    LinearCall call{.q = q.view, .k = k.view, .v = v.view, .out = out.view};
    if (c.state) call.state = state.view;
    if (c.decay == Decay::token) call.decay = decay.view;
    if (c.decay == Decay::row) call.row_decay = row_decay.view;
    if (c.beta) call.beta = beta.view;
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
    return {elements(q.view),         elements(k.view),     elements(v.view),
            elements(row_decay.view), elements(decay.view), elements(beta.view)};
  }
  [[nodiscard]] bool surroundings_untouched() const {
    return out.surroundings_untouched() && state.surroundings_untouched();
  }
};

/// The query or key of one token.
inline std::vector<double> exact_row(const LinearCall& one, const View<const float, 4>& x) {
  std::vector<double> row;
  double square = double{one.eps};
  for (Index i = 0; i < x.size(3); ++i) {
    row.push_back(double{x(0, 0, 0, i)});
    square += row.back() * row.back();
  }
  if (one.normalize)
    for (double& e : row) e /= std::sqrt(square);
  return row;
}

/// One token of one head against the oracle: the state after it from the state before it, and
/// out from the state after it. `at`: batch element, head, token.
inline void compare_token(const LinearCall& one, const View<const float, 4>& before, const std::array<Index, 3>& at,
                          Comparison& out, Comparison& state) {
  const Index rows = one.q.size(3), columns = one.v.size(3);
  const std::vector<double> q = exact_row(one, one.q), k = exact_row(one, one.k);
  const double n = static_cast<double>(rows), off = one.normalize ? (n / 64 + 11) * unit : 0;
  const double scale = one.scale ? double{*one.scale} : 1 / std::sqrt(n), tiny = (n + 4) * smallest;
  const bool decays = one.decay || one.row_decay;
  const double beta = one.beta ? double{one.beta(0, 0, 0)} : 1;
  std::vector<double> d(q.size(), 1.0);
  for (Index i = 0; i < rows && decays; ++i)
    d[static_cast<std::size_t>(i)] = std::exp(double{one.decay ? one.decay(0, 0, 0) : one.row_decay(0, 0, 0, i)});
  for (Index j = 0; j < columns; ++j) {
    double p = 0, of_p = 0, read = 0, of_read = 0;
    for (std::size_t i = 0; i < q.size(); ++i) {
      const auto row = static_cast<Index>(i);
      const double product = d[i] * double{before(0, 0, row, j)} * k[i];
      const double after = double{one.state(0, 0, row, j)} * q[i];
      p += product, of_p += std::abs(product);
      read += after, of_read += std::abs(after);
    }
    const double v = double{one.v(0, 0, 0, j)}, p_bound = ((n + 4) * unit + off) * of_p + tiny;
    const double u = one.beta ? (v - p) * beta : v;
    const double u_bound =
        one.beta ? (p_bound + 2 * unit * (std::abs(v - p) + p_bound)) * std::abs(beta) + 2 * smallest : 0;
    for (std::size_t i = 0; i < q.size(); ++i) {
      const auto row = static_cast<Index>(i);
      const double kept = d[i] * double{before(0, 0, row, j)}, exact = kept + k[i] * u, size = std::abs(k[i]);
      // exp is off by 1 ULP, which are up to two roundings.
      const double more = (decays ? 3 * unit * std::abs(kept) : 0) + size * (u_bound + off * (std::abs(u) + u_bound));
      state.add({at[0], at[1], at[2], row, j}, one.state(0, 0, row, j), exact,
                more + unit * (std::abs(exact) + more) + 3 * smallest);
    }
    out.add({at[0], at[1], at[2], j}, one.out(0, 0, 0, j), scale * read,
            ((n + (one.scale ? 2 : 3)) * unit + off) * std::abs(scale) * of_read + tiny * (1 + std::abs(scale)));
  }
}

/// One call against the oracle, which goes from token to token by calls of one token each: their
/// bits are those of the one call. Inputs and surroundings are unchanged.
inline void check_linear(const LinearCase& c, Comparison::Kind kind = Comparison::Kind::data) {
  const std::string text = text_of(c);
  LinearCase dense = c;
  dense.layout = -1;
  const LinearTensors steps(dense), whole(c);
  INFO(text);
  const LinearCall all = steps.call_with_state();
  const Tensor<4> before(all.state.shape);
  Comparison out("linear_attention", text, c.seed, kind), state("linear_attention: state", text, c.seed, kind);
  for (Index t = 0; t < c.length; ++t) {
    copy<4>(all.state, before.view);
    all.tokens(t, t + 1).run();
    for (Index b = 0; b < c.batch; ++b)
      for (Index h = 0; h < c.heads; ++h)
        compare_token(all.head(b, h).tokens(t, t + 1), before.view.slice(0, b, b + 1).slice(1, h, h + 1), {b, h, t},
                      out, state);
  }
  if (out.count() > 0) out.finish(), state.finish();
  const auto inputs = whole.inputs();
  whole.call(static_cast<int>(c.seed % 3)).run();
  CHECK_MESSAGE(different_bits(whole.out.view, steps.out.view) == 0, "isa ", isa());
  if (c.state) CHECK_MESSAGE(different_bits(whole.state.view, steps.state.view) == 0, "isa ", isa());
  CHECK(whole.inputs() == inputs);
  CHECK(whole.surroundings_untouched());
}

}  // namespace headlane::test
