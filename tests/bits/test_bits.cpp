// The arithmetic contract, bit by bit: the same operands give the same bits for every instruction
// set, number of threads, batch, slice, alignment and layout. The baseline is the first available
// ISA, one thread, contiguous operands.
#include "support/attention_case.hpp"
#include "support/bit_comparison.hpp"
#include "support/cache_scope.hpp"
#include "support/scope.hpp"
#include "support/tolerance.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

namespace headlane::test {
namespace {

// More than `min_count` comparisons for each instruction set.
void finish(const BitComparison& bits, const char* op, Index min_count = 500) {
  bits.finish(op, min_count * static_cast<Index>(available_isas().size()) + 1);
}

// f() for every instruction set and number of threads.
template <class F>
void everywhere(F f) {
  for (const auto name : available_isas()) {
    const IsaScope scope(name);
    for (const int threads : {1, 2, 3, 4, 7}) {
      const ThreadsScope team(threads);
      f(threads == 1);
    }
  }
}

Layout misaligned(Index floats) { return {.name = "misaligned", .misalignment = floats}; }

struct GemmInputs {
  Tensor<2> a, b, c;
  GemmInputs(Index m, Index n, Index k, const Layout& layout = {})
      : a({m, k}, layout), b({k, n}, layout), c({m, n}, layout) {
    Random random(static_cast<std::uint64_t>(m * 10007 + n * 101 + k));
    fill_normal(a.view, random);
    fill_normal(b.view, random);
    fill_normal(c.view, random);
  }
};

TEST_CASE("gemm: the same bits everywhere") {
  BitComparison bits;
  const GemmOptions options{.alpha = 0.7f, .beta = 1.3f};
  struct Sizes {
    Index m, n, k;
  };
  for (const Sizes& s : {Sizes{.m = 1, .n = 1, .k = 1},
                         {.m = 3, .n = 17, .k = 5},
                         {.m = 13, .n = 35, .k = 65},
                         {.m = 33, .n = 50, .k = 513},
                         {.m = 64, .n = 129, .k = 40},
                         {.m = 17, .n = 70, .k = 650},
                         {.m = 20, .n = 31, .k = 1100}}) {
    const GemmInputs baseline(s.m, s.n, s.k);
    {
      const IsaScope scope(available_isas().front());
      const ThreadsScope team(1);
      gemm(baseline.a.view, baseline.b.view, baseline.c.view, options);
    }
    everywhere([&](bool one_thread) {
      std::vector<Layout> all = layouts();
      for (Index floats = 0; floats < 16 && one_thread; ++floats) all.push_back(misaligned(floats));
      for (const Layout& layout : all) {
        const GemmInputs t(s.m, s.n, s.k, layout);
        gemm(t.a.view, t.b.view, t.c.view, options);
        bits.add(t.c.view, baseline.c.view, std::string("gemm ") + layout.name);
      }
      const GemmInputs rows(s.m, s.n, s.k), columns(s.m, s.n, s.k);
      for (Index i = 0; i < s.m; i += 1 + s.m / 5) {  // a row alone, as in decoding
        const View<float, 2> c = rows.c.view.slice(0, i, i + 1);
        gemm(rows.a.view.slice(0, i, i + 1), rows.b.view, c, options);
        bits.add(c, baseline.c.view.slice(0, i, i + 1), "gemm, one row");
      }
      for (Index j = 0; j < s.n; j += 1 + s.n / 4) {  // some columns alone
        const Index end = std::min(j + 9, s.n);
        const GemmInputs part(s.m, s.n, s.k);
        const View<float, 2> c = part.c.view.slice(1, j, end);
        gemm(part.a.view, part.b.view.slice(1, j, end), c, options);
        bits.add(c, baseline.c.view.slice(1, j, end), "gemm, some columns");
      }
    });
  }
  finish(bits, "gemm");
}

// Large enough that b is packed, and rows and columns are partitioned into chunks and blocks.
TEST_CASE("gemm: the same bits everywhere, larger products") {
  BitComparison bits;
  const GemmOptions options{.alpha = 0.7f, .beta = 1.3f};
  struct Sizes {
    Index m, n, k;
  };
  for (const Sizes& s : {Sizes{.m = 33, .n = 300, .k = 130},
                         {.m = 100, .n = 1100, .k = 130},
                         {.m = 500, .n = 300, .k = 130},
                         {.m = 1000, .n = 300, .k = 130},
                         {.m = 33, .n = 300, .k = 600},
                         {.m = 100, .n = 300, .k = 600},
                         {.m = 500, .n = 1100, .k = 600}}) {
    const bool small = s.m * s.n * s.k < 8000000;
    const GemmInputs baseline(s.m, s.n, s.k);
    {
      const IsaScope scope(available_isas().front());
      const ThreadsScope team(1);
      gemm(baseline.a.view, baseline.b.view, baseline.c.view, options);
    }
    for (const Layout& layout : {layouts()[0], layouts()[1], layouts()[2], layouts()[4]}) {
      if (s.m * s.n * s.k > 100000000 && layout.step != 1) continue;
      const GemmInputs t(s.m, s.n, s.k, layout);
      const Tensor<2> rows({s.m, s.n}, layout), columns({s.m, s.n}, layouts()[1]);
      everywhere([&](bool one_thread) {
        if (slow_isa() && (!small || !one_thread)) return;
        for (const auto* c : {&rows, &columns}) {
          copy<2>(t.c.view, c->view);
          gemm(t.a.view, t.b.view, c->view, options);
          bits.add(c->view, baseline.c.view,
                   "gemm " + text_of(c->view.shape) + ", k " + std::to_string(s.k) + ", " + layout.name);
        }
        for (const Index i : {Index{0}, s.m / 2, s.m - 1}) {  // a single row: b is read in place
          const View<float, 2> c = rows.view.slice(0, i, i + 1);
          copy<2>(t.c.view.slice(0, i, i + 1), c);
          gemm(t.a.view.slice(0, i, i + 1), t.b.view, c, options);
          bits.add(c, baseline.c.view.slice(0, i, i + 1), "gemm, one row of a larger product");
        }
      });
    }
  }
  finish(bits, "gemm, larger products", 39);  // a slow instruction set makes 40
}

// Blocks of rows and columns depend on the caches; sums do not.
TEST_CASE("gemm: the same bits with other caches") {
  BitComparison bits;
  struct Case {
    Index m, n, k;
    bool packed;
    DType type = DType::float32, activations = DType::float32;
  };
  for (const Case& c :
       {Case{.m = 500, .n = 1100, .k = 600, .packed = false},
        Case{.m = 100, .n = 300, .k = 600, .packed = false},  // b is read in place with a large L2
        Case{.m = 30, .n = 300, .k = 1024, .packed = false},  // rows are packed with 8 ways or less
        Case{.m = 100, .n = 1100, .k = 200, .packed = true},
        Case{.m = 8, .n = 400, .k = 600, .packed = true},  // columns are prefetched
        Case{.m = 100, .n = 300, .k = 600, .packed = true, .type = DType::bfloat16},
        Case{.m = 100, .n = 300, .k = 600, .packed = true, .type = DType::bfloat16, .activations = DType::bfloat16},
        Case{.m = 100, .n = 300, .k = 600, .packed = true, .type = DType::int8, .activations = DType::int8},
        Case{.m = 100, .n = 300, .k = 600, .packed = true, .type = DType::int8_group32, .activations = DType::int8}}) {
    const GemmInputs t(c.m, c.n, c.k);
    const PackedMatrix packed(t.b.view, {.type = c.type});
    const auto multiply = [&](const View<float, 2>& out) {
      const GemmOptions options{.activations = c.activations};
      c.packed ? gemm(t.a.view, packed, out, options) : gemm(t.a.view, t.b.view, out, options);
    };
    const Tensor<2> expected({c.m, c.n}), out({c.m, c.n});
    multiply(expected.view);
    for (const auto name : available_isas()) {
      const IsaScope isa(name);
      if (slow_isa() && c.m * c.n * c.k > 100000000) continue;
      for (const Index l2_kib : {0, 128, 256, 512, 1024, 4096})
        for (const Index ways : {4, 16}) {
          const CacheScope caches({.l1_ways = ways, .l2_bytes = l2_kib << 10});
          multiply(out.view);
          bits.add(out.view, expected.view,
                   "gemm " + text_of(out.view.shape) + ", k " + std::to_string(c.k) + ", L2 " + std::to_string(l2_kib) +
                       " KiB, " + std::to_string(ways) + " ways");
        }
    }
  }
  finish(bits, "gemm, other caches", 7 * 6 * 2 - 1);
}

TEST_CASE("softmax: the same bits everywhere") {
  BitComparison bits;
  for (const bool log : {false, true}) {
    for (const Index n : {1, 5, 16, 17, 63, 300, 1025}) {
      const SoftmaxOptions options{.scale = 0.7f, .log = log};
      const std::array<Index, 2> shape{n > 256 ? 40 : 9, n};
      Random random(static_cast<std::uint64_t>(n));
      const Tensor<2> x = random_tensor<2>(shape, random), baseline(shape);
      {
        const IsaScope scope(available_isas().front());
        const ThreadsScope team(1);
        softmax(x.view, baseline.view, options);
      }
      everywhere([&](bool one_thread) {
        std::vector<Layout> all = layouts();
        for (Index floats = 0; floats < 16 && one_thread; ++floats) all.push_back(misaligned(floats));
        for (const Layout& layout : all) {
          const Tensor<2> in(shape, layout), out(shape, layout);
          copy<2>(x.view, in.view);
          softmax(in.view, out.view, options);
          bits.add(out.view, baseline.view, std::string("softmax ") + layout.name);
        }
        const Tensor<2> out(shape);
        for (Index i = 0; i < shape[0]; i += 4) {
          softmax(x.view.slice(0, i, i + 1), out.view.slice(0, i, i + 1), options);
          bits.add(out.view.slice(0, i, i + 1), baseline.view.slice(0, i, i + 1), "softmax, one row");
        }
      });
    }
  }
  finish(bits, "softmax");
}

// Computes slices of queries, heads and batch; `t` holds the inputs, `baseline` the whole result.
void compare_parts(const AttentionTensors& t, const AttentionTensors& baseline, const AttentionSizes& s, Index offset,
                   BitComparison& bits) {
  const auto run = [&](Index b, Index b_end, Index h, Index h_end, Index i, Index i_end, Index keys, const char* what) {
    const auto part = [&](const auto& view) { return view.slice(0, b, b_end).slice(1, h, h_end).slice(2, i, i_end); };
    const Index group = s.q_heads / s.kv_heads;
    const auto visible = [&](const View<float, 4>& view) {
      return view.slice(0, b, b_end).slice(1, h / group, (h_end + group - 1) / group).slice(2, 0, keys);
    };
    AttentionOptions options = causal(offset + i);
    options.lse = part(t.lse.view);
    attention(part(t.q.view), visible(t.k.view), visible(t.v.view), part(t.out.view), options);
    bits.add(part(t.out.view), part(baseline.out.view), what);
    bits.add(options.lse, part(baseline.lse.view), what);
  };
  for (Index i = 0; i < s.q_length; i += 1 + s.q_length / 4) {
    run(0, s.batch, 0, s.q_heads, i, i + 1, s.kv_length, "attention, one query");
    const Index visible = std::clamp<Index>(i + 1 + offset, 0, s.kv_length);
    run(0, s.batch, 0, s.q_heads, i, i + 1, visible, "attention, one query and only the keys that are visible to it");
    run(0, s.batch, 0, s.q_heads, i, s.q_length, s.kv_length, "attention, the last queries");
  }
  for (Index h = 0; h < s.q_heads; ++h) run(0, s.batch, h, h + 1, 0, s.q_length, s.kv_length, "attention, one head");
  for (Index b = 0; b < s.batch; ++b) run(b, b + 1, 0, s.q_heads, 0, s.q_length, s.kv_length, "attention, one batch");
}

TEST_CASE("attention: the same bits everywhere") {
  BitComparison bits;
  struct Problem {
    AttentionSizes sizes;
    Index offset;
  };
  const std::vector<Problem> problems{
      {{.batch = 2, .q_heads = 2, .kv_heads = 1, .q_length = 9, .kv_length = 20, .head_dim = 16, .value_dim = 17}, 4},
      {{.q_heads = 2, .q_length = 33, .kv_length = 40}, 0},
      {{.batch = 2, .q_length = 5, .kv_length = 530, .head_dim = 20, .value_dim = 33}, 520},
      {{.q_length = 40, .kv_length = 1040, .head_dim = 8}, 500},
      {{.q_heads = 4, .kv_heads = 2, .kv_length = 70}, 60},
      {{.q_length = 26, .kv_length = 30, .head_dim = 100, .value_dim = 70}, -7}};
  for (const auto& [sizes, offset] : problems) {
    const AttentionTensors baseline(sizes, 5);
    {
      const IsaScope scope(available_isas().front());
      const ThreadsScope team(1);
      baseline.run(causal(offset));
    }
    everywhere([&](bool one_thread) {
      std::vector<Layout> all = layouts();
      all.push_back({.name = "BSHD", .order = Order::middle});
      for (Index floats = 0; floats < 16 && one_thread; ++floats) all.push_back(misaligned(floats));
      for (const Layout& layout : all) {
        const AttentionTensors t(sizes, 5, layout);
        t.run(causal(offset));
        bits.add(t.out.view, baseline.out.view, std::string("attention ") + layout.name);
        bits.add(t.lse.view, baseline.lse.view, std::string("attention lse ") + layout.name);
      }
      compare_parts(AttentionTensors(sizes, 5), baseline, sizes, offset, bits);
    });
  }
  finish(bits, "attention");
}

}  // namespace
}  // namespace headlane::test
