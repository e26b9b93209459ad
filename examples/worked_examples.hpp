// Worked examples: self-attention, sinusoidal encodings and an encoder layer, computed step by
// step, printed, and checked against published figures and formulas. Shared with the benchmark.
#pragma once

#include <headlane/headlane.hpp>

#include <cmath>
#include <iomanip>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

namespace worked {

using headlane::Index;

struct Matrix {
  Matrix(Index rows_, Index columns_)
      : rows(rows_), columns(columns_), values(static_cast<std::size_t>(rows * columns)) {}
  Matrix(Index rows_, Index columns_, std::vector<float> values_)
      : rows(rows_), columns(columns_), values(std::move(values_)) {}

  [[nodiscard]] headlane::View<const float, 2> view() const { return {values.data(), {rows, columns}}; }
  [[nodiscard]] headlane::View<float, 2> view() { return {values.data(), {rows, columns}}; }

  Index rows, columns;
  std::vector<float> values;
};

/// Prints matrices under their names, with the result of their check.
class Printer {
 public:
  explicit Printer(std::ostream& out) : out_(out) {}

  void show(const std::string& name, const Matrix& matrix, const std::string& remark = "") {
    out_ << "  " << name << (remark.empty() ? "" : "  [" + remark + "]") << '\n';
    for (Index row = 0; row < matrix.rows; ++row) {
      out_ << "     ";
      for (Index column = 0; column < matrix.columns; ++column) {
        std::ostringstream text;
        text << std::setprecision(9) << matrix.view()(row, column);
        out_ << ' ' << std::setw(13) << text.str();
      }
      out_ << '\n';
    }
  }

  /// `expected` was published with eight decimals or nine significant digits.
  void check(const std::string& name, const Matrix& matrix, const std::vector<float>& expected) {
    bool same = matrix.values.size() == expected.size();
    for (std::size_t i = 0; same && i < expected.size(); ++i) {
      same = std::abs(matrix.values[i] - expected[i]) <= 1e-6f * std::abs(expected[i]) + 6e-9f;
    }
    good_ = good_ && same;
    show(name, matrix, same ? "as expected" : "WRONG");
  }

  [[nodiscard]] bool good() const { return good_; }

 private:
  std::ostream& out_;
  bool good_ = true;
};

inline Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.columns);
  headlane::gemm(a.view(), b.view(), c.view());
  return c;
}

inline Matrix softmax(const Matrix& x, float scale) {
  Matrix y(x.rows, x.columns);
  headlane::softmax(x.view(), y.view(), {.scale = scale});
  return y;
}

/// Attention in one call; a matrix is one sequence with one head.
inline Matrix attention(const Matrix& q, const Matrix& k, const Matrix& v, float scale) {
  Matrix out(q.rows, v.columns);
  headlane::AttentionOptions options;
  options.scale = scale;
  headlane::multi_head_attention(q.view(), k.view(), v.view(), out.view(), 1, options);
  return out;
}

inline Matrix scores_of(const Matrix& q, const Matrix& k) {
  Matrix scores(q.rows, k.rows);
  headlane::gemm(q.view(), k.view().transposed(), scores.view());
  return scores;
}

/// The terms of the first output row: row j is weight j times value row j.
inline Matrix first_row_terms(const Matrix& weights, const Matrix& v) {
  Matrix terms(v.rows, v.columns);
  for (Index j = 0; j < v.rows; ++j) {
    const auto weight = weights.view().slice(0, 0, 1).slice(1, j, j + 1);
    headlane::gemm(weight, v.view().slice(0, j, j + 1), terms.view().slice(0, j, j + 1));
  }
  return terms;
}

