// Two worked examples of self-attention, computed by the library step by step, printed and checked against the known
// figures. The example program and the benchmark share them.
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

/// Prints matrices under their names, each beside a word on whether it is what it should be.
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

  /// The expected figures are printed ones, with eight decimals or nine digits.
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

/// The same in one call; a matrix is one sequence with one head.
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

/// What each key adds to the first row of the output: row j is weight j times value row j.
inline Matrix first_row_terms(const Matrix& weights, const Matrix& v) {
  Matrix terms(v.rows, v.columns);
  for (Index j = 0; j < v.rows; ++j) {
    const auto weight = weights.view().slice(0, 0, 1).slice(1, j, j + 1);
    headlane::gemm(weight, v.view().slice(0, j, j + 1), terms.view().slice(0, j, j + 1));
  }
  return terms;
}

/// Three inputs, d_model = 4, d_k = 3, scores not scaled. False if a figure is wrong.
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

/// Four words, dimension 3, scale = 1 / sqrt(3). False if a figure is wrong.
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

}  // namespace worked
