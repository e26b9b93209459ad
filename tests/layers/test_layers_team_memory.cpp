// Memory of the layers of a team: nothing is allocated once warm, each allocation may fail, and
// layers may be moved. A call that an exception ends is abandoned.
#include "support/failing_allocation.hpp"
#include "support/half_tensor.hpp"
#include "support/lone_team.hpp"
#include "support/scope.hpp"
#include "support/team_case.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <optional>
#include <thread>
#include <utility>

namespace headlane::test {
namespace {

const LayerSizes sizes{.d_model = 96, .heads = 6, .kv_heads = 3, .head_dim = 16, .memory_width = 96, .d_ff = 160};

/// All layers of a rank, and what they compute.
struct OneRank {
  explicit OneRank(Team* team)
      : decoder(state.dict, "", options_of(sizes, team)),
        encoder(state.dict, "", options_of(sizes, team)),
        tied(state.dict, "linear1.", {.tied = true, .team = team}),
        table(state.dict, "linear1.", {.team = team}),
        feed_forward(state.dict, "", {.team = team}),
        linear(state.dict, "linear1.", DType::int8, DType::float32, team) {
    reset();
  }

  /// Empty caches, and a y that is not computed.
  void reset() {
    for_each(y.view, [](float& value) { value = 0.5f; });
    for_each(wide.view, [](float& value) { value = 0.5f; });
    for (std::optional<KvCache>* cache : {&own, &projected}) {
      cache->emplace(1, 16, 16, KvCacheOptions{.page_size = 32});
      for (int i = 0; i < 2; ++i) static_cast<void>((*cache)->add());
    }
  }