/// Three inputs, d_model = 4, d_k = 3, unscaled scores. Returns false if a figure is wrong.
inline bool print_example_a(std::ostream& out) {
  out << "Self-attention step by step: 3 inputs, d_model = 4, d_k = 3, unscaled\n";
  const Matrix x(3, 4, {1, 0, 1, 0, 0, 2, 0, 2, 1, 1, 1, 1});
  const Matrix w_q(4, 3, {1, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1, 1});
  const Matrix w_k(4, 3, {0, 0, 1, 1, 1, 0, 0, 1, 0, 1, 1, 0});
  const Matrix w_v(4, 3, {0, 2, 0, 0, 3, 0, 1, 0, 3, 1, 1, 0});
  const std::vector<float> expected{1.93662106f, 6.68310531f, 1.59506841f, 1.99999397f, 7.96399160f,
                                    0.05397641f, 1.99970461f, 7.75989225f, 0.35838929f};
  Printer printer(out);
  printer.show("x", x);
  const Matrix q = product(x, w_q);
  const Matrix k = product(x, w_k);
  const Matrix v = product(x, w_v);
  printer.check("Q = x · W_q", q, {1, 0, 2, 2, 2, 2, 2, 1, 3});
  printer.check("K = x · W_k", k, {0, 1, 1, 4, 4, 0, 2, 3, 1});
  printer.check("V = x · W_v", v, {1, 2, 3, 2, 8, 0, 2, 6, 3});
  const Matrix scores = scores_of(q, k);
  printer.check("scores = Q · Kᵀ", scores, {2, 4, 4, 4, 16, 12, 4, 12, 10});
  const Matrix weights = softmax(scores, 1);
  printer.check("weights = softmax(scores)", weights,
                {0.0633789383f, 0.468310531f, 0.468310531f, 6.03366485e-06f, 0.982007865f, 0.0179861014f,
                 2.95387223e-04f, 0.880536902f, 0.119167711f});
  printer.check(
      "row 1, term by term: weight · value", first_row_terms(weights, v),
      {0.06337894f, 0.12675788f, 0.19013681f, 0.93662106f, 3.74648425f, 0, 0.93662106f, 2.80986319f, 1.40493159f});
  printer.check("output = weights · V", product(weights, v), expected);
  printer.check("output of attention(Q, K, V)", attention(q, k, v, 1), expected);
  return printer.good();
}

/// Four words, dimension 3, scale = 1 / sqrt(3). Returns false if a figure is wrong.
inline bool print_example_b(std::ostream& out) {
  out << "General attention: 4 words, dimension 3, scale = 1 / sqrt(3)\n";
  const Matrix words(4, 3, {1, 0, 0, 0, 1, 0, 1, 1, 0, 0, 0, 1});
  const Matrix w_q(3, 3, {2, 0, 2, 2, 0, 0, 2, 1, 2});
  const Matrix w_k(3, 3, {2, 2, 2, 0, 2, 1, 0, 1, 1});
  const Matrix w_v(3, 3, {1, 1, 0, 0, 1, 1, 0, 0, 0});
  const std::vector<float> expected{0.98522025f, 1.74174051f, 0.75652026f, 0.90965265f, 1.40965265f, 0.5f,
                                    0.99851226f, 1.75849334f, 0.75998108f, 0.99560386f, 1.90407309f, 0.90846923f};
  const float scale = 1.0f / std::sqrt(3.0f);
  Printer printer(out);
  printer.show("words", words);
  const Matrix q = product(words, w_q);
  const Matrix k = product(words, w_k);
  const Matrix v = product(words, w_v);
  const Matrix scores = scores_of(q, k);
  printer.check("scores = Q · Kᵀ", scores, {8, 2, 10, 2, 4, 0, 4, 0, 12, 2, 14, 2, 10, 4, 14, 3});
  const Matrix weights = softmax(scores, scale);
  Matrix first(1, 4, {weights.values.begin(), weights.values.begin() + 4});
  printer.check("weights, row 1", first, {0.23608986f, 0.00738988f, 0.74913039f, 0.00738988f});
  printer.check("output = weights · V", product(weights, v), expected);
  printer.check("output of attention(Q, K, V)", attention(q, k, v, scale), expected);
  return printer.good();
}

