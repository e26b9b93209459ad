// Fault injection: each allocation of each public function fails in turn. std::bad_alloc is thrown,
// nothing leaks, caches are unchanged, and the next call returns the right bits. More are in
// test_no_memory_layers.cpp, ..._recurrent.cpp, and models/tests/test_no_memory_models.cpp.
#include "support/attention_case.hpp"
#include "support/failing_allocation.hpp"
#include "support/half_tensor.hpp"
#include "support/layer_case.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>
#include <headlane/cblas.h>
#include <headlane/headlane.hpp>

#include <memory>
#include <new>
#include <optional>
#include <vector>

namespace headlane::test {
namespace {

template <int Rank>
Tensor<Rank> normal(const std::array<Index, Rank>& shape, std::uint64_t seed) {
  Random random(seed);
  return random_tensor<Rank>(shape, random);
}

template <class... Views>
std::uint64_t bits_of_all(const Views&... views) {
  Hash hash;
  (hash.add(views), ...);
  return hash.value();
}

/// A call that writes one output, which is filled before it.
template <int Rank, class F>
FailingCall writes(const std::string& name, const Tensor<Rank>& out, F call) {
  return {name, [&out] { for_each(out.view, [](float& x) { x = 0.25f; }); }, call,
          [&out] { return bits_of_all(out.view); }};
}

/// Large enough for two threads.
struct Matrices {
  Tensor<2> a = normal<2>({150, 300}, 1), columns = normal<2>({300, 150}, 6), b = normal<2>({300, 90}, 2),
            up = normal<2>({300, 90}, 3), c{{150, 90}};
  Tensor<3> batch_a = normal<3>({3, 60, 300}, 4), batch_b = normal<3>({3, 300, 90}, 5), batch_c{{3, 60, 90}};
};

TEST_CASE("gemm, gemm_batch, gemm_gated, PackedMatrix, cblas: each allocation fails") {
  const Matrices m;
  for (const int threads : {1, 2}) {
    const ThreadsScope team(threads);
    check_failing(writes("gemm", m.c, [&] { gemm(m.columns.view.transposed(), m.b.view, m.c.view, {.beta = 1}); }), 1);
    const PackedMatrix packed(m.b.view), packed_up(m.up.view);
    check_failing(writes("gemm, packed", m.c, [&] { gemm(m.a.view, packed, m.c.view); }), 0);
    check_failing(writes("gemm_batch", m.batch_c, [&] { gemm_batch(m.batch_a.view, m.batch_b.view, m.batch_c.view); }),
                  0);
    check_failing(writes("gemm_batch, packed", m.batch_c, [&] { gemm_batch(m.batch_a.view, packed, m.batch_c.view); }),
                  0);
    const GemmProblem problems[] = {{m.a.view, m.b.view, nullptr, m.c.view, {}},
                                    {m.batch_a.view.select(0, 0), {}, &packed, m.batch_c.view.select(0, 0), {}}};
    check_failing(writes("gemm_batch, a list", m.c, [&] { gemm_batch(problems); }), 1);
    const HalfTensor<float16, 2> half_a(m.a.view), half_b(m.b.view), half_c(m.c.view.shape);
    check_failing(writes("gemm, float16", m.c,
                         [&] { gemm(half_a.view, half_b.view, half_c.view), convert(half_c.view, m.c.view); }),
                  1);
    check_failing(writes("gemm, residual of float16", m.c,
                         [&] { gemm(m.a.view, m.b.view, m.c.view, {.residual = half_b.view.slice(0, 0, 150)}); }),
                  1);
    check_failing(writes("gemm_gated, float16", m.c,
                         [&] {
                           gemm_gated(half_a.view, half_b.view, half_b.view, half_c.view);
                           convert(half_c.view, m.c.view);
                         }),
                  1);
    const GemmProblemOf<float16> half_problems[] = {{half_a.view, half_b.view, nullptr, half_c.view, {}}};
    check_failing(
        writes("gemm_batch, a list, float16", m.c, [&] { gemm_batch(half_problems), convert(half_c.view, m.c.view); }),
        1);
    check_failing(writes("gemm_gated", m.c, [&] { gemm_gated(m.a.view, m.b.view, m.up.view, m.c.view); }), 1);
    check_failing(writes("gemm_gated, packed", m.c, [&] { gemm_gated(m.a.view, packed, packed_up, m.c.view); }), 0);
    std::optional<PackedMatrix> made;
    const FailingCall make{"PackedMatrix", [&] { made.reset(); }, [&] { made.emplace(m.b.view); },
                           [&] {
                             if (!made) return std::uint64_t{0};
                             gemm(m.a.view, *made, m.c.view);
                             return bits_of_all(m.c.view);
                           },
                           true};
    check_failing(make, 1);
    const std::vector<std::int8_t> numbers(300 * 90, 5);
    const std::vector<float> scales(90, 0.5f);
    const FailingCall from_numbers{"PackedMatrix::from_numbers", make.prepare,
                                   [&] {
                                     made = PackedMatrix::from_numbers(
                                         View<const std::int8_t, 2>(numbers.data(), {300, 90}),
                                         View<const float, 1>(scales.data(), {90}));
                                   },
                                   make.bits, true};
    check_failing(from_numbers, 1);
  }
}

#if !defined(HEADLANE_TEST_SANITIZED)
TEST_CASE("PackedMatrix: the memory that small matrices share is full, and there is little more, or none") {
  const Tensor<2> filler({1000, 1000}), b = normal<2>({300, 900}, 1), unpacked({300, 900});
  std::vector<PackedMatrix> full(8);  // 31.3 of 32 MiB
  for (PackedMatrix& matrix : full) matrix = PackedMatrix(filler.view);
  std::optional<PackedMatrix> made;
  const FailingCall make{"PackedMatrix, more memory", [&] { made.reset(); }, [&] { made.emplace(b.view); },
                         [&] {
                           if (!made) return std::uint64_t{0};
                           made->unpack(unpacked.view);
                           return bits_of_all(unpacked.view);
                         },
                         true};
  const ThreadsScope serial(1);
  check_failing(make, 0);  // it gets memory of its own
  made.reset();
  no_memory = true;
  CHECK_THROWS_AS(made.emplace(b.view), std::bad_alloc);
  no_memory = false;
}
#endif

TEST_CASE("PackedMatrix::from_bytes, unpack, unpack_columns: each allocation fails") {
  const Matrices m;
  const Tensor<2> all({300, 90}), some({100, 300});
  const std::vector<Index> columns(100, 89);
  for (const int threads : {1, 2}) {
    const ThreadsScope team(threads);
    for (const DType type : {DType::float32, DType::int4_group32}) {
      const PackedMatrix packed(m.b.view, {.type = type});
      check_failing(writes("unpack", all, [&] { packed.unpack(all.view); }), 0);
      check_failing(writes("unpack_columns", some, [&] { packed.unpack_columns({columns.data(), {100}}, some.view); }),
                    0);
      std::optional<PackedMatrix> made;
      const auto* const data = static_cast<const std::byte*>(packed.data());
      const FailingCall from_bytes{"PackedMatrix::from_bytes", [&] { made.reset(); },
                                   [&] { made = PackedMatrix::from_bytes({data, packed.bytes()}, 300, 90, type); },
                                   [&] {
                                     if (!made) return std::uint64_t{0};
                                     made->unpack(all.view);
                                     return bits_of_all(all.view);
                                   },
                                   true};
      check_failing(from_bytes, 1);
    }
  }
}

// It reports by headlane_cblas_error(), for C.
TEST_CASE("cblas_sgemm: each allocation fails") {
  const Matrices m;
  const auto call = [&] {
    headlane_cblas_sgemm(HEADLANE_CBLAS_ROW_MAJOR, HEADLANE_CBLAS_TRANS, HEADLANE_CBLAS_NO_TRANS, 150, 90, 300, 1,
                         m.columns.view.data, 150, m.b.view.data, 90, 0, m.c.view.data, 90);
    if (headlane_cblas_error() == nullptr) return;
    CHECK(std::string(headlane_cblas_error()) == "headlane_cblas_sgemm: out of memory");
    throw std::bad_alloc();
  };
  for (const int threads : {1, 2}) {
    const ThreadsScope team(threads);
    check_failing(writes("cblas_sgemm", m.c, call), 1);
  }
}

TEST_CASE("activate, softmax, norms, positions: each allocation fails") {
  const Tensor<2> x = normal<2>({120, 700}, 1), y({120, 700}), residual = normal<2>({120, 700}, 2);
  const Tensor<4> q = normal<4>({1, 4, 120, 64}, 3), rotated({1, 4, 120, 64});
  const Tensor<1> slopes({24});
  for (const int threads : {1, 2}) {
    const ThreadsScope team(threads);
    check_failing(writes("activate", y, [&] { activate(x.view, y.view, Activation::gelu); }), 0);
    check_failing(writes("softmax", y, [&] { softmax(x.view, y.view); }), 0);
    check_failing(writes("softmax, columns", y, [&] { softmax(x.view, y.view, {.log = true, .axis = 0}); }), 1);
    check_failing(writes("layer_norm", y, [&] { layer_norm(x.view, y.view, {.residual = residual.view}); }), 0);
    check_failing(writes("rms_norm", y, [&] { rms_norm(x.view, y.view); }), 0);
    check_failing(writes("sinusoidal_encoding", y, [&] { sinusoidal_encoding(y.view, {.base = 9000.0 + threads}); }),
                  1);
    check_failing(writes("add_sinusoidal_encoding", y, [&] { add_sinusoidal_encoding(x.view, y.view); }), 0);
    check_failing(writes("rotary_embedding", rotated, [&] { rotary_embedding(q.view, rotated.view, {.base = 8000}); }),
                  1);
    const HalfTensor<bfloat16, 2> half_x(x.view), half_y(y.view.shape);
    const auto rounded = [&](const std::string& name, const auto& f, long least) {
      check_failing(writes(name + ", bfloat16", y, [&] { f(half_x.view, half_y.view), convert(half_y.view, y.view); }),
                    least);
    };
    rounded("activate", [](auto from, auto to) { activate(from, to, Activation::gelu); }, 1);
    rounded("softmax", [](auto from, auto to) { softmax(from, to, {.axis = 0}); }, 1);
    check_failing(writes("softmax, bias of bfloat16", y, [&] { softmax(x.view, y.view, {.bias = half_x.view}); }), 1);
    rounded("rms_norm", [](auto from, auto to) { rms_norm(from, to); }, 1);
    rounded(
        "add_sinusoidal_encoding", [](auto from, auto to) { add_sinusoidal_encoding(from, to, {.base = 7000}); }, 1);
    check_failing(writes("alibi_slopes", slopes, [&] { alibi_slopes(slopes.view); }), 0);
  }
}

TEST_CASE("attention, its weights, merge: each allocation fails") {
  const AttentionTensors t(
      {.batch = 2, .q_heads = 4, .kv_heads = 2, .q_length = 70, .kv_length = 600, .head_dim = 32, .value_dim = 48}, 1),
      decoding({.q_heads = 2, .kv_length = 3000}, 2);
  const Tensor<2> rows = normal<2>({90, 128}, 3), rows_out({90, 128});
  const Tensor<2> table = normal<2>({4, 32}, 4);
  const Tensor<4> weights({2, 4, 70, 600}), merged({2, 4, 70, 48});
  const Tensor<3> sums({2, 4, 600});
  t.run();
  const AttentionPart parts[] = {{t.out.view, t.lse.view}, {t.out.view, t.lse.view}};
  const AttentionOptions biased{.causal = true, .causal_offset = 530, .relative_bias = {.table = table.view}};
  for (const int threads : {1, 2}) {
    const ThreadsScope team(threads);
    check_failing(writes("attention", merged, [&] { attention(t.q.view, t.k.view, t.v.view, merged.view); }), 1);
    const HalfTensor<bfloat16, 4> q(t.q.view), k(t.k.view), v(t.v.view), half_out(merged.view.shape);
    check_failing(writes("attention, bfloat16", merged,
                         [&] {
                           attention(q.view, k.view, v.view, half_out.view);
                           convert(half_out.view, merged.view);
                         }),
                  1);
    check_failing(writes("attention, relative bias", merged,
                         [&] { attention(t.q.view, t.k.view, t.v.view, merged.view, biased); }),
                  1);
    check_failing(writes("attention, one query", decoding.out, [&] { decoding.run(); }), 1);
    check_failing(writes("multi_head_attention", rows_out,
                         [&] { multi_head_attention(rows.view, rows.view, rows.view, rows_out.view, 4); }),
                  1);
    check_failing(writes("attention_weights", weights, [&] { attention_weights(t.q.view, t.k.view, weights.view); }),
                  1);
    check_failing(writes("attention_key_sums", sums, [&] { attention_key_sums(t.q.view, t.k.view, sums.view); }), 1);
    check_failing(writes("merge", merged, [&] { merge(parts, merged.view); }), 0);
    const HalfTensor<bfloat16, 4> half_weights(weights.view.shape);
    check_failing(
        writes("attention_weights, bfloat16", weights,
               [&] { attention_weights(q.view, k.view, half_weights.view), convert(half_weights.view, weights.view); }),
        1);
    const AttentionPartOf<bfloat16> halves[] = {{half_out.view, t.lse.view}, {half_out.view, t.lse.view}};
    const HalfTensor<bfloat16, 4> half_merged(merged.view.shape);
    check_failing(writes("merge, bfloat16", merged,
                         [&] { merge(halves, half_merged.view), convert(half_merged.view, merged.view); }),
                  1);
  }
}

// The contents of a cache: attention over all of its sequences, their lengths and its pages.
std::uint64_t bits_of(const KvCache& cache, std::span<const Index> sequences) {
  Hash hash;
  hash.add(static_cast<std::uint64_t>(cache.pages_in_use()));
  hash.add(static_cast<std::uint64_t>(cache.bytes()));
  const Tensor<4> q = normal<4>({1, cache.kv_heads(), 1, cache.head_dim()}, 77),
                  out({1, cache.kv_heads(), 1, cache.value_dim()});
  for (const Index s : sequences) {
    hash.add(static_cast<std::uint64_t>(cache.length(s)));
    attention(q.view, cache, std::array{s}, out.view);
    hash.add(out.view);
  }
  return hash.value();
}

TEST_CASE("KvCache: each allocation fails, and the cache is as it was") {
  const Tensor<3> k = normal<3>({2, 500, 64}, 1), v = normal<3>({2, 500, 48}, 2);
  const Tensor<4> q = normal<4>({1, 4, 60, 64}, 3), out({1, 4, 60, 48});
  std::optional<KvCache> cache;
  std::vector<Index> all;
  DType type = DType::float32;
  const auto filled = [&] {
    cache.emplace(2, 64, 48, KvCacheOptions{.page_size = 32, .type = type});
    all = {cache->add(), cache->add(), cache->add()};
    for (std::size_t i = 0; i < 2; ++i) cache->append(all[i], k.view.slice(1, 0, 100), v.view.slice(1, 0, 100));
  };
  const auto bits = [&] { return cache ? bits_of(*cache, all) : 0; };
  const std::array<Index, 1> first{0};
  for (const int threads : {1, 2}) {
    const ThreadsScope team(threads);
    check_failing({"KvCache", [&] { cache.reset(), all.clear(); }, [&] { cache.emplace(2, 64, 48); }, bits, true}, 1);
    check_failing({"add", filled,
                   [&] {
                     for (int i = 0; i < 100; ++i) static_cast<void>(cache->add());
                   },
                   bits, true},
                  1);
    check_failing({"fork", filled, [&] { static_cast<void>(cache->fork(all[0], 77)); }, bits, true}, 1);
    check_failing({"append", filled, [&] { cache->append(all[0], k.view, v.view); }, bits, true}, 5);
    check_failing({"append to several", filled,
                   [&] { cache->append(all, k.view.broadcast(0, 3), v.view.broadcast(0, 3)); }, bits, true},
                  15);
    filled();
    check_failing(writes("attention over a cache", out, [&] { attention(q.view, *cache, first, out.view); }), 1);
  }
  const HalfTensor<bfloat16, 3> half_k(k.view), half_v(v.view);
  for (const DType stored : {DType::bfloat16, DType::int8}) {  // which need scratch memory
    type = stored;
    check_failing({"append of bfloat16", filled, [&] { cache->append(all[0], half_k.view, half_v.view); }, bits, true},
                  6);
    check_failing({"append", filled, [&] { cache->append(all[0], k.view, v.view); }, bits, true}, 5);
    filled();
    check_failing(writes("attention over a cache", out, [&] { attention(q.view, *cache, first, out.view); }), 1);
  }
}
}  // namespace
}  // namespace headlane::test