  RandomState state = random_layer(sizes, 3, true);
  DecoderLayer decoder;
  EncoderLayer encoder;
  Embedding tied, table;
  FeedForward feed_forward;
  Linear linear;
  Tensor<3> x = normal({2, 40, 96}, 1), y{{2, 40, 96}}, wide{{2, 40, 160}}, lse{{2, 6, 40}};
  Tensor<1> slopes{{6}};
  std::optional<KvCache> own, projected;
  std::vector<Index> ids = std::vector<Index>(80, 70);
  std::array<Index, 2> both{0, 1};
};

#if !defined(HEADLANE_TEST_SANITIZED)
TEST_CASE("layers of a team allocate nothing once warm") {
  LoneTeam team;
  OneRank rank(&team);
  for_each(rank.slopes.view, [](float& slope) { slope = 0.5f; });
  for (const int threads : {1, 2}) {
    const ThreadsScope scope(threads);
    CHECK(allocates_nothing_once_warm([&] {
      rank.encoder.forward(rank.x.view, rank.y.view, {.alibi_slopes = rank.slopes.view, .lse = rank.lse.view});
      rank.decoder.forward(rank.x.view, rank.x.view, rank.y.view);
      rank.table.forward({rank.ids.data(), {2, 40}}, rank.y.view);
      rank.tied.logits(rank.x.view, rank.wide.view);
      rank.linear.forward(rank.x.view, rank.wide.view);
    }));
  }
}
#endif

TEST_CASE("layers of a team: each allocation fails") {
  LoneTeam team;
  OneRank rank(&team);
  for_each(rank.slopes.view, [](float& slope) { slope = 0.5f; });
  const ThreadsScope one(1);
  const auto bits = [&] {
    Hash hash;
    for (const View<float, 3>& view : {rank.y.view, rank.wide.view, rank.lse.view}) hash.add(view);
    return hash.value();
  };
  const auto prepare = [&] {
    rank.reset();
    for_each(rank.lse.view, [](float& value) { value = 0; });
  };
  check_failing({"layers of a team", prepare,
                 [&] {
                   rank.encoder.forward(rank.x.view, rank.y.view,
                                        {.alibi_slopes = rank.slopes.view, .lse = rank.lse.view});
                   rank.decoder.multihead_attn().project_memory(rank.x.view, *rank.projected, rank.both);
                   rank.decoder.forward(rank.x.view, *rank.own, rank.both, *rank.projected, rank.both, rank.y.view);
                   rank.tied.forward({rank.ids.data(), {2, 40}}, rank.y.view, {.add = true});
                   rank.tied.logits(rank.y.view, rank.wide.view);
                 },
                 bits},
                5);
  std::optional<DecoderLayer> made;
  check_failing({"DecoderLayer of a team", [&] { made.reset(); },
                 [&] { made.emplace(rank.state.dict, "", options_of(sizes, &team)); },
                 [&]() -> std::uint64_t { return made ? made->self_attn().in_proj().bytes() : 0; }, true},
                20);
}

/// Calls forward() of all layers, from and to x and y of one type; says which of them.
template <class X, class F>
void for_each_forward(OneRank& rank, const X& x, const X& y, const X& wide, const F& f) {
  const MultiHeadAttention& attention = rank.decoder.multihead_attn();
  f("Linear", [&] { rank.linear.forward(x.view, wide.view); });
  f("FeedForward", [&] { rank.feed_forward.forward(x.view, y.view); });
  f("attention", [&] { attention.forward(x.view, y.view); });
  f("attention to memory", [&] { attention.forward(x.view, x.view, y.view); });
  f("attention over a cache", [&] { attention.forward(x.view, *rank.own, rank.both, y.view); });
  f("EncoderLayer", [&] { rank.encoder.forward(x.view, y.view); });
  f("DecoderLayer", [&] { rank.decoder.forward(x.view, x.view, y.view); });
  f("DecoderLayer over caches",
    [&] { rank.decoder.forward(x.view, *rank.own, rank.both, *rank.projected, rank.both, y.view); });
  f("Embedding", [&] { rank.tied.forward({rank.ids.data(), {2, 40}}, y.view); });
  f("Embedding::logits", [&] { rank.tied.logits(x.view, wide.view); });
}

TEST_CASE("layers of a team: a call that an exception ends is abandoned") {
  LoneTeam team;
  OneRank rank(&team);
  rank.decoder.multihead_attn().project_memory(rank.x.view, *rank.projected, rank.both);
  const auto abandons = [&](const char* name, const auto& call) {
    CAPTURE(name);
    CHECK_NOTHROW(call());
    CHECK_FALSE(team.is_abandoned);
    team.fails = true;
    CHECK_THROWS_AS(call(), std::runtime_error);
    CHECK(team.is_abandoned);
    team.fails = team.is_abandoned = false;
  };
  for_each_forward(rank, rank.x, rank.y, rank.wide, abandons);
  using Halves = HalfTensor<bfloat16, 3>;
  for_each_forward(rank, Halves(rank.x.view), Halves(rank.y.view), Halves(rank.wide.view), abandons);
  // All ranks throw if one of them refuses its arguments: they stay in step.
  CHECK_THROWS_AS(rank.linear.forward(rank.x.view, rank.y.view), std::invalid_argument);
  const std::array<Index, 2> twice{1, 1};
  CHECK_THROWS_WITH_AS(rank.decoder.self_attn().forward(rank.x.view, *rank.own, twice, rank.y.view),
                       "MultiHeadAttention::forward: sequence 1 is named twice in sequences", std::invalid_argument);
  CHECK_THROWS_WITH_AS(rank.decoder.forward(rank.x.view, *rank.own, twice, *rank.projected, rank.both, rank.y.view),
                       "DecoderLayer::forward: sequence 1 is named twice in sequences", std::invalid_argument);
  CHECK_FALSE(team.is_abandoned);
}

#if !defined(HEADLANE_TEST_SANITIZED)
TEST_CASE("layers of a team: so is one without memory, once the ranks have agreed") {
  LoneTeam team;
  OneRank rank(&team);
  rank.decoder.multihead_attn().project_memory(rank.x.view, *rank.projected, rank.both);
  const HalfTensor<float16, 3> x(rank.x.view), y(rank.y.view), wide(rank.wide.view);
  long abandoned = 0;
  for_each_forward(rank, x, y, wide, [&](const char* name, const auto& call) {
    CAPTURE(name);
    bool failed = true;
    for (long n = 0; failed && n < 200; ++n) {
      CAPTURE(n);
      team.agrees = team.is_abandoned = failed = false;
      std::thread([&] {  // whose scratch memory is not there yet
        const ThreadsScope one(1);
        until_failure = n;
        try {
          call();
        } catch (const std::bad_alloc&) {
          failed = true;
        }
        until_failure = -1;
      })
          .join();
      CHECK(team.is_abandoned == (failed && team.agrees));
      abandoned += team.is_abandoned ? 1 : 0;
    }
    CHECK_FALSE(failed);
  });
  CHECK(abandoned > 20);
}
#endif

TEST_CASE("layers of a team that are moved") {
  LoneTeam team;
  const RandomState state = random_layer(sizes, 3, true);
  const Tensor<3> x = normal({2, 4, 96}, 1), y({2, 4, 160}), expected(y.view.shape);
  const View<const float, 3> none(nullptr, {2, 3, 0});
  const View<float, 3> to_none(nullptr, {2, 3, 0});
  Linear from(state.dict, "linear1.", DType::float32, DType::float32, &team);
  from.forward(x.view, expected.view);
  const Linear to = std::move(from);
  to.forward(x.view, y.view);
  CHECK(different_bits(y.view, expected.view) == 0);
  CHECK(to.out_features() == 160);
  // NOLINTBEGIN(bugprone-use-after-move): under test
  CHECK(from.out_features() == 0);
  CHECK(from.columns().team() == nullptr);
  from.forward(none, to_none);
  Embedding embedding(state.dict, "linear1.", {.tied = true, .team = &team});
  const Embedding moved = std::move(embedding);
  moved.logits(x.view, y.view);
  CHECK(embedding.num_embeddings() == 0);
  embedding.logits(none, to_none);
  MultiHeadAttention attention(state.dict, "self_attn.", {.heads = 6, .kv_heads = 3, .team = &team});
  const MultiHeadAttention there = std::move(attention);
  CHECK(there.kv_heads() == 1);
  CHECK(there.shares().count() == 3);
  CHECK(attention.kv_heads() == 0);
  CHECK(attention.heads() == 0);
  CHECK_THROWS_AS(attention.forward(none, to_none), std::invalid_argument);
  // NOLINTEND(bugprone-use-after-move)
}

}  // namespace
}  // namespace headlane::test
