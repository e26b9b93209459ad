// Layer norm and RMS norm against the oracle: lengths, options, layouts, in place, large means,
// special values; the same bits for any layout, number of threads and instruction set.
#include "support/bit_comparison.hpp"
#include "support/guard.hpp"
#include "support/norm_case.hpp"
#include "support/scope.hpp"

namespace headlane::test {
namespace {

// Against the oracle, in place too; with the sum, if there is one.
template <int Rank>
void check_norm(const NormCase& norm, const RowsCase<Rank>& c) {
  const NormTensors<Rank> t(norm, c);
  const std::vector<float> s = t.rows(), residual = elements(t.residual.view), none;
  const std::vector<float> weight = norm.weight ? elements(t.weight.view) : none;
  const std::vector<float> bias = norm.bias ? elements(t.bias.view) : none;
  const std::string text = text_of(c) + options_of(norm);
  INFO(text);
  const auto run = [&](const View<float, Rank>& x, const View<float, Rank>& y) {
    NormCall call = t.call();
    call.x = x;
    call.y = y;
    call.run();
    const std::vector<float> sum = elements(t.sum.view);
    CHECK((norm.sum ? sum == s : std::all_of(sum.begin(), sum.end(), is_sentinel)));
  };
  check_rows(Comparison(name_of(norm), text, c.seed, kind_of(c)), s, t.x, t.y, run,
             [&](const std::vector<float>& row) { return norm_reference(norm, row, weight, bias); });
  CHECK(elements(t.residual.view) == residual);
  for (const auto* tensor : {&t.residual, &t.sum}) CHECK(tensor->surroundings_untouched());
}

TEST_CASE("norms: every row length and number of rows, with any options") {
  for (const NormCase& norm : norm_cases()) for_each_row_length([&](const auto& rows) { check_norm(norm, rows); });
}

TEST_CASE("norms: rank 1 to 8 and every layout") {
  for (NormCase norm : norm_cases()) {
    for_each_layout([&](const auto& rows) {
      norm.vector_step = 1 + norm.vector_step % 3;
      check_norm(norm, rows);
    });
  }
}

TEST_CASE("norms: eps, spreads, and means far from 0") {
  for (const bool centred : {true, false}) {
    for (const float eps : {0.0f, 1e-12f, 1e-6f, 1e-5f, 0.1f, 100.0f})
      for (const float spread : {1e-3f, 1.0f, 1e3f, 1e12f})
        for (const float mean : {0.0f, 1.0f, -30.0f, 1e4f})
          for (const Index n : {20, 64, 512, 4096}) {
            const NormCase norm{.centred = centred, .weight = n > 64, .bias = centred && n > 512, .eps = eps};
            check_norm<2>(norm, {.shape = {4, n}, .seed = 31, .mean = mean * spread, .spread = spread});
          }
  }
}

// A one-pass variance, or a mean in one float, would be off by a tenth of the spread or more.
TEST_CASE("layer_norm: a mean far from 0 loses nothing, even where the spread is a few units in the last place of it") {
  for (const auto& [mean, spread] :
       {std::pair{1e4f, 1.0f}, {1e5f, 0.1f}, {3e5f, 0.1f}, {-3e5f, 0.1f}, {1e6f, 1.0f}, {4e6f, 1.0f}})
    for (const Index n : {50, 512, 4096}) {
      const NormTensors<2> t({}, {.shape = {8, n}, .seed = 32, .mean = mean, .spread = spread});
      t.call().run();
      const std::vector<float> s = t.rows(), y = elements(t.y.view);
      double worst = 0;
      for (Index row = 0; row < 8; ++row) {
        const auto first = s.begin() + row * n;
        const ExpectedRow exact = norm_reference(t.norm, {first, first + n}, {}, {});
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
      NormTensors<1> t({.weight = true, .bias = true}, {.shape = {n}, .seed = 33});
      for_each(t.x.view, [&](float& e) { e = value; });
      t.call().run();
      double worst = 0;
      for (Index i = 0; i < n; ++i) worst = std::max(worst, std::abs(double{t.y.view(i)} - double{t.bias.view(i)}));
      CHECK_MESSAGE(worst <= 1e-6 * std::abs(double{value}), "isa ", isa(), ", ", value, ", length ", n);
      t.norm.eps = 0;
      t.call().run();
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
          const RowsCase<2> rows{.shape = {6, n}, .seed = 34};
          const NormTensors<2> clean(norm, rows), t(norm, rows);
          t.x.view(3, at) = value;
          const std::vector<float> s = t.rows();
          clean.call().run();
          t.call().run();
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

TEST_CASE("norms: broadcast rows") {
  const NormCase all{.weight = true, .bias = true, .residual = true, .sum = true};
  const NormTensors<2> t(all, {.shape = {40, 70}, .seed = 35});
  NormCall call = t.call();
  call.x = call.residual = View<const float, 2>(t.x.view).select(0, 0).broadcast(0, 40);
  call.run();
  CHECK(different_bits(t.y.view.slice(0, 0, 1), t.y.view.slice(0, 39, 40)) == 0);
  CHECK(t.sum.view(39, 5) == 2 * t.x.view(0, 5));
}

TEST_CASE("norms: in place of every operand, threads, instruction sets, a row alone: the same bits") {
  BitComparison bits;
  for (const NormCase& norm : norm_cases()) {
    for (const std::array<Index, 3>& shape : {std::array<Index, 3>{3, 5, 17}, {2, 40, 130}, {1, 70, 513}}) {
      const RowsCase<3> dense{.shape = shape, .seed = 36};
      const NormTensors<3> plain(norm, dense);
      plain.call(1).run();
      const auto add = [&](const NormTensors<3>& t, const Tensor<3>& y, const Tensor<3>& sum, const std::string& what,
                           int threads = 0) {
        NormCall call = t.call(threads);
        call.y = y.view;
        if (norm.sum) call.sum = sum.view;
        call.run();
        bits.add(y.view, plain.y.view, text_of(norm) + ", " + what);
        if (norm.sum) bits.add(sum.view, plain.sum.view, text_of(norm) + ", " + what + ": sum");
      };
      NormCase strided = norm;
      for (const Layout& layout : layouts()) {
        strided.vector_step = 1 + strided.vector_step % 3;
        const auto fresh = [&] {
          return NormTensors<3>(strided, {.shape = shape, .seed = 36, .layout_x = layout, .layout_y = layout});
        };
        for (const int threads : {1, 2, 3}) {
          const NormTensors<3> t = fresh();
          add(t, t.y, t.sum, layout.name, threads);
        }
        const NormTensors<3> a = fresh(), b = fresh(), c = fresh(), d = fresh(), e = fresh();
        add(a, a.x, a.sum, "y is x");
        add(b, b.y, b.x, "sum is x");
        if (!norm.residual) continue;
        add(c, c.y, c.residual, "sum is residual");
        add(d, d.x, d.residual, "y is x, sum is residual");
        add(e, e.residual, e.x, "y is residual, sum is x");
      }
      for (const auto name : available_isas()) {
        const IsaScope scope(name);
        const NormTensors<3> t(norm, dense);
        add(t, t.y, t.sum, std::string(name), 2);
      }
      const NormTensors<3> alone(norm, dense);
      for (Index row = 0; row < shape[1]; ++row) {
        const auto row_of = [&](const Tensor<3>& t) { return t.view.slice(1, row, row + 1).slice(0, 0, 1); };
        NormCall call = alone.call();
        call.x = row_of(alone.x);
        call.y = row_of(alone.y);
        if (norm.residual) call.residual = row_of(alone.residual);
        if (norm.sum) call.sum = row_of(alone.sum);
        call.run();
        bits.add(row_of(alone.y), row_of(plain.y), text_of(norm) + ", a row alone");
        if (norm.sum) bits.add(row_of(alone.sum), row_of(plain.sum), text_of(norm) + ", a row alone: sum");
      }
    }
  }
  bits.finish("norms", 9000);
}

TEST_CASE("norms between guard pages") {
  Counts counts;
  Guarded<2> x, y, residual, sum;
  Guarded<1> weight, bias;
  everywhere([&](Index length, Index gap, Place where) {
    const bool centred = (length + gap) % 2 == 0;
    const NormCase norm{
        .centred = centred, .weight = true, .bias = centred, .residual = gap % 3 != 0, .sum = gap % 4 == 1};
    const NormTensors<2> t(norm, {.shape = {3, length}, .seed = static_cast<std::uint64_t>(length)});
    t.call().run();
    for (const bool vary : {false, true}) {
      const auto layout = [&](Index operand) { return vary ? layout_of(length, gap, operand) : Layout{}; };
      x.place(t.x.view, layout(1), gap, where);
      y.place(t.x.view, layout(2), gap, where);
      residual.place(t.residual.view, layout(3), gap, where);
      sum.place(t.x.view, layout(4), gap, where);
      weight.place(t.weight.view, Layout{.name = "", .step = vary ? 2 : 1}, gap, where);
      bias.place(t.bias.view, Layout{.name = "", .step = vary ? 2 : 1}, gap, where);
      NormCall call = t.call();
      call.x = x.view;
      call.y = y.view;
      call.weight = weight.view;
      if (norm.bias) call.bias = bias.view;
      if (norm.residual) call.residual = residual.view;
      if (norm.sum) call.sum = sum.view;
      call.run();
      const bool right =
          different_bits(y.view, t.y.view) == 0 && (!norm.sum || different_bits(sum.view, t.sum.view) == 0);
      counts.add(right, y.buffer.surroundings_untouched() && sum.buffer.surroundings_untouched(),
                 text_of_case(name_of(norm), length, gap, where));
    }
  });
  counts.finish("norms");
}

}  // namespace
}  // namespace headlane::test
