// gemm with few columns, which may be computed as rows of the transposed product: the bits of the
// same columns beside others.
#include "support/data.hpp"
#include "support/scope.hpp"

#include <headlane/gemm.hpp>

#include <sstream>
#include <string>

namespace headlane::test {
namespace {

struct Case {
  Index m, n, k;
  Layout a = {}, b = {}, c = {};
  bool epilogue = false;

  [[nodiscard]] std::uint64_t seed() const { return static_cast<std::uint64_t>(m * 1000 + k * 10 + n); }
  [[nodiscard]] std::string text() const {
    std::ostringstream text;
    text << "m " << m << ", n " << n << ", k " << k << ", a " << a.name << ", b " << b.name << ", c " << c.name
         << (epilogue ? ", activation and residual" : "") << ", isa " << isa() << ", seed " << seed();
    return text.str();
  }
};

/// The first n columns of a view.
template <class T>
View<T, 2> first_columns(View<T, 2> x, Index n) {
  x.shape[1] = n;
  return x;
}

void check_few_columns(const Case& s) {
  constexpr Index wide = 21;
  Random random(s.seed());
  const Tensor<2> a = random_tensor<2>({s.m, s.k}, random, s.a), b = random_tensor<2>({s.k, wide}, random, s.b);
  const Tensor<2> residual = random_tensor<2>({s.m, wide}, random, s.c);
  const Tensor<2> before = random_tensor<2>({s.m, wide}, random), expected = random_tensor<2>({s.m, wide}, random);
  const Tensor<2> c = random_tensor<2>({s.m, s.n}, random, s.c);
  GemmOptions options{.alpha = 1.3f, .beta = 0.7f};
  for_each_position(expected.view.shape, [&](const auto& p) { expected.view(p[0], p[1]) = before.view(p[0], p[1]); });
  for_each_position(c.view.shape, [&](const auto& p) { c.view(p[0], p[1]) = before.view(p[0], p[1]); });
  if (s.epilogue) options.activation = Activation::gelu, options.residual = residual.view;
  gemm(a.view, b.view, expected.view, options);
  if (s.epilogue) options.residual = first_columns<const float>(residual.view, s.n);
  gemm(a.view, first_columns<const float>(b.view, s.n), c.view, options);
  CHECK_MESSAGE(different_bits(c.view, first_columns<float>(expected.view, s.n)) == 0, s.text());
  CHECK_MESSAGE(c.surroundings_untouched(), s.text());
}

TEST_CASE("gemm: few columns have the bits of the same columns beside others") {
  for (const Index m : {31, 32, 47, 150})
    for (Index n = 1; n <= 4; ++n)
      for (const Index k : {1, 16, 37, 130, 515})
        for (const bool epilogue : {false, true}) check_few_columns({.m = m, .n = n, .k = k, .epilogue = epilogue});
  for (const Layout& a : layouts())
    for (const Layout& b : layouts())
      for (const Layout& c : layouts())
        for (Index n = 1; n <= 4; ++n)
          check_few_columns({.m = 35, .n = n, .k = 39, .a = a, .b = b, .c = c, .epilogue = true});
}

}  // namespace
}  // namespace headlane::test
