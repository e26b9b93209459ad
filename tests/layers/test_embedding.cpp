// Embedding: rows of the table, tied or not, scaled, added, truncated; the same weight as logits,
// bit by bit; errors.
#include "support/illegal.hpp"
#include "support/layer_case.hpp"

#include <doctest/doctest.h>
#include <headlane/gemm.hpp>

namespace headlane::test {
namespace {

struct Ids {
  Ids(Index batch, Index length, Index rows, Random& random) {
    for (Index i = 0; i < batch * length; ++i) values.push_back(random.integer(0, rows - 1));
    values.push_back(0);
    view = {values.data(), {batch, length}};
  }
  std::vector<Index> values;
  View<const Index, 2> view;
};

RandomState table_of(Index rows, Index columns) {
  RandomState state(1);
  state.matrix("embed.weight", rows, columns);
  return state;
}

float element(const RandomState& state, Index row, Index column) {
  const AnyView<const float>& w = state.dict.at("embed.weight");
  return w.data[row * w.strides[0] + column * w.strides[1]];
}

TEST_CASE("Embedding: rows of the table, any sizes and layouts, tied or not, scaled and added") {
  Random random(2);
  for (const bool tied : {false, true}) {
    for (const auto& [rows, columns] :
         {std::pair<Index, Index>{1, 1}, {31, 7}, {33, 512}, {70, 513}, {5, 1100}, {40, 0}}) {
      const RandomState state = table_of(rows, columns);
      const Embedding layer(state.dict, "embed.", {.tied = tied});
      CHECK(layer.num_embeddings() == rows);
      CHECK(layer.embedding_dim() == columns);
      for (const Layout& layout : layouts()) {
        const Ids ids(2, 9, rows, random);
        const Tensor<3> y({2, 9, columns}, layout), before = random_tensor<3>({2, 9, columns}, random);
        for (const bool add : {false, true}) {
          const float scale = add ? 0.7f : random.pick(std::vector<float>{1, 22.6f, 0});
          copy<3>(before.view, y.view);
          if (!add) for_each(y.view, [](float& e) { e = nan; });
          layer.forward(ids.view, y.view, {.scale = scale, .add = add});
          Index wrong = 0;
          for_each_position(y.view.shape, [&](const auto& at) {
            const float scaled = element(state, ids.view(at[0], at[1]), at[2]) * scale;
            const float expected = add ? before.view(at[0], at[1], at[2]) + scaled : scaled;
            wrong += bits_of(y.view(at[0], at[1], at[2])) == bits_of(expected) ? 0 : 1;
          });
          CHECK_MESSAGE(wrong == 0, rows, " x ", columns, ", ", layout.name, tied ? ", tied" : "",
                        add ? ", added" : "");
          CHECK(y.surroundings_untouched());
        }
      }
    }
  }
}

TEST_CASE("Embedding: ids with any strides, none, one for all") {
  const RandomState state = table_of(20, 6);
  const Embedding layer(state.dict, "embed.");
  const std::vector<Index> ids{3, 1, 4, 1, 5, 9, 2, 6};
  const Tensor<3> y({4, 2, 6});
  layer.forward({ids.data() + 7, {4, 2}, {-1, -4}}, y.view);
  CHECK(y.view(1, 1, 5) == element(state, 4, 5));
  layer.forward({ids.data(), {4, 2}, {0, 0}}, y.view);
  CHECK(y.view(3, 1, 0) == element(state, 3, 0));
  layer.forward({nullptr, {0, 2}}, View<float, 3>(nullptr, {0, 2, 6}));
  layer.forward({nullptr, {2, 0}}, View<float, 3>(nullptr, {2, 0, 6}));
}

TEST_CASE("Embedding: max_length and truncate; logits have the bits of gemm") {
  const RandomState state = table_of(20, 6);
  const Embedding layer(state.dict, "embed.", {.tied = true, .max_length = 4});
  Random random(3);
  const Ids ids(2, 7, 20, random);
  const Tensor<3> y({2, 4, 6}), logits({2, 4, 20}), expected({2, 4, 20});
  layer.forward(ids.view, y.view, {.truncate = true});
  for (Index b = 0; b < 2; ++b)
    for (Index i = 0; i < 4; ++i) CHECK(y.view(b, i, 5) == element(state, ids.view(b, i), 5));
  layer.forward(ids.view.slice(1, 0, 3), y.view.slice(1, 0, 3), {.truncate = true});
  layer.forward(ids.view.slice(1, 0, 4), y.view);
  layer.logits(y.view, logits.view);
  const AnyView<const float>& w = state.dict.at("embed.weight");
  gemm(View<const float, 2>(y.view.data, {8, 6}), View<const float, 2>(w.data, {6, 20}, {w.strides[1], w.strides[0]}),
       View<float, 2>(expected.view.data, {8, 20}));
  CHECK(different_bits(logits.view, expected.view) == 0);
}

TEST_CASE("Embedding: illegal calls") {
  const RandomState state = table_of(20, 6);
  const Embedding layer(state.dict, "embed.", {.max_length = 4});
  std::vector<Index> ids{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};
  const View<const Index, 2> good(ids.data(), {3, 4});  // one token less does not fit y, which the message names
  const Tensor<3> y({3, 4, 6}), longer({3, 5, 6});
  std::vector<Illegal> calls;
  const char* function = "Embedding::forward";
  add(calls, function, "y", wrong_outputs(y.view), [&](View<float, 3> to) { layer.forward(good, to); });
  add(calls, function, "", wrong_views(good), [&](View<const Index, 2> from) { layer.forward(from, y.view); });
  const auto at = [&](Index id, std::vector<std::string> words) {
    std::vector<Index> wrong = ids;
    wrong[6] = id;
    words.emplace_back(function);
    calls.push_back({"id", [=, &layer, &y] { layer.forward({wrong.data(), {3, 4}}, y.view); }, words});
  };
  at(20, {"ids[1, 2] is 20", "num_embeddings is 20"});
  at(-1, {"ids[1, 2] is -1"});
  at(huge, {std::to_string(huge)});
  const View<const Index, 2> five(ids.data(), {3, 5}, {1, 1});
  calls.push_back({"too long", [&] { layer.forward(five, longer.view); }, {function, "5", "max_length is 4"}});
  calls.push_back(
      {"too long, cut off", [&] { layer.forward(five, longer.view, {.truncate = true}); }, {function, "y", "4"}});
  auto* words = reinterpret_cast<float*>(ids.data());
  calls.push_back({"y over ids",
                   [=, &layer] { layer.forward({good.data, {1, 2}}, {words, {1, 2, 6}}); },
                   {function, "overlap", "ids"}});
  check_illegal(calls, [&] { return all_sentinels(y.view) && all_sentinels(longer.view); });
  CHECK(ids[5] == 9);
}

}  // namespace
}  // namespace headlane::test
