// What each rank of a team has: shares of weights, state dicts of its rows; and what all refuse.
#include "support/layer_case.hpp"
#include "support/team_case.hpp"

#include <doctest/doctest.h>
#include <headlane/headlane.hpp>

#include <utility>

namespace headlane::test {
namespace {

TEST_CASE("a rank has its share of the weights") {
  const LayerSizes s{
      .d_model = 512, .heads = 16, .kv_heads = 16, .head_dim = 32, .memory_width = 512, .d_ff = 1024, .gated = true};
  const RandomState state = random_layer(s, 1, false);
  const auto bytes_of_layers = [&](Team* team) {
    const MultiHeadAttention attention(state.dict, "self_attn.", {.heads = 16, .team = team});
    const FeedForward feed_forward(state.dict, "", {.team = team});
    std::vector<std::size_t> bytes{attention.in_proj().bytes(), attention.out_proj().weight().bytes()};
    for (const Linear* linear : {&feed_forward.linear1(), &feed_forward.linear_gate(), &feed_forward.linear2()})
      bytes.push_back(linear->weight().bytes());
    bytes.push_back(Embedding(state.dict, "linear1.", {.team = team}).bytes());
    bytes.push_back(Embedding(state.dict, "linear1.", {.tied = true, .team = team}).bytes());
    CHECK(attention.heads() == 16);
    CHECK(attention.d_model() == 512);
    CHECK(feed_forward.d_ff() == 1024);
    CHECK(feed_forward.d_model() == 512);
    CHECK(feed_forward.linear1().out_features() == 1024);
    return bytes;
  };
  const std::vector<std::size_t> whole = bytes_of_layers(nullptr);
  for (const int size : {1, 2, 4, 8, 16}) {
    const auto ranks = static_cast<std::size_t>(size);
    CHECK(run_ranks(size, [&](Team& team) {
            const std::vector<std::size_t> own = bytes_of_layers(&team);
            for (std::size_t i = 0; i < own.size(); ++i) CHECK(own[i] * ranks == whole[i]);
          }) == std::vector<std::string>(ranks));
  }
}

TEST_CASE("shares: whole units, one after the other, that differ by at most one") {
  for (const Index count : {0, 1, 31, 32, 33, 64, 100, 1000})
    for (const Index unit : {1, 5, 32})
      for (const int size : {1, 2, 3, 7, 40}) {
        TeamHub hub(size);
        const Index units = (count + unit - 1) / unit;
        for (int rank = 0; rank < size; ++rank) {
          ThreadTeam team(hub, rank);
          const Shares shares(&team, count, unit);
          const std::span<const Index> begins = shares.begins();
          REQUIRE(std::ssize(begins) == size + 1);
          CHECK(begins.front() == 0);
          CHECK(begins.back() == count);
          CHECK(shares.count() == count);
          CHECK(shares.begin() == begins[static_cast<std::size_t>(rank)]);
          CHECK(shares.end() == begins[static_cast<std::size_t>(rank) + 1]);
          CHECK(shares.divided() == (size > 1));
          CHECK(shares.team() == (size > 1 ? &team : nullptr));
          const Index own = (shares.own() + unit - 1) / unit;
          CHECK((own == units / size || own == units / size + 1));
          CHECK((shares.begin() % unit == 0 || shares.begin() == count));
        }
      }
  Shares from(nullptr, 7, 3);
  CHECK(from.own() == 7);
  const Shares to = std::move(from);
  CHECK(to.count() == 7);
  CHECK(from.count() == 0);  // NOLINT(bugprone-use-after-move): under test
  CHECK(!from.divided());
}

/// What every rank throws, which is the same, and nothing was sent before.
std::string refusal(int size, const std::function<void(Team&)>& call) {
  Index sent = 0;
  const std::vector<std::string> errors = run_ranks(size, [&](ThreadTeam& team) {
    try {
      call(team);
    } catch (...) {
      if (team.rank() == 0) sent = team.gathered;
      throw;
    }
  });
  CHECK(sent == 0);
  for (const std::string& error : errors) CHECK(error == errors.front());
  return errors.front();
}

TEST_CASE("what a team refuses, it refuses on all ranks before anything is sent") {
  const LayerSizes s = team_layer_sizes()[0];
  const RandomState state = random_layer(s, 3, true);
  const Tensor<3> x = normal({2, 7, s.d_model}, 5);
  const Tensor<1> slopes({s.heads - 1});
  const Tensor<2> table({s.heads - 2, 8});
  fill_uniform(slopes.view, *std::make_unique<Random>(1));
  fill_uniform(table.view, *std::make_unique<Random>(1));
  const auto refuses = [&](const AttentionOptions& options, const char* message) {
    const std::string text = refusal(3, [&](Team& team) {
      const Tensor<3> y(x.view.shape);
      EncoderLayer(state.dict, "", options_of(s, &team)).forward(x.view, y.view, options);
    });
    CHECK(text == std::string("EncoderLayer::forward: ") + message);
  };
  // The first ranks have heads enough.
  refuses({.alibi_slopes = slopes.view}, "alibi_slopes has 4 elements, q has 5 heads");
  refuses({.relative_bias = {.table = table.view}}, "relative_bias.table has 3 rows, q has 5 heads");
  refuses({.window_left = -2}, "window_left is -2, the minimum is -1 (not bounded)");
  const auto refuses_state = [&](const char* name, const auto& make) {
    const std::string text = refusal(2, [&](Team& team) { (void)make(&team).state_dict(); });
    CHECK(text ==
          std::string(name) + "::state_dict: the layer has the share of one rank of its team, not the whole weights");
  };
  refuses_state("Linear", [&](Team* t) { return Linear(state.dict, "linear1.", DType::float32, DType::float32, t); });
  refuses_state("FeedForward", [&](Team* t) { return FeedForward(state.dict, "", {.team = t}); });
  refuses_state("Embedding", [&](Team* t) { return Embedding(state.dict, "linear1.", {.team = t}); });
  refuses_state("EncoderLayer", [&](Team* t) { return EncoderLayer(state.dict, "", options_of(s, t)); });
  refuses_state("DecoderLayer", [&](Team* t) { return DecoderLayer(state.dict, "", options_of(s, t)); });
  refuses_state("MultiHeadAttention",
                [&](Team* t) { return MultiHeadAttention(state.dict, "self_attn.", {.heads = s.heads, .team = t}); });
  // A team of one has everything.
  CHECK(run_ranks(1, [&](Team& team) {
          CHECK(EncoderLayer(state.dict, "", options_of(s, &team)).state_dict() ==
                EncoderLayer(state.dict, "", s.options()).state_dict());
        }) == std::vector<std::string>{""});
}

TEST_CASE("a state dict may have only the rows of a rank") {
  TeamComparison all;
  for (const LayerSizes& s : {team_layer_sizes()[0], team_layer_sizes()[1]}) {
    const RandomState state = random_layer(s, 3, true);
    const Tensor<3> x = normal({2, 7, s.d_model}, 5), memory = normal({2, 9, s.memory_width}, 6);
    all.add(text_of(s), [&](Team* team, int) {
      StateDict own = state.dict;
      std::vector<std::vector<float>> parts;
      for (auto& [name, any] : own) {
        if (any.rank != 2) continue;
        const View<const float, 2> w(any.data, {any.shape[0], any.shape[1]}, {any.strides[0], any.strides[1]});
        own.shares[name] = w.shape[0];
        std::vector<float>& part = parts.emplace_back();
        const auto add = [&](Index first, Index width, Index unit) {
          const Shares shares(team, width, unit);
          append(part, w.slice(0, first + shares.begin(), first + shares.end()));
        };
        const Index kv = s.kv_heads * s.head_dim, q = s.heads * s.head_dim, of_group = q / s.kv_heads;
        const bool in = name.find("in_proj") != std::string::npos;
        if (in) add(0, q, of_group), add(q, kv, s.head_dim), add(q + kv, kv, s.head_dim);
        else if (name.find("q_proj") != std::string::npos) add(0, q, of_group);
        else if (name.find("_proj_") != std::string::npos) add(0, kv, s.head_dim);
        else add(0, w.shape[0], columns_of_share);
        part.push_back(0);  // so that it has data
        any = View<const float, 2>(part.data(), {(std::ssize(part) - 1) / w.shape[1], w.shape[1]});
      }
      const DecoderLayer layer(own, "", options_of(s, team));
      return result_of(2, 7, s.d_model, {}, [&](View<float, 3> y) { layer.forward(x.view, memory.view, y); });
    });
  }
  all.finish(38);
  const LayerSizes s = team_layer_sizes()[0];
  const RandomState state = random_layer(s, 3, true);
  StateDict wrong = state.dict;
  wrong.shares["linear1.weight"] = 131;
  CHECK_THROWS_WITH_AS(Linear(wrong, "linear1."), "Linear: linear1.weight has 130 rows, the share of this rank has 131",
                       std::invalid_argument);
  wrong.shares["linear1.weight"] = 130;
  CHECK(Linear(wrong, "linear1.").out_features() == 130);
  wrong.shares["self_attn.in_proj_weight"] = 2 * 195;
  CHECK_THROWS_WITH_AS(MultiHeadAttention(wrong, "self_attn.", s.attention()),
                       "MultiHeadAttention: self_attn.in_proj_weight has 195 rows, the share of this rank has 390",
                       std::invalid_argument);
}

}  // namespace
}  // namespace headlane::test
