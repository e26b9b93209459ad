// Products whose rows are rounded or quantised: the checks that all types of activations share.
#pragma once

#include "support/gemm_case.hpp"
#include "support/guard.hpp"
#include "support/quantised_row.hpp"
#include "support/scope.hpp"
#include "support/tolerance.hpp"

#include <headlane/activation.hpp>
#include <headlane/gemm.hpp>
#include <headlane/gemm_batch.hpp>
#include <headlane/gemm_gated.hpp>

#include <array>
#include <string>
#include <vector>

namespace headlane::test {

/// Products with these activations by a PackedMatrix of this type.
struct ActivationsCase {
  DType type, activations;
  /// The contract of gemm.hpp, step by step: c = alpha · a · b + beta · c + bias.
  void (*by_contract)(const GemmInputs& in, const PackedMatrix& b, const GemmOptions& options, const View<float, 2>& c);
  /// What HEADLANE_EXTENSIONS says.
  std::vector<const char*> extensions = {"", "none"};

  [[nodiscard]] PackedMatrix packed(const View<const float, 2>& b) const { return PackedMatrix(b, {.type = type}); }
  [[nodiscard]] std::string name() const {
    return std::string("gemm, ") + name_of(activations) + " by " + name_of(type);
  }

  template <class F>
  void with_each_extension(const F& f) const {
    for (const char* extension : extensions) {
      const ExtensionScope scope(extension);
      f();
    }
  }

  /// Compares a call with the contract, bit by bit. `copy` has the same inputs.
  void check(const GemmInputs& in, const GemmInputs& copy, GemmOptions options, const std::string& where) const {
    const PackedMatrix b = packed(in.b.view);
    const View<float, 2> expected = copy.c.view;
    by_contract(copy, b, options, expected);
    if (options.activation != Activation::none) activate(expected, expected, options.activation);
    if (options.residual)
      for_each_position(expected.shape, [&](const auto& p) { expected(p[0], p[1]) += options.residual(p[0], p[1]); });
    options.activations = activations;
    gemm(in.a.view, b, in.c.view, options);
    CHECK_MESSAGE(different_bits(in.c.view, expected) == 0, name(), ", ", where, ", isa ", isa(), " ", isa_extension());
    CHECK(in.c.surroundings_untouched());
  }

  void check_random(int products) const {
    Random random(1);
    with_each_extension([&] {
      for (int i = 0; i < (slow_isa() ? 40 : products); ++i) {
        const auto seed = static_cast<std::uint64_t>(i);
        const Index m = random.integer(0, i % 4 == 0 ? 70 : 30), n = random.integer(0, 150);
        const Index k = i % 10 == 0 ? random.integer(500, 1100) : random.integer(1, 140);
        const Layout& layout = random.pick(layouts());
        const GemmInputs in(m, n, k, layout, seed), copy(m, n, k, layout, seed);
        GemmOptions options{.alpha = random.pick(std::vector<float>{1, 1, -0.7f}),
                            .beta = random.pick(std::vector<float>{0, 0, 1, 1.3f}),
                            .activation = random.pick(std::vector{Activation::none, Activation::gelu}),
                            .num_threads = static_cast<int>(random.integer(0, 3))};
        if (i % 2 == 0) options.bias = in.bias.view;
        if (i % 3 == 0) options.residual = in.residual.view;
        check(in, copy, options, text_of(std::array<Index, 3>{m, n, k}) + ", seed " + std::to_string(i));
      }
    });
  }

  /// Every height and width around a tile, and with m rows every k around what is summed at a time.
  void check_sizes(Index m_of_k) const {
    with_each_extension([&] {
      for (Index m = 1; m <= 26; ++m)
        for (const Index n : {1, 15, 16, 17, 32, 33, 48, 63, 65, 129, 257})
          if (!slow_isa() || m % 5 == 1) check({m, n, 9}, {m, n, 9}, {}, text_of(std::array<Index, 2>{m, n}));
      for (Index k = 1; k <= 140; ++k) check({m_of_k, 35, k}, {m_of_k, 35, k}, {}, "k = " + std::to_string(k));
      for (const Index k : {511, 512, 513, 514, 544, 641, 1025})
        check({2, 35, k}, {2, 35, k}, {}, "k = " + std::to_string(k));
    });
  }

