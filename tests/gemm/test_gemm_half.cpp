// Products of bfloat16 and float16: the bits of the float32 product of the widened operands,
// rounded once; packed or not, with every option, in any layout, on several threads.
#include "support/half_tensor.hpp"
#include "support/illegal.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <string>
#include <vector>

namespace headlane::test {
namespace {

struct Sizes {
  Index m, k, n;
};

std::string text_of(const Sizes& s) {
  return std::to_string(s.m) + " x " + std::to_string(s.k) + " x " + std::to_string(s.n);
}

template <class T, int Rank>
HalfTensor<T, Rank> random_half(const std::array<Index, static_cast<std::size_t>(Rank)>& shape, Random& random,
                                const Layout& layout) {
  return HalfTensor<T, Rank>(random_tensor<Rank>(shape, random).view, layout);
}

/// With and without a packed b, whose product is that of b as it was before.
template <class T>
void check(const Sizes& s, const Layout& one, const Layout& other, const GemmOptions& options, DType packed_type) {
  Random random(4);
  const HalfTensor<T, 2> a = random_half<T, 2>({s.m, s.k}, random, one),
                         b = random_half<T, 2>({s.k, s.n}, random, other);
  const HalfTensor<T, 2> before = random_half<T, 2>({s.m, s.n}, random, other);
  const Tensor<2> wide_a = a.widened(), wide_b = b.widened();
  const PackedMatrix packed(wide_b.view, {.type = packed_type});
  for (const bool is_packed : {false, true}) {
    if (!is_packed && options.activations != DType::float32) continue;
    const Tensor<2> expected = before.widened();
    is_packed ? gemm(wide_a.view, packed, expected.view, options)
              : gemm(wide_a.view, wide_b.view, expected.view, options);
    for (const int threads : {1, 3}) {
      GemmOptions own = options;
      own.num_threads = threads;
      const HalfTensor<T, 2> c(before.view, one);
      is_packed ? gemm(a.view, packed, c.view, own) : gemm(a.view, b.view, c.view, own);
      INFO(name_of_half<T>(), ", ", text_of(s), ", ", one.name, ", ", other.name, is_packed ? ", packed, " : ", ",
           threads, " threads, isa ", isa());
      CHECK(different_from_rounded(c.view, expected.view) == 0);
      CHECK(c.surroundings_untouched());
    }
  }
}

TEST_CASE_TEMPLATE("gemm of 16-bit numbers: the rounded product of float32", T, bfloat16, float16) {
  for (const Sizes& s : {Sizes{1, 1, 1}, {3, 17, 33}, {5, 0, 3}, {1, 600, 70}, {70, 129, 65}, {33, 1030, 18}})
    for (const Layout& layout : layouts()) {
      check<T>(s, layout, {}, {}, DType::float32);
      check<T>(s, {}, layout, {}, DType::bfloat16);
    }
}

TEST_CASE_TEMPLATE("gemm of 16-bit numbers: options", T, bfloat16, float16) {
  Random random(6);
  const Sizes s{37, 140, 50};
  const Tensor<1> bias = random_tensor<1>({s.n}, random, {.step = 3});
  const Tensor<2> residual = random_tensor<2>({s.m, s.n}, random, {.name = "transposed", .order = Order::columns});
  for (const Layout& layout : {Layout{}, Layout{.name = "transposed", .order = Order::columns}}) {
    check<T>(s, layout, layout, {.alpha = 0.7f, .beta = 0.3f}, DType::float16);
    check<T>(s, layout, layout, {.alpha = 0, .beta = 1}, DType::float32);
    check<T>(s, layout, layout, {.bias = bias.view, .activation = Activation::gelu}, DType::int8);
    check<T>(s, layout, layout, {.beta = 2, .bias = bias.view, .residual = residual.view}, DType::float32);
    check<T>(s, layout, layout, {.activations = DType::bfloat16}, DType::bfloat16);
    check<T>(s, layout, layout, {.bias = bias.view, .residual = residual.view, .activations = DType::int8},
             DType::int8);
  }
}

// Rows are computed some at a time.
TEST_CASE_TEMPLATE("gemm of 16-bit numbers: many rows", T, bfloat16, float16) {
  if (slow_isa()) return;
  Random random(7);
  const Sizes s{700, 3, 6000};
  const Tensor<2> residual = random_tensor<2>({s.m, s.n}, random);
  check<T>(s, {}, {}, {.beta = 0.5f, .residual = residual.view}, DType::float32);
}

TEST_CASE_TEMPLATE("gemm of 16-bit numbers reads a and b only if alpha, c only if beta is not 0", T, bfloat16,
                   float16) {
  std::vector<T> nans(6, T(nan)), c(4, T(nan));
  const View<const T, 2> a(nans.data(), {2, 3}), b(nans.data(), {3, 2});
  const View<T, 2> to(c.data(), {2, 2});
  gemm(a, b, to, {.alpha = 0});
  CHECK(std::all_of(c.begin(), c.end(), [](T x) { return x.bits == 0; }));
  std::fill(nans.begin(), nans.end(), T(1.0f));
  std::fill(c.begin(), c.end(), T(nan));
  gemm(a, b, to);
  CHECK(std::all_of(c.begin(), c.end(), [](T x) { return static_cast<float>(x) == 3; }));
}

template <class T>
void check_batch(Index batch, const Sizes& s, const Layout& layout, bool shared) {
  Random random(8);
  const HalfTensor<T, 3> a = random_half<T, 3>({batch, s.m, s.k}, random, layout);
  const HalfTensor<T, 3> b = random_half<T, 3>({batch, s.k, s.n}, random, layout);
  const View<const T, 3> right = shared ? b.view.select(0, 0).broadcast(0, batch) : b.view;
  const Tensor<3> wide_a = a.widened(), wide_b = b.widened(), expected({batch, s.m, s.n});
  const View<const float, 3> wide_right = shared ? wide_b.view.select(0, 0).broadcast(0, batch) : wide_b.view;
  const PackedMatrix packed(wide_b.view.select(0, 0));
  const Tensor<2> bias = random_tensor<2>({batch, s.n}, random);
  gemm_batch(wide_a.view, wide_right, expected.view, {.bias = bias.view, .activation = Activation::relu});
  for (const int threads : {1, 3}) {
    const HalfTensor<T, 3> c({batch, s.m, s.n}, layout);
    const GemmBatchOptions options{.bias = bias.view, .activation = Activation::relu, .num_threads = threads};
    gemm_batch(a.view, right, c.view, options);
    INFO(name_of_half<T>(), ", ", text_of(s), ", ", layout.name, ", ", threads, " threads, isa ", isa());
    CHECK(different_from_rounded(c.view, expected.view) == 0);
    CHECK(c.surroundings_untouched());
    if (!shared) continue;
    for_each(c.view, [](T& x) { x.bits = 0; });
    gemm_batch(a.view, packed, c.view, options);
    CHECK(different_from_rounded(c.view, expected.view) == 0);
  }
}

TEST_CASE_TEMPLATE("gemm_batch of 16-bit numbers: the rounded products of float32", T, bfloat16, float16) {
  for (const Layout& layout : layouts())
    for (const bool shared : {false, true}) {
      check_batch<T>(3, {5, 17, 33}, layout, shared);
      check_batch<T>(2, {40, 70, 65}, layout, shared);
      check_batch<T>(4, {1, 0, 3}, layout, shared);
    }
}

template <class T>
void check_gated(const Sizes& s, const Layout& one, const Layout& other, const GemmGatedOptions& options,
                 DType packed_type) {
  Random random(9);
  const HalfTensor<T, 2> a = random_half<T, 2>({s.m, s.k}, random, one),
                         gate = random_half<T, 2>({s.k, s.n}, random, other),
                         up = random_half<T, 2>({s.k, s.n}, random, one);
  const Tensor<2> wide_a = a.widened(), wide_gate = gate.widened(), wide_up = up.widened(), expected({s.m, s.n});
  const PackedMatrix packed_gate(wide_gate.view, {.type = packed_type}), packed_up(wide_up.view, {.type = packed_type});
  for (const bool is_packed : {false, true}) {
    if (!is_packed && options.activations != DType::float32) continue;
    is_packed ? gemm_gated(wide_a.view, packed_gate, packed_up, expected.view, options)
              : gemm_gated(wide_a.view, wide_gate.view, wide_up.view, expected.view, options);
    for (const int threads : {1, 3}) {
      GemmGatedOptions own = options;
      own.num_threads = threads;
      const HalfTensor<T, 2> c({s.m, s.n}, other);
      is_packed ? gemm_gated(a.view, packed_gate, packed_up, c.view, own)
                : gemm_gated(a.view, gate.view, up.view, c.view, own);
      INFO(name_of_half<T>(), ", ", text_of(s), ", ", one.name, ", ", other.name, is_packed ? ", packed, " : ", ",
           threads, " threads, isa ", isa());
      CHECK(different_from_rounded(c.view, expected.view) == 0);
      CHECK(c.surroundings_untouched());
    }
  }
}

TEST_CASE_TEMPLATE("gemm_gated of 16-bit numbers: the rounded result of float32", T, bfloat16, float16) {
  for (const Sizes& s : {Sizes{1, 1, 1}, {3, 17, 33}, {5, 0, 3}, {70, 129, 65}})
    for (const Layout& layout : layouts()) {
      check_gated<T>(s, layout, {}, {}, DType::float32);
      check_gated<T>(s, {}, layout, {.activation = Activation::gelu}, DType::bfloat16);
    }
  Random random(6);
  const Tensor<1> bias = random_tensor<1>({50}, random, {.step = 3}), other = random_tensor<1>({50}, random);
  check_gated<T>({37, 140, 50}, {}, {}, {.gate_bias = bias.view, .up_bias = other.view}, DType::float16);
  check_gated<T>({37, 140, 50}, {}, {}, {.gate_bias = bias.view, .activations = DType::int8}, DType::int8);
  if (!slow_isa()) check_gated<T>({700, 3, 6000}, {}, {}, {}, DType::float32);  // rows some at a time
}

TEST_CASE_TEMPLATE("gemm_gated of 16-bit numbers reads and writes nothing else", T, bfloat16, float16) {
  Random random(10);
  GuardedBuffer of_a(4096), of_gate(4096), of_up(4096), of_c(4096);
  for (const Index n : {1, 15, 33})
    for (const Index k : {1, 7, 18})
      for (const Place where : {Place::start, Place::end}) {
        const HalfTensor<T, 2> a = random_half<T, 2>({5, k}, random, {}), gate = random_half<T, 2>({k, n}, random, {}),
                               up = random_half<T, 2>({k, n}, random, {}), c({5, n});
        const View<T, 2> to = placed(of_c, c.view, where);
        gemm_gated(a.view, gate.view, up.view, c.view);
        gemm_gated(placed(of_a, a.view, where), placed(of_gate, gate.view, where), placed(of_up, up.view, where), to);
        CHECK(different_from_rounded(to, c.view) == 0);
        CHECK(of_c.surroundings_untouched());
      }
}

TEST_CASE_TEMPLATE("products of 16-bit numbers: nothing, however large", T, bfloat16, float16) {
  constexpr Index most = std::numeric_limits<Index>::max();
  gemm(View<const T, 2>(nullptr, {0, huge}), View<const T, 2>(nullptr, {huge, 0}, {most, most}),
       View<T, 2>(nullptr, {0, 0}));
  gemm_batch(View<const T, 3>(nullptr, {huge, 0, 3}, {most, most, 1}), View<const T, 3>(nullptr, {huge, 3, 0}),
             View<T, 3>(nullptr, {huge, 0, 0}));
  std::array<T, 2> memory{};
  const View<T, 2> c(memory.data(), {1, 1});
  // A copy of 2^60 numbers does not fit into memory.
  constexpr Index k = Index{1} << 60;
  CHECK_THROWS_AS(gemm(View<const T, 2>(&memory[1], {1, k}, {0, 0}), View<const T, 2>(&memory[1], {k, 1}, {1, 0}), c),
                  std::bad_alloc);
}

TEST_CASE_TEMPLATE("products of 16-bit numbers: illegal calls", T, bfloat16, float16) {
  Random random(1);
  const HalfTensor<T, 2> a = random_half<T, 2>({5, 7}, random, {}), b = random_half<T, 2>({7, 9}, random, {});
  const HalfTensor<T, 2> c({5, 9});
  const View<const T, 2> va = a.view, vb = b.view;
  const View<T, 2> vc = c.view;
  const PackedMatrix packed(b.widened().view);
  std::vector<Illegal> calls;
  add(calls, "gemm", "a", wrong_views(va), [=](auto view) { gemm(view, vb, vc); });
  add(calls, "gemm", "b", wrong_views(vb), [=](auto view) { gemm(va, view, vc); });
  add(calls, "gemm", "c", wrong_views(vc), [=](auto view) { gemm(va, vb, view); });
  add(calls, "gemm", "a", wrong_views(va), [=, &packed](auto view) { gemm(view, packed, vc); });
  const auto one = [](const auto& view) { return view.broadcast(0, 1); };
  add(calls, "gemm_batch", "a", wrong_views(va), [=](auto view) { gemm_batch(one(view), one(vb), one(vc)); });
  add(calls, "gemm_batch", "a", wrong_views(va), [=, &packed](auto view) { gemm_batch(one(view), packed, one(vc)); });
  const Tensor<2> residual({5, 9});
  add(calls, "gemm", "residual", without_null(wrong_views<const float, 2>(residual.view)),
      [=](auto view) { gemm(va, vb, vc, {.residual = view}); });
  const auto push = [&](const std::string& what, const std::function<void()>& call,
                        const std::vector<std::string>& words) { calls.push_back({what, call, words}); };
  const View<T, 2> over(const_cast<T*>(vb.data), {5, 9});
  push("c over b", [=] { gemm(va, vb, over); }, {"gemm: c of shape [5, 9] overlaps b of shape [7, 9]"});
  push("c over itself", [=] { gemm(va, vb, View<T, 2>(vc.data, {5, 9}, {0, 1})); }, {"gemm: c", "overlaps itself"});
  add(calls, "gemm_gated", "a", wrong_views(va), [=](auto view) { gemm_gated(view, vb, vb, vc); });
  add(calls, "gemm_gated", "gate", wrong_views(vb), [=](auto view) { gemm_gated(va, view, vb, vc); });
  add(calls, "gemm_gated", "up", wrong_views(vb), [=](auto view) { gemm_gated(va, vb, view, vc); });
  add(calls, "gemm_gated", "c", wrong_views(vc), [=](auto view) { gemm_gated(va, vb, vb, view); });
  add(calls, "gemm_gated", "a", wrong_views(va), [=, &packed](auto view) { gemm_gated(view, packed, packed, vc); });
  push("c over up", [=] { gemm_gated(va, va.transposed(), vb, over); }, {"gemm_gated: "});
  push("c over gate", [=] { gemm_gated(va, vb, vb, over); }, {"gemm_gated: c", "overlaps gate"});
  const View<const float, 1> bias(reinterpret_cast<const float*>(vc.data), {9});
  push("bias", [=] { gemm_gated(va, vb, vb, vc, {.up_bias = bias}); }, {"gemm_gated: c", "overlaps up_bias"});
  push("gated, int8", [=] { gemm_gated(va, vb, vb, vc, {.activations = DType::int8}); },
       {"gemm_gated: gate is not packed"});
  push("gated, threads", [=] { gemm_gated(va, vb, vb, vc, {.num_threads = -1}); }, {"gemm_gated: num_threads is -1"});
  push("int8", [=] { gemm(va, vb, vc, {.activations = DType::int8}); }, {"gemm: b is not packed"});
  push("threads", [=] { gemm_batch(one(va), one(vb), one(vc), {.num_threads = -1}); },
       {"gemm_batch: num_threads is -1"});
  check_illegal(calls, [&] {
    bool untouched = true;
    for_each(c.view, [&](const T& x) { untouched = untouched && x.bits == half_sentinel; });
    return untouched && c.surroundings_untouched();
  });
}

}  // namespace
}  // namespace headlane::test
