// Attention of bfloat16 and float16: the bits of attention of the widened tensors, rounded once; of
// tensors in any layout, of caches of any type, with options, on several threads.
#include "support/attention_case.hpp"
#include "support/half_tensor.hpp"
#include "support/illegal.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <string>

namespace headlane::test {
namespace {

/// The tensors of a call in 16 bits, and widened.
template <class T>
struct Case {
  HalfTensor<T, 4> q, k, v;
  Tensor<4> wide_q, wide_k, wide_v, expected, expected_lse;

  Case(const AttentionSizes& s, const Layout& layout) : Case(AttentionTensors(s, 3), layout) {}
  Case(const AttentionTensors& t, const Layout& layout)
      : q(t.q.view, layout),
        k(t.k.view, layout),
        v(t.v.view, layout),
        wide_q(q.widened()),
        wide_k(k.widened()),
        wide_v(v.widened()),
        expected(t.out.view.shape),
        expected_lse({1, 1, 1, 1}) {}

  void check(const AttentionOptions& options, const Layout& layout, const std::string& what) {
    const std::array<Index, 3> rows{q.view.size(0), q.view.size(1), q.view.size(2)};
    const Tensor<3> lse(rows), right_lse(rows);
    AttentionOptions own = options;
    own.lse = right_lse.view;
    attention(wide_q.view, wide_k.view, wide_v.view, expected.view, own);
    for (const int threads : {1, 3}) {
      own.num_threads = threads;
      own.lse = lse.view;
      const HalfTensor<T, 4> out(expected.view.shape, layout);
      attention(q.view, k.view, v.view, out.view, own);
      INFO(what, ", ", name_of_half<T>(), ", ", layout.name, ", ", threads, " threads, isa ", isa());
      CHECK(different_from_rounded(out.view, expected.view) == 0);
      CHECK(different_bits(lse.view, right_lse.view) == 0);
      CHECK(out.surroundings_untouched());
    }
  }
};

TEST_CASE_TEMPLATE("attention of 16-bit numbers: the rounded result of float32, in every layout", T, bfloat16,
                   float16) {
  std::vector<Layout> all = layouts();
  all.push_back({.name = "middle", .order = Order::middle});
  const std::vector<AttentionSizes> sizes{
      {.batch = 2, .q_heads = 4, .kv_heads = 2, .q_length = 19, .kv_length = 33, .head_dim = 24, .value_dim = 17},
      {.batch = 1, .q_heads = 2, .kv_heads = 1, .q_length = 1, .kv_length = 600, .head_dim = 16, .value_dim = 16},
      {.batch = 1, .q_heads = 2, .kv_heads = 2, .q_length = 70, .kv_length = 530, .head_dim = 40, .value_dim = 64}};
  for (const AttentionSizes& s : sizes)
    for (const Layout& layout : all) {
      Case<T>(s, layout).check({}, {}, "plain");
      Case<T>(s, {}).check({.causal = true, .causal_offset = s.kv_length - s.q_length}, layout, "causal");
    }
}

TEST_CASE_TEMPLATE("attention of 16-bit numbers: options, nothing, shared keys", T, bfloat16, float16) {
  const AttentionSizes s{
      .batch = 2, .q_heads = 4, .kv_heads = 2, .q_length = 19, .kv_length = 33, .head_dim = 24, .value_dim = 17};
  Random random(5);
  const Tensor<4> bias = random_tensor<4>({2, 4, 19, 33}, random);
  const Tensor<1> slopes = random_tensor<1>({4}, random);
  const Tensor<2> table = random_tensor<2>({4, 32}, random);
  const std::vector<Index> lengths{7, 0};
  Case<T> c(s, {});
  c.check({.softcap = 5, .bias = bias.view, .alibi_slopes = slopes.view}, {}, "softcap, bias, slopes");
  c.check({.scale = 0.3f,
           .window_left = 4,
           .window_right = 1,
           .relative_bias = {.table = table.view},
           .sinks = slopes.view},
          {}, "window, relative bias, sinks");
  const View<const Index, 1> given(lengths.data(), {2});
  c.check({.query_lengths = given, .key_lengths = given}, {}, "lengths");
  Case<T>({.q_length = 5, .kv_length = 0}, {}).check({}, {}, "no keys");
  Case<T>({.q_length = 0, .kv_length = 5}, {}).check({}, {}, "no queries");
  // One head for the whole batch.
  const HalfTensor<T, 4> out({2, 4, 19, 17});
  const auto shared = [](const auto& x) { return x.slice(0, 0, 1).select(0, 0).broadcast(0, 2); };
  attention(c.q.view, shared(c.k.view), shared(c.v.view), out.view);
  attention(c.wide_q.view, shared(c.wide_k.view), shared(c.wide_v.view), c.expected.view);
  CHECK(different_from_rounded(out.view, c.expected.view) == 0);
}

/// Few rows, whose tasks widen keys and values block by block.
const std::vector<AttentionSizes>& sizes_of_few_rows() {
  static const std::vector<AttentionSizes> all{
      {.batch = 2, .q_heads = 8, .kv_heads = 2, .q_length = 1, .kv_length = 1100, .head_dim = 64, .value_dim = 64},
      {.batch = 3, .q_heads = 2, .kv_heads = 2, .q_length = 1, .kv_length = 513, .head_dim = 24, .value_dim = 32},
      {.batch = 1, .q_heads = 2, .kv_heads = 2, .q_length = 5, .kv_length = 640, .head_dim = 21, .value_dim = 16},
      {.batch = 1, .q_heads = 40, .kv_heads = 1, .q_length = 1, .kv_length = 70, .head_dim = 16, .value_dim = 48}};
  return all;
}

TEST_CASE_TEMPLATE("attention of 16-bit numbers: few rows", T, bfloat16, float16) {
  Random random(8);
  for (const AttentionSizes& s : sizes_of_few_rows()) {
    const Tensor<1> sinks = random_tensor<1>({s.q_heads}, random);
    const Tensor<4> bias = random_tensor<4>({1, s.q_heads, s.q_length, s.kv_length}, random);
    const HalfTensor<T, 4> half_bias(bias.view);
    std::vector<Index> lengths{s.kv_length - 3, 0, 40};
    lengths.resize(static_cast<std::size_t>(s.batch));
    for (const Layout& layout : layouts()) {
      Case<T> c(s, layout);
      c.check({}, {}, "plain");
      c.check({.causal = true, .causal_offset = s.kv_length / 2}, layout, "causal");
      c.check({.causal_offset = s.kv_length - s.q_length, .window_left = 90, .window_right = 0}, {}, "window");
      c.check({.sinks = sinks.view, .key_lengths = {lengths.data(), {s.batch}}}, {}, "lengths and sinks");
      c.check({.bias = bias.view.select(0, 0).broadcast(0, s.batch)}, {}, "bias");
      c.check({.bias = half_bias.view.select(0, 0).broadcast(0, s.batch)}, {}, "bias of 16 bits");
    }
  }
}

TEST_CASE_TEMPLATE("attention of 16-bit numbers: keys that end at a guard page", T, bfloat16, float16) {
  GuardedBuffer of_keys(Index{144} << 10), of_values(Index{144} << 10);
  for (const AttentionSizes& s : sizes_of_few_rows())
    for (const Place where : {Place::start, Place::end}) {
      Case<T> c(s, {});
      const HalfTensor<T, 4> out(c.expected.view.shape), right(c.expected.view.shape);
      attention(c.q.view, c.k.view, c.v.view, right.view);
      const auto placed = [&](GuardedBuffer& buffer, const View<T, 4>& x) {
        const Index size = x.shape[0] * x.shape[1] * x.shape[2] * x.shape[3];
        T* const data = reinterpret_cast<T*>(buffer.place(size / 2, 0, where));
        std::copy_n(x.data, size, data);
        return View<const T, 4>(data, x.shape);
      };
      attention(c.q.view, placed(of_keys, c.k.view), placed(of_values, c.v.view), out.view);
      INFO(name_of_half<T>(), ", ", s.kv_length, " keys, isa ", isa());
      CHECK(different_bits(out.widened().view, right.widened().view) == 0);
    }
}

TEST_CASE_TEMPLATE("attention of 16-bit numbers: rows of no sequence are left alone", T, bfloat16, float16) {
  Case<T> c({.q_heads = 2, .kv_heads = 2, .q_length = 20, .kv_length = 30, .head_dim = 8, .value_dim = 8}, {});
  const std::vector<Index> queries{3, 9, 9, 15}, keys{0, 10, 12, 30};
  const AttentionOptions options{.query_starts = {queries.data(), {4}}, .key_starts = {keys.data(), {4}}};
  const HalfTensor<T, 4> out({1, 2, 20, 8});
  attention(c.wide_q.view, c.wide_k.view, c.wide_v.view, c.expected.view, options);
  attention(c.q.view, c.k.view, c.v.view, out.view, options);
  CHECK(different_from_rounded(out.view.slice(2, 3, 15), c.expected.view.slice(2, 3, 15)) == 0);
  bool untouched = true;
  for (const View<T, 4>& rows : {out.view.slice(2, 0, 3), out.view.slice(2, 15, 20)})
    for_each(rows, [&](const T& x) { untouched = untouched && x.bits == half_sentinel; });
  CHECK(untouched);
  const std::vector<Index> none{4};
  const AttentionOptions of_none{.query_starts = {none.data(), {1}}, .key_starts = {none.data(), {1}}};
  attention(c.q.view, c.k.view, c.v.view, out.view, of_none);
  const Case<T> few({.q_length = 5, .kv_length = 30, .head_dim = 16, .value_dim = 16}, {});
  const HalfTensor<T, 4> of_few(few.expected.view.shape);
  attention(few.q.view, few.k.view, few.v.view, of_few.view, of_none);
  for_each(of_few.view, [&](const T& x) { CHECK(x.bits == half_sentinel); });
}

TEST_CASE_TEMPLATE("attention of 16-bit numbers over a cache of any type", T, bfloat16, float16) {
  Random random(6);
  const Tensor<4> k = random_tensor<4>({2, 2, 150, 24}, random), v = random_tensor<4>({2, 2, 150, 40}, random);
  for (const DType type : {DType::float32, DType::bfloat16, DType::float16, DType::int8}) {
    KvCache cache(2, 24, 40, {.type = type});
    const std::array<Index, 2> sequences{cache.add(), cache.add()};
    cache.append(sequences, k.view, v.view);
    for (const Index queries : {1, 30})
      for (const Layout& layout : layouts()) {
        const HalfTensor<T, 4> q(random_tensor<4>({2, 4, queries, 24}, random).view, layout);
        const HalfTensor<T, 4> out({2, 4, queries, 40}, layout);
        const Tensor<4> expected(out.view.shape);
        attention(q.widened().view, cache, sequences, expected.view, {.causal = true});
        attention(q.view, cache, sequences, out.view, {.causal = true});
        CHECK(different_from_rounded(out.view, expected.view) == 0);
        CHECK(out.surroundings_untouched());
      }
  }
}

TEST_CASE_TEMPLATE("multi_head_attention of 16-bit numbers", T, bfloat16, float16) {
  Random random(7);
  for (const Layout& layout : layouts()) {
    const HalfTensor<T, 3> q(random_tensor<3>({2, 19, 48}, random).view, layout);
    const HalfTensor<T, 3> kv(random_tensor<3>({2, 33, 24}, random).view, layout), out({2, 19, 48}, layout);
    const Tensor<3> wide_q = q.widened(), wide_kv = kv.widened(), expected({2, 19, 48});
    multi_head_attention(q.view, kv.view, kv.view, out.view, 4, {.causal = true});
    multi_head_attention(wide_q.view, wide_kv.view, wide_kv.view, expected.view, 4, {.causal = true});
    CHECK(different_from_rounded(out.view, expected.view) == 0);
    multi_head_attention(q.view.select(0, 1), kv.view.select(0, 1), kv.view.select(0, 1), out.view.select(0, 0), 4,
                         {.causal = true});
    CHECK(different_from_rounded(out.view.select(0, 0), expected.view.select(0, 1)) == 0);
    CHECK(out.surroundings_untouched());
  }
}

TEST_CASE_TEMPLATE("attention of 16-bit numbers: illegal calls", T, bfloat16, float16) {
  const AttentionTensors t(
      {.batch = 2, .q_heads = 4, .kv_heads = 2, .q_length = 3, .kv_length = 5, .head_dim = 8, .value_dim = 6}, 1);
  const HalfTensor<T, 4> q(t.q.view), k(t.k.view), v(t.v.view), out(t.out.view.shape);
  const View<const T, 4> vq = q.view, vk = k.view, vv = v.view;
  const View<T, 4> to = out.view;
  std::vector<Illegal> calls;
  add(calls, "attention", "q", wrong_views(vq), [=](auto view) { attention(view, vk, vv, to); });
  add(calls, "attention", "k", wrong_views(vk), [=](auto view) { attention(vq, view, vv, to); });
  add(calls, "attention", "v", wrong_views(vv), [=](auto view) { attention(vq, vk, view, to); });
  add(calls, "attention", "out", wrong_views(to), [=](auto view) { attention(vq, vk, vv, view); });
  const auto push = [&](const std::string& what, const std::function<void()>& call,
                        const std::vector<std::string>& words) { calls.push_back({what, call, words}); };
  push("out over q", [=] { attention(to, to, to, to); }, {"attention: "});
  push("out over itself", [=] { attention(vq, vk, vv, View<T, 4>(to.data, to.shape, {0, 0, 0, 1})); },
       {"attention: out", "overlaps itself"});
  const View<const float, 4> bias(reinterpret_cast<const float*>(to.data), {2, 4, 3, 5}, {0, 0, 0, 0});
  push("bias in out", [=] { attention(vq, vk, vv, to, {.bias = bias}); }, {"attention: out", "overlaps bias"});
  const View<const T, 4> half_bias(to.data, {2, 4, 3, 5}, {0, 0, 0, 0});
  push("bias of 16 bits in out", [=] { attention(vq, vk, vv, to, {.bias = half_bias}); },
       {"attention: out", "overlaps bias"});
  const Tensor<3> rows({2, 4, 3}), sums({2, 4, 3});
  push("sum", [=, &rows, &sums] { attention(vq, vk, vv, to, {.lse = rows.view, .sum = sums.view}); },
       {"attention: sum or workspace"});
  std::vector<std::byte> memory(1 << 16);
  push("workspace", [=, &memory] { attention(vq, vk, vv, to, {.workspace = memory}); },
       {"attention: sum or workspace"});
  push("window", [=] { attention(vq, vk, vv, to, {.window_left = -2}); }, {"attention: window_left is -2"});
  push("num_threads", [=] { attention(vq, vk, vv, to, {.num_threads = -1}); }, {"attention: num_threads is -1"});
  push("heads", [=] { multi_head_attention(vq.select(1, 0), vk.select(1, 0), vv.select(1, 0), to.select(1, 0), 3); },
       {"multi_head_attention: q is 8 wide, heads is 3"});
  KvCache cache(2, 8, 6);
  const std::vector<Index> sequences{cache.add(), 7};
  push("sequence", [=, &cache] { attention(vq, cache, sequences, to); }, {"attention: sequences[1] is 7"});
  const std::vector<Index> one{0};
  push("batch", [=, &cache] { attention(vq, cache, one, to); }, {"attention: q has 2 batch elements, cache has 1"});
  check_illegal(calls, [&] {
    bool untouched = true;
    for_each(out.view, [&](const T& x) { untouched = untouched && x.bits == half_sentinel; });
    return untouched && out.surroundings_untouched();
  });
}

}  // namespace
}  // namespace headlane::test
