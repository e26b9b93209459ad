// Objects that were moved from: as if they were default-constructed, or an error; never a crash. Ranks that there are not.
#include "support/illegal.hpp"
#include "support/layer_case.hpp"
#include "support/sanitized.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <array>

namespace headlane::test {
namespace {

/// What a test asks of a layer that is empty: rows of 0 elements, if at all.
const View<const float, 3> none(nullptr, {2, 3, 0});
const View<float, 3> to_none(nullptr, {2, 3, 0});

/// Both ways to move, then use(from); assigned to again, work(from) is as before.
template <class T, class Use, class Work>
void check_moved(const std::function<T()>& make, const Use& use, const Work& work) {
  T constructed_from = make();
  const T constructed = std::move(constructed_from);
  work(constructed);
  use(constructed_from);  // NOLINT(bugprone-use-after-move): what is tested
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

TEST_CASE("KvCache that was moved from: every call is an error") {
  const LayerSizes s;
  const RandomState state = random_layer(s, 1, true);
  const DecoderLayer decoder(state.dict, "", s.options());
  const std::vector<Index> one{0};
  const Tensor<3> x({1, 2, s.d_model}), y(x.view.shape), tokens({3, 2, 8});
  const Tensor<4> q({1, 3, 2, 8}), out(q.view.shape);
  for_each(x.view, [](float& e) { e = 0; });
  for_each(q.view, [](float& e) { e = 0; });
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
    push("append", [&] { cache.append({}, {nullptr, {0, 3, 0, 8}}, {nullptr, {0, 3, 0, 8}}); });
    push("truncate", [&] { cache.truncate(0, 0); });
    push("remove", [&] { cache.remove(0); });
    push("length", [&] { (void)cache.length(0); });
    push("kv_heads", [&] { (void)cache.kv_heads(); });
    push("head_dim", [&] { (void)cache.head_dim(); });
    push("value_dim", [&] { (void)cache.value_dim(); });
    push("page_size", [&] { (void)cache.page_size(); });
    push("pages_in_use", [&] { (void)cache.pages_in_use(); });
    push("page_bytes", [&] { (void)cache.page_bytes(); });
    push("bytes", [&] { (void)cache.bytes(); });
    push("max_pages", [&] { (void)cache.max_pages(); });
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
    // NOLINTNEXTLINE(readability-suspicious-call-argument)
    push("decoder", [&] { decoder.forward(x.view, good, one, cache, one, y.view); });
    CHECK(calls.size() == 27);
    check_refused(calls);
    CHECK(good.length(0) == 0);
    ++moved;
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

TEST_CASE("PackedMatrix that was moved from is empty") {
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
    gemm({nullptr, {2, 0}}, b, {nullptr, {2, 0}});
    gemm_gated({nullptr, {2, 0}}, b, b, {nullptr, {2, 0}});
  };
  const auto work = [&](const PackedMatrix& b) {
    gemm(a.view, b, c.view);
    for_each(c.view, [](float e) { CHECK(e == 40); });
  };
  check_moved<PackedMatrix>([&] { return PackedMatrix(View<const float, 2>(weights.view)); }, use, work);
}

TEST_CASE("layers that were moved from, or default-constructed, take rows of no elements") {
  const LayerSizes s;
  const RandomState state = random_layer(s, 1, true);
  const StateDict& dict = state.dict;
  Random random(2);
  const Tensor<3> x = random_tensor<3>({2, 3, s.d_model}, random), y(x.view.shape), wide({2, 3, s.d_ff});
  const std::vector<Index> ids{1, 2, 0}, two{0, 1};
  const View<const Index, 2> id_view(ids.data(), {1, 3});
  KvCache cache(3, 8, 8);
  for (int i = 0; i < 2; ++i) (void)cache.add();
  const auto refuse = [&](const char* function, const std::function<void()>& call) {
    std::vector<Illegal> calls{{function, call, {function}}};
    check_refused(calls);
  };
  const auto finite = [](const Tensor<3>& result) { for_each(result.view, [](float e) { CHECK(std::isfinite(e)); }); };
  Index used = 0;

  const auto linear = [&](const Linear& l) {
    CHECK(l.in_features() + l.out_features() == 0);
    l.forward(none, to_none);
    refuse("Linear::forward", [&] { l.forward(x.view, wide.view); });
    ++used;
  };
  linear(Linear());
  check_moved<Linear>([&] { return Linear(dict, "linear1."); }, linear,
                      [&](const Linear& l) {
                        l.forward(x.view, wide.view);
                        finite(wide);
                      });
  for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
    const auto norm = [&](const Normalization& n) {
      CHECK(n.size() == 0);
      n.forward(none, to_none);
      refuse("Normalization::forward", [&] { n.forward(x.view, y.view); });
      ++used;
    };
    norm(Normalization());
    check_moved<Normalization>([&] { return Normalization(dict, "norm1.", kind, 1e-5f); }, norm,
                               [&](const Normalization& n) {
                                 n.forward(x.view, y.view);
                                 finite(y);
                               });
  }
  for (const bool tied : {false, true}) {
    const auto embedding = [&](const Embedding& e) {
      CHECK(e.num_embeddings() + e.embedding_dim() == 0);
      refuse("Embedding::forward", [&] { e.forward(id_view, {nullptr, {1, 3, 0}}); });
      refuse("Embedding::forward", [&] { e.forward(id_view, y.view.slice(0, 0, 1)); });
      e.forward({nullptr, {1, 0}}, {nullptr, {1, 0, 0}});
      refuse("Embedding::logits", [&] { e.logits(x.view, wide.view); });
      if (tied) e.logits(none, to_none);
      ++used;
    };
    check_moved<Embedding>([&] { return Embedding(dict, "linear1.", {.tied = tied}); }, embedding,
                           [&](const Embedding& e) {
                             e.forward(id_view, y.view.slice(0, 0, 1));
                             finite(random_tensor<3>({1, 1, 1}, random));
                             CHECK(e.num_embeddings() == s.d_ff);
                           });
  }
  const auto attend = [&](const MultiHeadAttention& a) {
    CHECK(a.heads() + a.kv_heads() + a.head_dim() + a.d_model() == 0);
    const char* f = "MultiHeadAttention::forward";
    refuse(f, [&] { a.forward(x.view, y.view); });
    refuse(f, [&] { a.forward(none, to_none); });
    refuse(f, [&] { a.forward(x.view, x.view, y.view); });
    refuse(f, [&] { a.forward(none, none, to_none); });
    refuse(f, [&] { a.forward(x.view, cache, two, y.view); });
    refuse(f, [&] { a.forward(none, cache, two, to_none); });
    refuse("MultiHeadAttention::forward_projected", [&] { a.forward_projected(x.view, cache, two, y.view); });
    refuse("MultiHeadAttention::forward_projected", [&] { a.forward_projected(none, cache, two, to_none); });
    refuse("MultiHeadAttention::project_memory", [&] { a.project_memory(x.view, cache, two); });
    refuse("MultiHeadAttention::project_memory", [&] { a.project_memory(none, cache, two); });
    CHECK(cache.length(0) == 0);
    ++used;
  };
  attend(MultiHeadAttention());
  check_moved<MultiHeadAttention>([&] { return MultiHeadAttention(dict, "self_attn.", s.attention()); }, attend,
                                  [&](const MultiHeadAttention& a) {
                                    a.forward(x.view, y.view);
                                    finite(y);
                                  });
  const auto feed = [&](const FeedForward& f) {
    CHECK(f.d_model() + f.d_ff() == 0);
    f.forward(none, to_none);
    refuse("FeedForward::forward", [&] { f.forward(x.view, y.view); });
    ++used;
  };
  feed(FeedForward());
  const RandomState gated = random_layer({.gated = true}, 3, false);
  for (const StateDict* of : {&dict, &gated.dict})
    check_moved<FeedForward>([&] { return FeedForward(*of, ""); }, feed,
                             [&](const FeedForward& f) {
                               f.forward(x.view, y.view);
                               finite(y);
                             });
  const auto encode = [&](const EncoderLayer& e) {
    CHECK(e.d_model() == 0);
    refuse("EncoderLayer::forward", [&] { e.forward(x.view, y.view); });
    refuse("EncoderLayer::forward", [&] { e.forward(none, to_none); });
    ++used;
  };
  encode(EncoderLayer());
  check_moved<EncoderLayer>([&] { return EncoderLayer(dict, "", s.options()); }, encode,
                            [&](const EncoderLayer& e) {
                              e.forward(x.view, y.view);
                              finite(y);
                            });
  const auto decode = [&](const DecoderLayer& d) {
    CHECK(d.d_model() == 0);
    const char* f = "DecoderLayer::forward";
    refuse(f, [&] { d.forward(x.view, x.view, y.view); });
    refuse(f, [&] { d.forward(none, none, to_none); });
    refuse(f, [&] { d.forward(x.view, cache, two, cache, two, y.view); });
    refuse(f, [&] { d.forward(none, cache, two, cache, two, to_none); });
    CHECK(d.self_attn().heads() + d.multihead_attn().heads() == 0);
    ++used;
  };
  decode(DecoderLayer());
  check_moved<DecoderLayer>([&] { return DecoderLayer(dict, "", s.options()); }, decode,
                            [&](const DecoderLayer& d) {
                              d.forward(x.view, x.view, y.view);
                              finite(y);
                            });
  CHECK(used == 10 * 3 + 7);
}

TEST_CASE("an AnyView has 0 to 8 axes: any other rank is an error wherever one is taken") {
  std::vector<float> memory(64, 0.5f);
  std::vector<Index> integers(64, 0);
  const std::unique_ptr<bool[]> flags = std::make_unique<bool[]>(64);
  std::vector<Illegal> calls;
  const View<float, 3> good(memory.data() + 32, {2, 2, 2});
  const View<const float, 3> in(memory.data(), {2, 2, 2});
  for (const int rank : {-1, 9, 10, 100, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
    const auto bad = [&](auto view) {
      view.rank = rank;
      return view;
    };
    const AnyView<const float> x = bad(AnyView<const float>(in));
    const AnyView<float> y = bad(AnyView<float>(good));
    const auto push = [&](const char* function, const char* argument, const std::function<void()>& call) {
      calls.push_back({function, call, {function, argument, "rank " + std::to_string(rank)}});
    };
    push("softmax", "x", [=] { softmax(x, good); });
    push("softmax", "y", [=] { softmax(in, y); });
    push("softmax", "x", [=] { softmax(x, y); });
    push("softmax", "bias", [=] { softmax(in, good, {.bias = x}); });
    push("softmax", "mask", [=, &flags] {
      AnyView<const bool> mask = View<const bool, 3>(flags.get(), {2, 2, 2});
      mask.rank = rank;
      softmax(in, good, {.mask = mask});
    });
    AnyView<const Index> lengths = View<const Index, 2>(integers.data(), {2, 2});
    lengths.rank = rank;
    push("softmax", "lengths", [=] { softmax(in, good, {.lengths = lengths}); });
    for (const bool both : {false, true}) {
      const AnyView<const float> from = both ? x : AnyView<const float>(in);
      push("activate", "y", [=] { activate(from, y, Activation::relu); });
      push("layer_norm", "y", [=] { layer_norm(from, y); });
      push("rms_norm", "y", [=] { rms_norm(from, y); });
      push("add_sinusoidal_encoding", "x", [=] { add_sinusoidal_encoding(from, y); });
    }
    push("layer_norm", "residual", [=] { layer_norm(in, good, {.residual = x}); });
    push("rms_norm", "sum", [=] { rms_norm(in, good, {.sum = y}); });
    push("rotary_embedding", "positions",
         [=] { rotary_embedding(in.broadcast(0, 1), good.broadcast(0, 1), {.positions = lengths}); });
    push("Normalization::forward", "x", [=] { Normalization().forward(x, good); });
    push("Linear", "weight", [=] { (void)Linear(StateDict{{"weight", x}}); });
    push("Embedding", "weight", [=] { (void)Embedding(StateDict{{"weight", x}}); });
    push("Normalization", "weight", [=] { (void)Normalization(StateDict{{"weight", x}}, "", NormKind::rms, 0); });
    push("MultiHeadAttention", "in_proj_weight",
         [=] { (void)MultiHeadAttention(StateDict{{"in_proj_weight", x}}, "", {.heads = 1}); });
    push("FeedForward", "linear1.weight", [=] { (void)FeedForward(StateDict{{"linear1.weight", x}}, ""); });
  }
  CHECK(calls.size() == 6 * 23);
  check_illegal(calls, [&] { return std::all_of(memory.begin(), memory.end(), [](float e) { return e == 0.5f; }); });
}

// Broadcast by strides of 0, a matrix may have more elements than there is memory.
TEST_CASE("sizes that do not fit into memory: broadcast operands whose copies would be packed") {
  const float one = 1;
  std::vector<Illegal> calls;
  const auto push = [&](Index rows, Index columns) {
    calls.push_back({std::to_string(rows) + " x " + std::to_string(columns),
                     [&one, rows, columns] { (void)PackedMatrix({&one, {rows, columns}, {0, 0}}); },
                     {"PackedMatrix", "b", std::to_string(rows), std::to_string(columns), "does not fit into memory"}});
  };
  for (const int rows : {55, 56, 57, 58, 59, 60, 61, 62}) push(Index{1} << rows, 1);
  push(Index{1} << 30, (Index{1} << 30) + 1);
  push(1, (Index{1} << 60) + 1);
  push(1, std::numeric_limits<Index>::max());
  push(std::numeric_limits<Index>::max(), 1);
  check_illegal(calls, [] { return true; });
  // The largest that fits: memory is what lacks. A weight of a layer likewise.
  const Index most = (Index{1} << 60) / 32 - 1;
  CHECK_THROWS_AS((void)PackedMatrix({&one, {most, 32}, {0, 0}}), std::bad_alloc);
  AnyView<const float> weight = View<const float, 2>(&one, {3, (Index{1} << 58)}, {0, 0});
  const StateDict dict{{"in_proj_weight", weight}, {"weight", weight}};
#if !defined(HEADLANE_TEST_SANITIZED)  // whose operator new ends the program
  CHECK_THROWS_AS((void)MultiHeadAttention(dict, "", {.heads = 1}), std::bad_alloc);
  CHECK_THROWS_AS((void)Embedding(dict), std::bad_alloc);
#endif
  CHECK_THROWS_AS((void)Linear(dict), std::invalid_argument);  // whole panels of 3 columns
  CHECK(PackedMatrix({nullptr, {Index{1} << 62, 0}}).bytes() == 0);
  CHECK(PackedMatrix({nullptr, {0, Index{1} << 62}}).bytes() == 0);
}

}  // namespace
}  // namespace headlane::test