  void check_rows_alone() const {
    const Index m = 37, n = 70, k = 130;
    const GemmInputs all(m, n, k);
    const PackedMatrix b = packed(all.b.view);
    gemm(all.a.view, b, all.c.view, {.activations = activations, .num_threads = 2});
    const Tensor<2> alone({1, n});
    for (Index i = 0; i < m; ++i) {
      gemm(all.a.view.slice(0, i, i + 1), b, alone.view, {.activations = activations});
      CHECK(different_bits(alone.view, all.c.view.slice(0, i, i + 1)) == 0);
    }
  }

  /// gemm_gated, gemm_batch and a list of products have the bits of gemm.
  void check_other_products() const {
    const Index m = 19, n = 70, k = 90;
    const GemmInputs one(m, n, k, {}, 1), two(m, n, k, {}, 2);
    const PackedMatrix gate = packed(one.b.view), up = packed(two.b.view);
    gemm(one.a.view, gate, one.c.view,
         {.bias = one.bias.view, .activation = Activation::silu, .activations = activations});
    gemm(one.a.view, up, two.c.view, {.activations = activations});
    for_each_position(one.c.view.shape, [&](const auto& p) { one.c.view(p[0], p[1]) *= two.c.view(p[0], p[1]); });
    gemm_gated(one.a.view, gate, up, two.c.view, {.gate_bias = one.bias.view, .activations = activations});
    CHECK(different_bits(one.c.view, two.c.view) == 0);

    Random random(4);
    const Tensor<3> a = random_tensor<3>({3, m, k}, random), c({3, m, n});
    gemm_batch(a.view, gate, c.view, {.activations = activations});
    for (Index i = 0; i < 3; ++i) {
      gemm(a.view.select(0, i), gate, one.c.view, {.activations = activations});
      CHECK(different_bits(c.view.select(0, i), one.c.view) == 0);
      gemm_batch(std::vector<GemmProblem>{{a.view.select(0, i), {}, &gate, two.c.view, {.activations = activations}}});
      CHECK(different_bits(two.c.view, one.c.view) == 0);
    }
  }

  /// Rows of an element of a large magnitude at each place in turn, and of several of them.
  void check_outliers() const {
    const Index k = 600, n = 33;
    with_each_extension([&] {
      for (const Index among : {k, Index{66}}) {
        const GemmInputs in(among, n, among), copy(among, n, among);
        for (const GemmInputs* each : {&in, &copy})
          for (Index i = 0; i < among; ++i) {
            each->a.view(i, i) = i % 2 == 0 ? 1000.0f : -1000.0f;
            if (i % 3 == 0) each->a.view(i, (i * 7 + 5) % among) = i % 4 == 0 ? 1000.0f : -1000.0f;
            if (i % 5 == 0) each->a.view(i, (i * 11 + 3) % among) = 999.0f;
            // In the same partial maximum:
            if (i % 5 == 1) each->a.view(i, (i + 64) % among) = i % 2 == 0 ? 999.0f : -999.0f;
            if (i % 7 == 3) each->a.view(i, (i + 128) % among) = each->a.view(i, i);
          }
        check(in, copy, {}, "outliers, k " + std::to_string(among));
      }
    });
  }

  void check_guard_pages() const {
    with_each_extension([&] {
      Counts counts;
      Guarded<2> guarded_a, guarded_c;
      everywhere([&](Index length, Index gap, Place where) {
        const Index m = length % 15, n = length, k = 1 + length;
        Random random(static_cast<std::uint64_t>(length));
        const Tensor<2> a = random_tensor<2>({m, k}, random), b = random_tensor<2>({k, n}, random), c({m, n});
        const PackedMatrix right = packed(b.view);
        guarded_a.place(a.view, layout_of(length, gap, 1), gap, where);
        guarded_c.place(c.view, layout_of(length, gap, 3), gap, where);
        gemm(a.view, right, c.view, {.activations = activations});
        gemm(guarded_a.view, right, guarded_c.view, {.activations = activations});
        counts.add(different_bits(guarded_c.view, c.view) == 0, guarded_c.buffer.surroundings_untouched(),
                   text_of_case("m, n, k", length, gap, where));
      });
      counts.finish(name().c_str());
    });
  }
};

}  // namespace headlane::test
