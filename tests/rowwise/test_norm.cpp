// Layer norm and RMS norm against the oracle: lengths, options, layouts, in place, large means,
// special values; the same bits for any layout, number of threads and instruction set.
#include "support/guard.hpp"
#include "support/norm_case.hpp"
#include "support/scope.hpp"

namespace headlane::test {
namespace {

template <int Rank>
void check_norm(const NormTensors<Rank>& t, const std::string& what, Comparison::Kind kind = Comparison::Kind::data) {
  const std::vector<float> s = t.rows(), x = elements(t.x.view), residual = elements(t.residual.view);
  t.run();
  compare_norm(t, s, elements(t.y.view), what, kind);
  if (t.norm.sum) CHECK_MESSAGE(elements(t.sum.view) == s, what);
  else for_each(t.sum.view, [](float e) { CHECK(is_sentinel(e)); });
  CHECK_MESSAGE(elements(t.x.view) == x, what);
  CHECK_MESSAGE(elements(t.residual.view) == residual, what);
  for (const auto* tensor : {&t.x, &t.y, &t.residual, &t.sum}) CHECK_MESSAGE(tensor->surroundings_untouched(), what);
}

TEST_CASE("norms: every row length and number of rows, with any options") {
  for (const NormCase& norm : norm_cases()) {
    for (Index n = 0; n <= 80; ++n) check_norm(NormTensors<2>(norm, {5, n}, 1), "lengths", Comparison::Kind::special);
    for (const Index n : tail_sizes) check_norm(NormTensors<2>(norm, {3, n}, 2), "tails", Comparison::Kind::special);
    for (const Index n : {512, 768, 4096, 5000}) check_norm(NormTensors<2>(norm, {9, n}, 3), "long");
    for (const Index rows : tail_sizes) check_norm(NormTensors<2>(norm, {rows, 35}, 4), "rows");
  }
}

TEST_CASE("norms: rank 1 to 8 and every layout") {
  for (const NormCase& norm : norm_cases()) {
    for (const Layout& layout : layouts()) {
      check_norm(NormTensors<1>(norm, {67}, 5, 0, 1, layout, layout, 2), layout.name);
      check_norm(NormTensors<2>(norm, {37, 33}, 6, 0, 1, layout, layout, 3), layout.name);
      check_norm(NormTensors<4>(norm, {2, 3, 4, 70}, 7, 0, 1, layout, {}, 1), layout.name);
      check_norm(NormTensors<8>(norm, {2, 1, 2, 1, 2, 1, 2, 19}, 8, 0, 1, layout, layout), layout.name);
      for (const Layout& other : layouts())
        check_norm(NormTensors<3>(norm, {3, 18, 35}, 9, 0, 1, layout, other), layout.name);
    }
  }
}

TEST_CASE("norms: eps, spreads, and means far from 0") {
  for (const bool centred : {true, false}) {
    for (const float eps : {0.0f, 1e-12f, 1e-6f, 1e-5f, 0.1f, 100.0f})
      for (const float spread : {1e-3f, 1.0f, 1e3f, 1e12f})
        for (const float mean : {0.0f, 1.0f, -30.0f, 1e4f})
          for (const Index n : {20, 64, 512, 4096}) {
            const NormCase norm{centred, n > 64, centred && n > 512, false, false, eps};
            check_norm(NormTensors<2>(norm, {4, n}, 11, mean * spread, spread), "mean and spread");
          }
  }
}

// A one-pass variance, or a mean in one float, would be off by a tenth of the spread or more.
TEST_CASE("layer_norm: a mean far from 0 loses nothing, even where the spread is a few units in the last place of it") {
  for (const auto& [mean, spread] :
       {std::pair{1e4f, 1.0f}, {1e5f, 0.1f}, {3e5f, 0.1f}, {-3e5f, 0.1f}, {1e6f, 1.0f}, {4e6f, 1.0f}})
    for (const Index n : {50, 512, 4096}) {
      const NormTensors<2> t({}, {8, n}, 12, mean, spread);
      t.run();
      const std::vector<float> s = t.rows(), y = elements(t.y.view);
      double worst = 0;
      for (Index row = 0; row < 8; ++row) {
        const auto first = s.begin() + row * n;
        const NormReference exact = norm_reference(t.norm, {first, first + n}, {}, {});
        for (Index i = 0; i < n; ++i)
          worst = std::max(worst, std::abs(double{y[static_cast<std::size_t>(row * n + i)]} -
                                           exact.value[static_cast<std::size_t>(i)]));
      }
      CHECK_MESSAGE(worst < 2e-6, "isa ", isa(), ", length ", n, ", mean ", mean, ", spread ", spread);
    }
}

TEST_CASE("layer_norm: rows without spread give the bias") {
  for (const float value : {0.0f, 1.0f, -3.7f, 1e4f, 12345.678f, 1e-30f}) {
    for (const Index n : {1, 3, 17, 100, 1000, 5000}) {
      NormTensors<1> t({true, true, true}, {n}, 13);
      for_each(t.x.view, [&](float& e) { e = value; });
      t.run();
      double worst = 0;
      for (Index i = 0; i < n; ++i) worst = std::max(worst, std::abs(double{t.y.view(i)} - double{t.bias.view(i)}));
      CHECK_MESSAGE(worst <= 1e-6 * std::abs(double{value}), "isa ", isa(), ", ", value, ", length ", n);
      t.norm.eps = 0;
      t.run();
      const bool exact = n == 1;  // otherwise the mean need not be
      if (exact) for_each(t.y.view, [](float e) { CHECK(std::isnan(e)); });
    }
  }
}

TEST_CASE("norms: special values stay in their row") {
  for (const NormCase& norm : norm_cases()) {
    for (const float value : {nan, infinity, -infinity, 0x1p66f, 0x1.fffffep127f, -0x1p100f}) {
      for (const Index n : {1, 2, 15, 64, 70, 700}) {
        if (n == 1 && norm.centred && std::isfinite(value)) continue;  // no spread
        for (const Index at : {Index{0}, n / 2, n - 1}) {
          const NormTensors<2> clean(norm, {6, n}, 14), t(norm, {6, n}, 14);
          t.x.view(3, at) = value;
          const std::vector<float> s = t.rows();
          clean.run();
          t.run();
          for (Index j = 0; j < n; ++j) CHECK_MESSAGE(std::isnan(t.y.view(3, j)), text_of(norm), " ", value, " ", n);
          CHECK(different_bits(t.y.view.slice(0, 0, 3), clean.y.view.slice(0, 0, 3)) == 0);
          CHECK(different_bits(t.y.view.slice(0, 4, 6), clean.y.view.slice(0, 4, 6)) == 0);
          if (norm.sum)
            for (Index j = 0; j < n; ++j)
              CHECK(bits_of(t.sum.view(3, j)) == bits_of(s[static_cast<std::size_t>(3 * n + j)]));
        }
      }
    }
  }
}

// y and sum in place of every operand, in every layout, with any number of threads: the same bits.
TEST_CASE("norms: in place, broadcast, several threads: the same bits") {
  Index compared = 0;
  for (const NormCase& norm : norm_cases()) {
    for (const std::array<Index, 3>& shape : {std::array<Index, 3>{3, 5, 17}, {2, 40, 130}, {1, 70, 513}}) {
      const NormTensors<3> plain(norm, shape, 15);
      plain.run(1);
      const auto same = [&](const View<float, 3>& y, const View<float, 3>& sum, const std::string& what) {
        ++compared;
        CHECK_MESSAGE(different_bits(y, plain.y.view) == 0, text_of(norm), ", ", what, ", isa ", isa());
        if (norm.sum)
          CHECK_MESSAGE(different_bits(sum, plain.sum.view) == 0, text_of(norm), ", ", what, ", isa ", isa());
      };
      for (const Layout& layout : layouts()) {
        const auto fresh = [&] { return NormTensors<3>(norm, shape, 15, 0, 1, layout, layout, 1 + compared % 3); };
        for (const int threads : {1, 2, 3}) {
          const NormTensors<3> t = fresh();
          t.run(threads);
          same(t.y.view, t.sum.view, "threads");
        }
        const NormTensors<3> a = fresh(), b = fresh(), c = fresh(), d = fresh(), e = fresh();
        a.run_on(a.x.view, a.x.view, a.residual.view, a.sum.view);
        same(a.x.view, a.sum.view, "y is x");
        b.run_on(b.x.view, b.y.view, b.residual.view, b.x.view);
        same(b.y.view, b.x.view, "sum is x");
        if (!norm.residual) continue;
        c.run_on(c.x.view, c.y.view, c.residual.view, c.residual.view);
        same(c.y.view, c.residual.view, "sum is residual");
        d.run_on(d.x.view, d.x.view, d.residual.view, d.residual.view);
        same(d.x.view, d.residual.view, "y is x, sum is residual");
        e.run_on(e.x.view, e.residual.view, e.residual.view, e.x.view);
        same(e.residual.view, e.x.view, "y is residual, sum is x");
      }
      for (const auto name : available_isas()) {
        const IsaScope scope(name);
        const NormTensors<3> t(norm, shape, 15);
        t.run(2);
        same(t.y.view, t.sum.view, std::string(name));
      }
      const NormTensors<3> alone(norm, shape, 15);  // a row alone
      for (Index row = 0; row < shape[1]; ++row) {
        const auto of = [&](const View<float, 3>& view) { return view.slice(1, row, row + 1).slice(0, 0, 1); };
        alone.run_on(of(alone.x.view), of(alone.y.view), of(alone.residual.view), of(alone.sum.view));
      }
      CHECK(different_bits(alone.y.view.slice(0, 0, 1), plain.y.view.slice(0, 0, 1)) == 0);
    }
  }
  CHECK(compared > 2000);
  const NormTensors<2> t({true, true, true, true, true}, {40, 70}, 16);
  const View<const float, 2> rows = View<const float, 2>(t.x.view).select(0, 0).broadcast(0, 40);
  t.run_on(rows, t.y.view, rows, t.sum.view);
  CHECK(different_bits(t.y.view.slice(0, 0, 1), t.y.view.slice(0, 39, 40)) == 0);
  CHECK(t.sum.view(39, 5) == 2 * t.x.view(0, 5));
}

TEST_CASE("norms between guard pages") {
  Counts counts;
  Guarded<2> x, y, residual, sum;
  Guarded<1> weight, bias;
  everywhere([&](Index length, Index gap, Place where) {
    const NormCase norm{(length + gap) % 2 == 0, true, (length + gap) % 2 == 0, gap % 3 != 0, gap % 4 == 1};
    const NormTensors<2> t(norm, {3, length}, static_cast<std::uint64_t>(length));
    t.run();
    for (const bool vary : {false, true}) {
      const auto layout = [&](Index operand) { return vary ? layout_of(length, gap, operand) : Layout{}; };
      x.place(t.x.view, layout(1), gap, where);
      y.place(t.x.view, layout(2), gap, where);
      residual.place(t.residual.view, layout(3), gap, where);
      sum.place(t.x.view, layout(4), gap, where);
      weight.place(t.weight.view, Layout{.name = "", .step = vary ? 2 : 1}, gap, where);
      bias.place(t.bias.view, Layout{.name = "", .step = vary ? 2 : 1}, gap, where);
      AnyView<const float> of_residual;
      AnyView<float> of_sum;
      View<const float, 1> of_bias;
      if (norm.residual) of_residual = residual.view;
      if (norm.sum) of_sum = sum.view;
      if (norm.bias) of_bias = bias.view;
      if (norm.centred) layer_norm(x.view, y.view, {norm.eps, weight.view, of_bias, of_residual, of_sum});
      else rms_norm(x.view, y.view, {norm.eps, weight.view, of_residual, of_sum});
      const bool right =
          different_bits(y.view, t.y.view) == 0 && (!norm.sum || different_bits(sum.view, t.sum.view) == 0);
      counts.add(right, y.buffer.surroundings_untouched() && sum.buffer.surroundings_untouched(),
                 text_of_case(norm.centred ? "layer_norm" : "rms_norm", length, gap, where));
    }
  });
  counts.finish("norms");
}

}  // namespace
}  // namespace headlane::test