/// Sinusoidal encodings with the paper's exponent and with the doubled one of some tutorials.
/// Returns false if a figure is wrong.
inline bool print_example_d(std::ostream& out) {
  constexpr Index length = 4, width = 8;
  out << "Sinusoidal encodings: 4 positions, d_model = 8\n";
  Printer printer(out);
  const auto formula = [](double factor) {
    std::vector<float> values;
    for (Index pos = 0; pos < length; ++pos)
      for (Index j = 0; j < width / 2; ++j) {
        const double angle = static_cast<double>(pos) / std::pow(10000.0, factor * static_cast<double>(j) / width);
        values.push_back(static_cast<float>(std::sin(angle)));
        values.push_back(static_cast<float>(std::cos(angle)));
      }
    return values;
  };
  Matrix encoding(length, width), words(length, width, std::vector<float>(length * width, 0.5f));
  headlane::sinusoidal_encoding(encoding.view());
  printer.check("sin and cos of pos / 10000^(2j/d), the paper's", encoding, formula(2));
  const headlane::SinusoidalExponent doubled = headlane::SinusoidalExponent::doubled;
  headlane::sinusoidal_encoding(encoding.view(), {.exponent = doubled});
  printer.check("sin and cos of pos / 10000^(4j/d), the doubled exponent", encoding, formula(4));
  std::vector<float> expected = formula(4);
  for (float& e : expected) e += 0.5f * std::sqrt(static_cast<float>(width));
  const Matrix& x = words;
  headlane::add_sinusoidal_encoding(x.view(), words.view(), {.exponent = doubled, .scale = 0});
  printer.check("added to y · sqrt(d_model), y = 0.5", words, expected);
  return printer.good();
}

/// An encoder layer with d_model = 512 and 8 heads: multi-head attention and a fully connected
/// network, each followed by a residual connection and layer normalization. Computed in one call
/// and in steps; returns false if a bit differs.
inline bool print_example_e(std::ostream& out) {
  constexpr Index length = 10, width = 512, heads = 8, hidden = 2048;
  out << "Encoder layer: 10 words, d_model = 512, 8 heads, d_ff = 2048\n";
  std::size_t state = 1;
  const auto random = [&state](Index rows, Index columns, float scale) {
    Matrix m(rows, columns);
    for (float& e : m.values) {
      state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's
      e = scale * (static_cast<float>(state >> 40) * 0x1p-23f - 1);
    }
    return m;
  };
  const Matrix in_proj = random(3 * width, width, 0.08f), out_proj = random(width, width, 0.08f);
  const Matrix linear1 = random(hidden, width, 0.08f), linear2 = random(width, hidden, 0.04f),
               x = random(length, width, 1);
  const Matrix bias = random(1, 3 * width, 0.1f), one(1, width, std::vector<float>(width, 1));
  const auto first = [&bias](Index n) { return headlane::View<const float, 1>(bias.values.data(), {n}); };
  const headlane::View<const float, 1> ones(one.values.data(), {width});
  const headlane::StateDict weights{{"self_attn.in_proj_weight", in_proj.view()},
                                    {"self_attn.in_proj_bias", first(3 * width)},
                                    {"self_attn.out_proj.weight", out_proj.view()},
                                    {"linear1.weight", linear1.view()},
                                    {"linear2.weight", linear2.view()},
                                    {"linear2.bias", first(width)},
                                    {"norm1.weight", ones},
                                    {"norm1.bias", first(width)},
                                    {"norm2.weight", ones}};
  const headlane::EncoderLayer layer(weights, "", {.attention = {.heads = heads}});
  Matrix y(length, width);
  layer.forward({x.values.data(), {1, length, width}}, {y.values.data(), {1, length, width}});

  Matrix qkv(length, 3 * width), mixed(length, width), sum(length, width), normed(length, width), wide(length, hidden),
      steps(length, width);
  headlane::gemm(x.view(), in_proj.view().transposed(), qkv.view(), {.bias = first(3 * width)});
  const auto part = [&](Index i) { return qkv.view().slice(1, i * width, (i + 1) * width); };
  headlane::multi_head_attention(part(0), part(1), part(2), mixed.view(), heads);
  headlane::gemm(mixed.view(), out_proj.view().transposed(), sum.view(), {.residual = x.view()});
  headlane::layer_norm(sum.view(), normed.view(), {.weight = ones, .bias = first(width)});
  headlane::gemm(normed.view(), linear1.view().transposed(), wide.view(), {.activation = headlane::Activation::relu});
  headlane::gemm(wide.view(), linear2.view().transposed(), sum.view(),
                 {.bias = first(width), .residual = normed.view()});
  headlane::layer_norm(sum.view(), steps.view(), {.weight = ones});
  const bool same = y.values == steps.values;
  Printer printer(out);
  printer.show("the first columns", Matrix(1, 6, {y.values.begin(), y.values.begin() + 6}),
               same ? "bit-identical to separate calls" : "NOT bit-identical to separate calls");
  return same;
}

}  // namespace worked
