// Shared by the tests of operations whose state passes from call to call: linear_attention and
// causal_convolution.
#pragma once

#include "support/bit_comparison.hpp"
#include "support/data.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace headlane::test {

/// The layout of an operand: the one with this number, or its successor for each further operand,
/// unless all are alike; -1: dense.
inline Layout layout_from(const std::vector<Layout>& layouts, Index number, bool alike, Index operand) {
  if (number < 0) return {};
  return layouts[static_cast<std::size_t>((alike ? number : number + operand) % std::ssize(layouts))];
}

/// Replaces one element in `one_in` by NaN, an infinity, a zero, a huge or a denormal number.
template <class Tensor>
void add_special(const Tensor& t, Random& random, Index one_in) {
  static const std::vector<float> special{nan,       infinity,  -infinity, 0.0f, -0.0f, 0x1.fffffep127f,
                                          -0x1p100f, 0x1p-149f, -0x1p-130f};
  for_each(t.view, [&](float& x) {
    if (random.integer(1, one_in) == 1) x = random.pick(special);
  });
}

/// Compares calls with one plain call on tensors of equal contents.
template <class Tensors>
struct SameBits {
  using Case = decltype(Tensors::c);

  Case c;
  Tensors plain{c};
  BitComparison& bits;

  SameBits(const Case& c_, BitComparison& bits_) : c(c_), bits(bits_) { plain.call(1).run(); }

  template <class F>
  void add(const std::string& what, const Case& other, const F& run) const {
    const Tensors t(other);
    run(t);
    bits.add(t.output().view, plain.output().view, text_of(other) + ", " + what);
    bits.add(t.state.view, plain.state.view, text_of(other) + ", " + what + ": state");
  }
  /// Cuts the sequence into calls of so many tokens, and one with the rest.
  void add_cut(const std::vector<Index>& tokens, const Case& other, int threads) const {
    add("cut", other, [&](const Tensors& t) {
      Index first = 0;
      for (std::size_t i = 0; i <= tokens.size(); ++i) {
        const Index end = i == tokens.size() ? c.length : std::min(first + tokens[i], c.length);
        t.call(threads).tokens(first, end).run();
        first = end;
      }
    });
  }
};

}  // namespace headlane::test
