// T5 and Bert on the ranks of a team: the bits of one process.
#include "bert_calls.hpp"
#include "support/lone_team.hpp"
#include "support/team_case.hpp"
#include "t5_case.hpp"

#include <doctest/doctest.h>
#include <headlane/models/checkpoint.hpp>
#include <headlane/models/t5.hpp>

#include <algorithm>
#include <cmath>

namespace headlane::test {
namespace {

using models::T5;

/// Panels and heads that few teams divide.
std::vector<T5Case> t5_cases() {
  return {
      {.vocabulary = 203, .d = 72, .kv = 9, .heads = 5, .ff = 150, .decoder_layers = 2},
      {.vocabulary = 1100, .d = 40, .kv = 16, .heads = 3, .ff = 70, .gated = true, .own_head = true, .dtype = "BF16"},
      {.vocabulary = 97, .d = 130, .kv = 24, .heads = 8, .ff = 33, .layers = 1, .dtype = "F16", .shards = 3}};
}

/// Everything that a model computes.
std::vector<float> results_of(const T5& model, int threads, Index vocabulary) {
  const std::vector<std::vector<Index>> inputs = t5_inputs(vocabulary);
  std::vector<float> results = model.encode(inputs[3], threads);
  const std::vector<float> logits = model.logits(inputs[4], inputs[1], threads);
  results.insert(results.end(), logits.begin(), logits.end());
  for (const Index beams : {1, 4}) {
    models::GenerateOptions options{.num_beams = beams, .max_length = 16, .no_repeat_ngram_size = 3};
    options.num_threads = threads;
    for (const std::vector<Index>& output : model.generate(inputs, options)) {
      for (const Index token : output) results.push_back(static_cast<float>(token));
      results.push_back(-1);
    }
  }
  return results;
}

TEST_CASE("T5 of a team: encoder, logits, greedy and beam search") {
  TeamComparison all;
  for (const T5Case& c : t5_cases()) {
    const Folder folder;
    write_t5(folder, c);
    for (const auto& [weights, activations] :
         {std::pair{DType::float32, DType::float32}, {DType::bfloat16, DType::bfloat16}, {DType::int8, DType::int8}}) {
      const bool plain = weights == DType::float32;
      const std::array<int, 2> few{3, 8};
      all.add(
          "T5 of " + c.dtype + " as " + name_of(weights),
          [&](Team* team, int threads) {
            const T5 model(folder.path(), {.weights = weights, .activations = activations, .team = team});
            return results_of(model, threads, c.vocabulary);
          },
          plain ? std::span<const int>(team_sizes) : few);
    }
  }
  all.finish(3 * (19 + 11 + 11));
}

TEST_CASE("T5 of a team: an output layer that differs in one row, which one rank has") {
  TeamComparison all;
  for (const Index different : {0, 131, 202}) {
    const T5Case c = t5_cases()[0];
    const Folder folder;
    write_t5(folder, c);
    const models::Checkpoint checkpoint(folder.path());
    FileBuilder file;
    for (const std::string& name : checkpoint.names()) {
      const models::Tensor tensor = checkpoint.load(name);
      const std::vector<Index> shape = checkpoint.shape(name);
      Index count = 1;
      for (const Index n : shape) count *= n;
      std::vector<float> values(tensor.view().data, tensor.view().data + count);
      file.add(name, "F32", shape, bytes_of(values));
      if (name != "shared.weight") continue;
      values[static_cast<std::size_t>(different * c.d + 5)] += 0.5f;
      file.add("lm_head.weight", "F32", shape, bytes_of(values));
    }
    folder.write("model.safetensors", file.file());
    all.add("row " + std::to_string(different), [&](Team* team, int) {
      return T5(folder.path(), {.team = team}).logits(t5_inputs(c.vocabulary)[3], t5_inputs(c.vocabulary)[4]);
    });
  }
  all.finish(57);
}

TEST_CASE("Bert of a team: states and embeddings") {
  TeamComparison all;
  for (const Index heads : {3, 8}) {
    BertCase given;
    given.vocab = 211, given.d = heads * 13, given.heads = heads, given.inner = 100;
    given.make(1);
    const Loaded loaded(given);
    const Sentences ids = given.sentences({1, 7, 36, 2, 17}, 7);
    const Sentences types = [&] {
      Sentences made = ids;
      for (auto& sentence : made)
        for (Index& id : sentence) id %= 2;
      return made;
    }();
    for (const auto& [weights, activations] :
         {std::pair{DType::float32, DType::float32}, {DType::float16, DType::float32}, {DType::int8, DType::int8}})
      all.add(std::string("Bert as ") + name_of(weights), [&](Team* team, int threads) {
        const Bert bert(loaded.folder.path(), {.weights = weights, .activations = activations, .team = team});
        std::vector<float> results = encoded(bert, ids, {.token_type_ids = types, .num_threads = threads});
        for (const Pooling pooling : all_poolings) {
          const std::vector<float> rows = embedded(bert, ids, {.pooling = pooling, .num_threads = threads});
          results.insert(results.end(), rows.begin(), rows.end());
        }
        return results;
      });
  }
  all.finish(2 * 3 * 19);
}

/// The checkpoint of a Bert with its linear weights as compressed-tensors stores them: integers of
/// 8 bits, a scale for each row.
void write_quantised(const Folder& folder, const BertCase& given) {
  FileBuilder file;
  for (const auto& [name, weight] : given.weights) {
    const bool linear = name.ends_with(".weight") && name.starts_with("encoder.") && !name.ends_with("Norm.weight");
    if (!linear) {
      file.add(name, "F32", weight.shape, bytes_of(weight.values));
      continue;
    }
    const auto in = static_cast<std::size_t>(weight.shape[1]);
    std::vector<float> scales;
    std::vector<std::int8_t> numbers;
    for (std::size_t row = 0; row < weight.values.size(); row += in) {
      float most = 0;
      for (std::size_t j = 0; j < in; ++j) most = std::max(most, std::abs(weight.values[row + j]));
      scales.push_back(most / 127);
      for (std::size_t j = 0; j < in; ++j)
        numbers.push_back(static_cast<std::int8_t>(std::lround(weight.values[row + j] / scales.back())));
    }
    file.add(name, "I8", weight.shape, bytes_of(numbers));
    file.add(name + "_scale", "F32", std::vector<Index>{weight.shape[0], 1}, bytes_of(scales));
  }
  folder.write("model.safetensors", file.file());
  folder.write("config.json", given.config());
}

TEST_CASE("Bert of a team: weights that are quantised") {
  TeamComparison all;
  BertCase given;
  given.vocab = 211, given.d = 130, given.heads = 5, given.inner = 100;
  given.make(1);
  const Folder folder;
  write_quantised(folder, given);
  const Sentences ids = given.sentences({1, 7, 36, 2, 17}, 7);
  for (const DType activations : {DType::float32, DType::int8})
    all.add("quantised", [&](Team* team, int threads) {
      const Bert bert(folder.path(), {.weights = DType::int8, .activations = activations, .team = team});
      return encoded(bert, ids, {.num_threads = threads});
    });
  all.finish(38);
}

TEST_CASE("a call agrees once, and a layer gathers four times") {
  const Folder folder;
  write_t5(folder, {.layers = 3});
  std::array<std::vector<Index>, 2> counts;
  (void)run_ranks(2, [&](ThreadTeam& team) {
    std::vector<Index>& mine = counts[static_cast<std::size_t>(team.rank())];
    const auto count = [&] { mine.insert(mine.end(), {team.agreed, team.gathered}); };
    const T5 model(folder.path(), {.team = &team});
    count();
    (void)model.encode(t5_inputs()[3]);
    count();
    (void)model.logits(t5_inputs()[3], t5_inputs()[1]);
    count();
  });
  // The lookup, and four of each encoder layer; then the same again, the lookup and six of the
  // decoder layer, and the logits.
  for (const std::vector<Index>& mine : counts) CHECK(mine == std::vector<Index>{1, 0, 2, 13, 3, 13 + 13 + 8});
}

TEST_CASE("a call that an exception ends is abandoned, unless progress throws") {
  const Folder folder;
  write_t5(folder, {});
  BertCase given;
  given.make(1);
  const Loaded loaded(given);
  LoneTeam team;
  const T5 t5(folder.path(), {.team = &team});
  const Bert bert(loaded.folder.path(), {.team = &team});
  const Sentences ids = given.sentences({3, 5}, 7), inputs = t5_inputs();
  const auto check = [&](const auto& call) {
    team.fails = true;
    CHECK_THROWS_AS(call(), std::runtime_error);
    CHECK(team.is_abandoned);
    team.fails = team.is_abandoned = false;
  };
  check([&] { (void)t5.generate(inputs, {}); });
  check([&] { (void)t5.encode(inputs[3]); });
  check([&] { (void)t5.logits(inputs[3], inputs[1]); });
  check([&] { (void)encoded(bert, ids, {}); });
  check([&] { (void)embedded(bert, ids, {}); });

  const auto stop = [](const auto&) { throw std::runtime_error("enough"); };
  CHECK_THROWS_WITH((void)t5.generate(inputs, {.progress = stop}), "enough");
  CHECK_THROWS_WITH((void)encoded(bert, ids, {.progress = stop}), "enough");
  CHECK_FALSE(team.is_abandoned);
}

}  // namespace
}  // namespace headlane::test
