// The worked examples of the tutorials: A, B and C to the printed digits, D and E against their
// formulas.
#include "support/attention_case.hpp"
#include "support/layer_model.hpp"
#include "support/layer_separate.hpp"
#include "support/scope.hpp"
#include "support/tolerance.hpp"

#include <headlane/attention.hpp>
#include <headlane/gemm.hpp>
#include <headlane/position.hpp>

namespace headlane::test {
namespace {

template <Index Rows, Index Columns>
struct Matrix {
  std::array<float, static_cast<std::size_t>(Rows* Columns)> values{};
  View<float, 2> view() { return {values.data(), {Rows, Columns}}; }
  View<float, 4> as_head() { return {values.data(), {1, 1, Rows, Columns}}; }
};

template <Index Rows, Index Columns>
void check_exact(Matrix<Rows, Columns> actual, const Matrix<Rows, Columns>& expected) {
  for (std::size_t i = 0; i < expected.values.size(); ++i) CHECK(actual.values[i] == expected.values[i]);
}

// Half a unit of the eighth printed decimal, plus four roundings of a float in a short computation.
template <std::size_t Size>
void check_printed(const float* actual, const std::array<double, Size>& printed, const char* what) {
  Comparison comparison("worked examples", what, 0, Comparison::Kind::special);
  for (std::size_t i = 0; i < Size; ++i) {
    comparison.add({static_cast<Index>(i)}, actual[i], printed[i], 0.5e-8 + 4 * unit * std::abs(printed[i]));
  }
  comparison.finish();
}

TEST_CASE("worked example A: self-attention, 3 inputs, d_model 4, d_k 3, unscaled") {
  Matrix<3, 4> x{{1, 0, 1, 0, 0, 2, 0, 2, 1, 1, 1, 1}};
  Matrix<4, 3> w_q{{1, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1, 1}}, w_k{{0, 0, 1, 1, 1, 0, 0, 1, 0, 1, 1, 0}};
  Matrix<4, 3> w_v{{0, 2, 0, 0, 3, 0, 1, 0, 3, 1, 1, 0}};
  Matrix<3, 3> q, k, v, scores, weights, out;
  gemm(x.view(), w_q.view(), q.view());
  gemm(x.view(), w_k.view(), k.view());
  gemm(x.view(), w_v.view(), v.view());
  check_exact(q, {{1, 0, 2, 2, 2, 2, 2, 1, 3}});
  check_exact(k, {{0, 1, 1, 4, 4, 0, 2, 3, 1}});
  check_exact(v, {{1, 2, 3, 2, 8, 0, 2, 6, 3}});

  gemm(q.view(), k.view().transposed(), scores.view());
  check_exact(scores, {{2, 4, 4, 4, 16, 12, 4, 12, 10}});
  softmax(scores.view(), weights.view());
  check_printed<9>(weights.values.data(),
                   {0.0633789383, 0.468310531, 0.468310531, 6.03366485e-06, 0.982007865, 0.0179861014, 2.95387223e-04,
                    0.880536902, 0.119167711},
                   "A, weights");
  const std::array<double, 9> terms{0.06337894, 0.12675788, 0.19013681, 0.93662106, 3.74648425,
                                    0,          0.93662106, 2.80986319, 1.40493159};
  std::array<float, 9> products{};
  for (std::size_t j = 0; j < 3; ++j) {
    for (std::size_t d = 0; d < 3; ++d) products[3 * j + d] = weights.values[j] * v.values[3 * j + d];
  }
  check_printed(products.data(), terms, "A, row 1 term by term");

  const std::array<double, 9> printed{1.93662106, 6.68310531, 1.59506841, 1.99999397, 7.96399160,
                                      0.05397641, 1.99970461, 7.75989225, 0.35838929};
  gemm(weights.view(), v.view(), out.view());
  check_printed(out.values.data(), printed, "A, output by gemm and softmax");
  attention(q.as_head(), k.as_head(), v.as_head(), out.as_head(), scaled(1));
  check_printed(out.values.data(), printed, "A, output by attention");
}

TEST_CASE("worked example B: general attention, 4 words of dimension 3, scaled") {
  Matrix<4, 3> words{{1, 0, 0, 0, 1, 0, 1, 1, 0, 0, 0, 1}};
  Matrix<3, 3> w_q{{2, 0, 2, 2, 0, 0, 2, 1, 2}}, w_k{{2, 2, 2, 0, 2, 1, 0, 1, 1}}, w_v{{1, 1, 0, 0, 1, 1, 0, 0, 0}};
  Matrix<4, 3> q, k, v, out;
  gemm(words.view(), w_q.view(), q.view());
  gemm(words.view(), w_k.view(), k.view());
  gemm(words.view(), w_v.view(), v.view());
  Matrix<4, 4> scores, weights;
  gemm(q.view(), k.view().transposed(), scores.view());
  check_exact(scores, {{8, 2, 10, 2, 4, 0, 4, 0, 12, 2, 14, 2, 10, 4, 14, 3}});
  softmax(scores.view(), weights.view(), {.scale = static_cast<float>(1 / std::sqrt(3.0))});
  check_printed<4>(weights.values.data(), {0.23608986, 0.00738988, 0.74913039, 0.00738988}, "B, weights of row 1");

  const std::array<double, 12> printed{0.98522025, 1.74174051, 0.75652026, 0.90965265, 1.40965265, 0.5,
                                       0.99851226, 1.75849334, 0.75998108, 0.99560386, 1.90407309, 0.90846923};
  attention(q.as_head(), k.as_head(), v.as_head(), out.as_head());
  check_printed(out.values.data(), printed, "B, output by attention");
  gemm(weights.view(), v.view(), out.view());
  check_printed(out.values.data(), printed, "B, output by gemm and softmax");
}

TEST_CASE("worked example C: eight heads of 64 side by side in [L, 512]") {
  constexpr Index length = 20, heads = 8, dim = 64, width = heads * dim;
  Random random(1);
  const Tensor<2> q = random_tensor<2>({length, width}, random), k = random_tensor<2>({length, width}, random);
  const Tensor<2> v = random_tensor<2>({length, width}, random), out({length, width});
  multi_head_attention(q.view, k.view, v.view, out.view, heads);
  for (Index h = 0; h < heads; ++h) {
    // Head h alone, from copies of its columns.
    Tensor<4> head_q({1, 1, length, dim}), head_k({1, 1, length, dim}), head_v({1, 1, length, dim});
    const Tensor<4> head_out({1, 1, length, dim});
    const auto columns = [&](const Tensor<2>& t) { return t.view.slice(1, dim * h, dim * h + dim); };
    copy<2>(columns(q), head_q.view.select(0, 0).select(0, 0));
    copy<2>(columns(k), head_k.view.select(0, 0).select(0, 0));
    copy<2>(columns(v), head_v.view.select(0, 0).select(0, 0));
    attention(head_q.view, head_k.view, head_v.view, head_out.view);
    CHECK(different_bits(columns(out), head_out.view.select(0, 0).select(0, 0)) == 0);
  }
}

TEST_CASE("worked example D: sinusoidal encodings, the paper's and the tutorial's") {
  constexpr Index length = 12, width = 512;
  const Tensor<2> paper({length, width}), tutorial({length, width});
  Random random(2);
  const Tensor<2> y = random_tensor<2>({length, width}, random), sum({length, width});
  sinusoidal_encoding(paper.view);
  sinusoidal_encoding(tutorial.view, {.exponent = SinusoidalExponent::doubled});
  add_sinusoidal_encoding(y.view, sum.view, {.exponent = SinusoidalExponent::doubled, .scale = 0});
  for (Index pos = 0; pos < length; ++pos) {
    for (Index j = 0; j < width / 2; ++j) {
      const double at = static_cast<double>(pos), share = static_cast<double>(2 * j) / width,
                   angle = at / std::pow(10000.0, share);
      CHECK(std::abs(double{paper.view(pos, 2 * j)} - std::sin(angle)) < 0x1p-23);
      CHECK(std::abs(double{paper.view(pos, 2 * j + 1)} - std::cos(angle)) < 0x1p-23);
      const Index i = 2 * j;  // even; its sine and, beside it, its cosine
      const double twice = at / std::pow(10000.0, static_cast<double>(2 * i) / width);
      CHECK(std::abs(double{tutorial.view(pos, i)} - std::sin(twice)) < 0x1p-23);
      CHECK(std::abs(double{tutorial.view(pos, i + 1)} - std::cos(twice)) < 0x1p-23);
      const double whole = double{y.view(pos, i)} * std::sqrt(512.0) + std::sin(twice);
      CHECK(std::abs(double{sum.view(pos, i)} - whole) < 0x1p-22 * (1 + std::abs(whole)));
    }
  }
}

// Two sublayers, multi-head attention and a fully connected network, each followed by a residual
// connection and layer normalization.
TEST_CASE("worked example E: an encoder layer, d_model 512, 8 heads") {
  const LayerSizes s{.d_model = 512, .heads = 8, .kv_heads = 8, .head_dim = 64, .d_ff = slow_isa() ? 300 : 2048};
  const RandomState state = random_layer(s, 3, false);
  Random random(4);
  Tensor<3> x({1, 10, 512});
  fill_normal(x.view, random);
  const Tensor<3> y(x.view.shape);
  EncoderLayer(state.dict, "", {.attention = {.heads = 8}}).forward(x.view, y.view);
  CHECK(different_bits(y.view, separate::encoder(x, state.dict, s, {}).view) == 0);

  const IsVisible all = [](Index, Index, Index) { return true; };
  Bounded words(x.view), attended = layer_oracle::multi_head(words, words, state.dict, "self_attn.", s, all);
  const auto values = [](Bounded b) {  // bounds of sums this long say nothing
    std::fill(b.error.begin(), b.error.end(), 0);
    return b;
  };
  const auto normed = [&](const Bounded& b, const std::string& name) {
    return values(layer_oracle::norm(values(b), state.dict, name, NormKind::layer, 1e-5f));
  };
  const Bounded first = normed(layer_oracle::add(attended, words), "norm1.");
  const Bounded second = layer_oracle::feed_forward(first, state.dict, "", Activation::relu);
  const Bounded exact = normed(layer_oracle::add(second, first), "norm2.");
  double worst = 0;
  for (Index i = 0; i < 10; ++i)
    for (Index j = 0; j < 512; ++j)
      worst = std::max(worst, std::abs(double{y.view(0, i, j)} - exact.value[exact.at(0, i, j)]));
  CHECK_MESSAGE(worst < 4e-6, "isa ", isa());
  MESSAGE("example E: off by at most ", worst);
}

}  // namespace
}  // namespace headlane::test
