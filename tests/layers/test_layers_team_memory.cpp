// Memory of the layers of a team: nothing is allocated once warm, each allocation may fail, and
// layers may be moved.
#include "support/failing_allocation.hpp"
#include "support/scope.hpp"
#include "support/team_case.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <optional>
#include <utility>

namespace headlane::test {
namespace {

/// One rank of three, whose others have computed zeros.
class LoneTeam final : public Team {
 public:
  [[nodiscard]] int rank() const override { return 1; }
  [[nodiscard]] int size() const override { return 3; }
  void all_gather(float* buffer, std::span<const Index> begins) override {
    std::fill(buffer, buffer + begins[1], 0.0f);
    std::fill(buffer + begins[2], buffer + begins[3], 0.0f);
  }
  void agree(std::string_view, std::string_view) override {}
};

const LayerSizes sizes{.d_model = 96, .heads = 6, .kv_heads = 3, .head_dim = 16, .memory_width = 96, .d_ff = 160};

/// All layers of a rank, and what they compute.
struct OneRank {
  explicit OneRank(Team* team)
      : decoder(state.dict, "", options_of(sizes, team)),
        encoder(state.dict, "", options_of(sizes, team)),
        tied(state.dict, "linear1.", {.tied = true, .team = team}),
        table(state.dict, "linear1.", {.team = team}),
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
