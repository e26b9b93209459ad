// Moved-from objects behave like default-constructed ones or refuse the call; they never crash.
#include "support/illegal.hpp"
#include "support/layer_case.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <cmath>

namespace headlane::test {
namespace {

/// The only rows that an empty layer accepts, if any.
const View<const float, 3> none(nullptr, {2, 3, 0});
const View<float, 3> to_none(nullptr, {2, 3, 0});

/// Calls use() on moved-from objects, and work() on those that they were moved to.
template <class T, class Use, class Work>
void check_moved(const std::function<T()>& make, const Use& use, const Work& work) {
  T constructed_from = make();
  const T constructed = std::move(constructed_from);
  work(constructed);
  use(constructed_from);  // NOLINT(bugprone-use-after-move): under test
  T assigned_from = make(), assigned = make();
  assigned = std::move(assigned_from);
  work(assigned);
  use(assigned_from);  // NOLINT(bugprone-use-after-move)
  assigned_from = make();
  work(assigned_from);
  T moved_twice = std::move(assigned_from);
  const T again = std::move(assigned_from);  // NOLINT(bugprone-use-after-move)
  use(again);
  work(moved_twice);
}

void check_refused(std::vector<Illegal>& calls) {
  check_illegal(calls, [] { return true; });
  calls.clear();
}

TEST_CASE("KvCache: every call of a moved-from cache is an error") {
  const LayerSizes s;
  const RandomState state = random_layer(s, 1, true);
  const DecoderLayer decoder(state.dict, "", s.options());
  const std::vector<Index> one{0};
  const Tensor<3> x({1, 2, s.d_model}), y(x.view.shape), tokens({3, 2, 8});
  const Tensor<4> q({1, 3, 2, 8}), out(q.view.shape);
  for_each(x.view, [](float& e) { e = 0; });
  for_each(q.view, [](float& e) { e = 0; });
  const View<const float, 4> no_tokens{nullptr, {0, 3, 0, 8}};
  Index moved = 0;
  const auto use = [&](const KvCache& from) {
    auto& cache = const_cast<KvCache&>(from);
    std::vector<Illegal> calls;
    const auto push = [&](const char* name, const std::function<void()>& call) {
      calls.push_back({name, call, {"moved from"}});
    };
    push("add", [&] { (void)cache.add(); });
    push("fork", [&] { (void)cache.fork(0); });
    push("append", [&] { cache.append(0, tokens.view, tokens.view); });
    push("append", [&] { cache.append(one, tokens.view.broadcast(0, 1), tokens.view.broadcast(0, 1)); });
    push("append", [&] { cache.append({}, no_tokens, no_tokens); });
    push("truncate", [&] { cache.truncate(0, 0); });
    push("remove", [&] { cache.remove(0); });
    push("length", [&] { (void)cache.length(0); });
    for (const auto size : {&KvCache::kv_heads, &KvCache::head_dim, &KvCache::value_dim, &KvCache::page_size,
                            &KvCache::pages_in_use, &KvCache::max_pages})
      push("size", [&, size] { (void)(cache.*size)(); });
    push("page_bytes", [&] { (void)cache.page_bytes(); });
    push("bytes", [&] { (void)cache.bytes(); });
    push("type", [&] { (void)cache.type(); });
    push("has", [&] { (void)cache.has(0); });
    push("sequences", [&] { (void)cache.sequences(); });
    push("free_numbers", [&] { (void)cache.free_numbers(); });
    push("page_table", [&] { (void)cache.page_table(0); });
    push("attention", [&] { attention(q.view, cache, one, out.view); });
    push("plan_attention", [&] { (void)plan_attention(q.view, cache, one, out.view); });
    push("forward", [&] { decoder.self_attn().forward(x.view, cache, one, y.view); });
    push("forward_projected", [&] { decoder.multihead_attn().forward_projected(x.view, cache, one, y.view); });
    push("project_memory", [&] { decoder.multihead_attn().project_memory(x.view, cache, one); });
    KvCache good(3, 8, 8);
    (void)good.add();
    push("decoder", [&] { decoder.forward(x.view, cache, one, good, one, y.view); });
    push("decoder", [&] { decoder.forward(x.view, good, one, cache, one, y.view); });  // NOLINT(readability-*)
    CHECK(calls.size() == 28);
    check_refused(calls);
    ++moved;
    CHECK(good.length(0) == 0);
  };
  const auto work = [&](const KvCache& cache) { CHECK(cache.length(0) == 2); };
  check_moved<KvCache>(
      [&] {
        KvCache cache(3, 8, 8);
        cache.append(cache.add(), tokens.view, tokens.view);
        return cache;
      },
      use, work);
  CHECK(moved == 3);
}

TEST_CASE("PackedMatrix: empty when moved from") {
  const Tensor<2> weights({40, 50}), a({2, 40}), c({2, 50}), gate(a.view.shape);
  for_each(weights.view, [](float& e) { e = 1; });
  for_each(a.view, [](float& e) { e = 1; });
  const auto use = [&](const PackedMatrix& b) {
    CHECK(b.rows() == 0);
    CHECK(b.columns() == 0);
    CHECK(b.bytes() == 0);
    CHECK(b.data() == nullptr);
    std::vector<Illegal> calls{
        {"gemm", [&] { gemm(a.view, b, c.view); }, {"gemm", "40", "0"}},
        {"batch", [&] { gemm_batch(a.view.broadcast(0, 1), b, c.view.broadcast(0, 1)); }, {"gemm_batch", "40", "0"}},
        {"gated", [&] { gemm_gated(a.view, b, b, c.view); }, {"gemm_gated", "40", "0"}}};
    check_refused(calls);
    gemm(View<const float, 2>(nullptr, {2, 0}), b, {nullptr, {2, 0}});
    gemm_gated(View<const float, 2>(nullptr, {2, 0}), b, b, {nullptr, {2, 0}});
  };
  const auto work = [&](const PackedMatrix& b) {
    gemm(a.view, b, c.view);
    for_each(c.view, [](float e) { CHECK(e == 40); });
  };
  check_moved<PackedMatrix>([&] { return PackedMatrix(View<const float, 2>(weights.view)); }, use, work);
}

void refuse(const char* function, const std::function<void()>& call) {
  std::vector<Illegal> calls{{function, call, {function}}};
  check_refused(calls);
}

void check_finite(const Tensor<3>& result) {
  for_each(result.view, [](float e) { CHECK(std::isfinite(e)); });
}

// Layers that were moved from or default-constructed take rows of no elements, or refuse the call.
struct Layers {
  LayerSizes s;
  RandomState state = random_layer(s, 1, true);
  const StateDict& dict = state.dict;
  Random random{2};
  Tensor<3> x = random_tensor<3>({2, 3, s.d_model}, random), y{x.view.shape}, wide{{2, 3, s.d_ff}};
  Index used = 0;  ///< empty layers that were used
};

TEST_CASE("Linear: moved from, default-constructed") {
  Layers t;
  const auto use = [&](const Linear& l) {
    CHECK(l.in_features() + l.out_features() == 0);
    l.forward(none, to_none);
    refuse("Linear::forward", [&] { l.forward(t.x.view, t.wide.view); });
    ++t.used;
  };
  use(Linear());
  check_moved<Linear>([&] { return Linear(t.dict, "linear1."); }, use,
                      [&](const Linear& l) {
                        l.forward(t.x.view, t.wide.view);
                        check_finite(t.wide);
                      });
  CHECK(t.used == 4);
}

TEST_CASE("Normalization: moved from, default-constructed") {
  for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
    Layers t;
    const auto use = [&](const Normalization& n) {
      CHECK(n.size() == 0);
      n.forward(none, to_none);
      refuse("Normalization::forward", [&] { n.forward(t.x.view, t.y.view); });
      ++t.used;
    };
    use(Normalization());
    check_moved<Normalization>([&] { return Normalization(t.dict, "norm1.", kind, 1e-5f); }, use,
                               [&](const Normalization& n) {
                                 n.forward(t.x.view, t.y.view);
                                 check_finite(t.y);
                               });
    CHECK(t.used == 4);
  }
}

TEST_CASE("Embedding: moved from") {
  const std::vector<Index> ids{1, 2, 0};
  const View<const Index, 2> id_view(ids.data(), {1, 3});
  for (const bool tied : {false, true}) {
    Layers t;
    const View<float, 3> rows = t.y.view.slice(0, 0, 1);
    const auto use = [&](const Embedding& e) {
      CHECK(e.num_embeddings() + e.embedding_dim() == 0);
      refuse("Embedding::forward", [&] { e.forward(id_view, View<float, 3>(nullptr, {1, 3, 0})); });
      refuse("Embedding::forward", [&] { e.forward(id_view, rows); });
      e.forward({nullptr, {1, 0}}, View<float, 3>(nullptr, {1, 0, 0}));
      refuse("Embedding::logits", [&] { e.logits(t.x.view, t.wide.view); });
      if (tied) e.logits(none, to_none);
      ++t.used;
    };
    check_moved<Embedding>([&] { return Embedding(t.dict, "linear1.", {.tied = tied}); }, use,
                           [&](const Embedding& e) {
                             e.forward(id_view, rows);
                             for_each(rows, [](float x) { CHECK(std::isfinite(x)); });
                             CHECK(e.num_embeddings() == t.s.d_ff);
                           });
    CHECK(t.used == 3);
  }
}

// Two sequences without keys.
struct TwoSequences {
  KvCache cache{3, 8, 8};
  std::vector<Index> numbers{cache.add(), cache.add()};
};

TEST_CASE("MultiHeadAttention: moved from, default-constructed") {
  Layers t;
  TwoSequences two;
  const auto use = [&](const MultiHeadAttention& a) {
    CHECK(a.heads() + a.kv_heads() + a.head_dim() + a.d_model() == 0);
    (void)a.state_dict("");
    const char* forward = "MultiHeadAttention::forward";
    refuse(forward, [&] { a.forward(t.x.view, t.y.view); });
    refuse(forward, [&] { a.forward(none, to_none); });
    refuse(forward, [&] { a.forward(t.x.view, t.x.view, t.y.view); });
    refuse(forward, [&] { a.forward(none, none, to_none); });
    refuse(forward, [&] { a.forward(t.x.view, two.cache, two.numbers, t.y.view); });
    refuse(forward, [&] { a.forward(none, two.cache, two.numbers, to_none); });
    const char* projected = "MultiHeadAttention::forward_projected";
    refuse(projected, [&] { a.forward_projected(t.x.view, two.cache, two.numbers, t.y.view); });
    refuse(projected, [&] { a.forward_projected(none, two.cache, two.numbers, to_none); });
    refuse("MultiHeadAttention::project_memory", [&] { a.project_memory(t.x.view, two.cache, two.numbers); });
    refuse("MultiHeadAttention::project_memory", [&] { a.project_memory(none, two.cache, two.numbers); });
    CHECK(two.cache.length(0) == 0);
    ++t.used;
  };
  use(MultiHeadAttention());
  check_moved<MultiHeadAttention>([&] { return MultiHeadAttention(t.dict, "self_attn.", t.s.attention()); }, use,
                                  [&](const MultiHeadAttention& a) {
                                    a.forward(t.x.view, t.y.view);
                                    check_finite(t.y);
                                  });
  CHECK(t.used == 4);
}

TEST_CASE("FeedForward: moved from, default-constructed") {
  Layers t;
  const auto use = [&](const FeedForward& f) {
    CHECK(f.d_model() + f.d_ff() == 0);
    f.forward(none, to_none);
    refuse("FeedForward::forward", [&] { f.forward(t.x.view, t.y.view); });
    ++t.used;
  };
  use(FeedForward());
  const RandomState gated = random_layer({.gated = true}, 3, false);
  for (const StateDict* of : {&t.dict, &gated.dict})
    check_moved<FeedForward>([&] { return FeedForward(*of, ""); }, use,
                             [&](const FeedForward& f) {
                               f.forward(t.x.view, t.y.view);
                               check_finite(t.y);
                             });
  CHECK(t.used == 7);
}

TEST_CASE("EncoderLayer: moved from, default-constructed") {
  Layers t;
  const auto use = [&](const EncoderLayer& e) {
    CHECK(e.d_model() == 0);
    refuse("EncoderLayer::forward", [&] { e.forward(t.x.view, t.y.view); });
    refuse("EncoderLayer::forward", [&] { e.forward(none, to_none); });
    ++t.used;
  };
  use(EncoderLayer());
  check_moved<EncoderLayer>([&] { return EncoderLayer(t.dict, "", t.s.options()); }, use,
                            [&](const EncoderLayer& e) {
                              e.forward(t.x.view, t.y.view);
                              check_finite(t.y);
                            });
  CHECK(t.used == 4);
}

TEST_CASE("DecoderLayer: moved from, default-constructed") {
  Layers t;
  TwoSequences two;
  const auto use = [&](const DecoderLayer& d) {
    CHECK(d.d_model() == 0);
    const char* forward = "DecoderLayer::forward";
    refuse(forward, [&] { d.forward(t.x.view, t.x.view, t.y.view); });
    refuse(forward, [&] { d.forward(none, none, to_none); });
    refuse(forward, [&] { d.forward(t.x.view, two.cache, two.numbers, two.cache, two.numbers, t.y.view); });
    refuse(forward, [&] { d.forward(none, two.cache, two.numbers, two.cache, two.numbers, to_none); });
    CHECK(d.self_attn().heads() + d.multihead_attn().heads() == 0);
    ++t.used;
  };
  use(DecoderLayer());
  check_moved<DecoderLayer>([&] { return DecoderLayer(t.dict, "", t.s.options()); }, use,
                            [&](const DecoderLayer& d) {
                              d.forward(t.x.view, t.x.view, t.y.view);
                              check_finite(t.y);
                            });
  CHECK(t.used == 4);
}

}  // namespace
}  // namespace headlane::test
