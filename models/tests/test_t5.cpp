// T5: the same bits however it is computed, cached decoding, files of all kinds, many callers.
#include "support/floating_point_state.hpp"
#include "support/scope.hpp"
#include "t5/decoder.hpp"
#include "t5_case.hpp"

#include <doctest/doctest.h>
#include <headlane/models/t5.hpp>
#include <headlane/runtime.hpp>

#include <algorithm>
#include <cstring>
#include <thread>

using namespace headlane;
using namespace headlane::models;
using namespace headlane::models::internal;
using namespace headlane::test;

namespace {

const std::vector<Index> output{0, 3, 60, 14, 3, 9, 22, 0, 1, 45, 8};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<T5Case> variants() {
  return {{}, {.decoder_layers = 3, .gated = true, .own_head = true}, {.heads = 5, .gated = true}};
}

}  // namespace

TEST_CASE("the same logits and tokens for every instruction set, number of threads and batch") {
  const auto inputs = t5_inputs();
  for (const T5Case& c : variants()) {
    const Folder folder;
    write_t5(folder, c);
    const T5 t5(folder.path());
    const std::vector<float> logits = t5.logits(inputs[3], output, 1), states = t5.encode(inputs[3], 1);
    std::vector<std::vector<std::vector<Index>>> alone;
    for (const Index beams : {1, 4})
      for (const auto& input : inputs)
        alone.push_back(t5.generate({&input, 1}, {.num_beams = beams, .max_length = 20, .num_threads = 1}));
    const std::string before(isa());
    for (const auto name : available_isas()) {
      set_isa(name);
      for (const int threads : {1, 2, 5}) {
        INFO(std::string(name), " ", threads);
        CHECK(same_bits(t5.logits(inputs[3], output, threads), logits));
        CHECK(same_bits(t5.encode(inputs[3], threads), states));
        std::size_t i = 0;
        for (const Index beams : {1, 4})
          for (const auto& one : t5.generate(inputs, {.num_beams = beams, .max_length = 20, .num_threads = threads}))
            CHECK(one == alone[i++].front());
      }
    }
    set_isa(before);
  }
}

TEST_CASE("a batch that is larger than the rows whose logits are held") {
  const Folder folder;
  write_t5(folder, {});
  const T5 t5(folder.path());
  std::vector<std::vector<Index>> inputs;
  for (int i = 0; i < 30; ++i)
    for (const auto& input : t5_inputs()) inputs.push_back(input);
  for (const Index beams : {1, 3}) {
    const auto few = t5.generate(t5_inputs(), {.num_beams = beams});
    const auto all = t5.generate(inputs, {.num_beams = beams});
    for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i] == few[i % few.size()]);
  }
}

TEST_CASE("types of elements and several files: the same numbers, the same bits") {
  for (T5Case c : variants()) {
    std::vector<float> expected;
    for (const char* dtype : {"F32", "F16", "BF16"})
      for (const int shards : {1, 3}) {
        c.dtype = dtype;
        c.shards = shards;
        const Folder folder;
        write_t5(folder, c);
        const auto logits = T5(folder.path()).logits(t5_inputs()[1], output);
        if (expected.empty()) expected = logits;
        INFO(dtype, " ", shards);
        CHECK(same_bits(logits, expected));
      }
  }
}

TEST_CASE("token by token, forked and reordered: the bits of all positions at once") {
  for (const T5Case& c : variants()) {
    const Folder folder;
    write_t5(folder, c);
    const T5 t5(folder.path());
    const T5Model model(Checkpoint(folder.path()), t5.config(), ModelOptions{});
    const auto inputs = t5_inputs();
    std::vector<Index> starts{0}, ids;
    for (const auto& input : inputs) {
      ids.insert(ids.end(), input.begin(), input.end());
      starts.push_back(std::ssize(ids));
    }
    std::vector<float> memory(ids.size() * static_cast<std::size_t>(c.d));
    const View<float, 3> states(memory.data(), {1, std::ssize(ids), c.d});
    model.encode(ids, starts, states, 0);
    const std::function<void()> nothing = [] {};
    T5Decoder decoder(model, t5.config(), states, starts, 0, nothing);
    // Which input a row belongs to, and its tokens.
    std::vector<std::size_t> input_of{0, 1, 2, 3, 4};
    std::vector<std::vector<Index>> tokens(5);
    Random random(2);
    for (int step = 0; step < 40; ++step) {
      std::vector<Index> next;
      for (auto& row : tokens) row.push_back(step == 0 ? 0 : random.integer(0, 60)), next.push_back(row.back());
      const auto hidden = decoder.step(next);
      CHECK(hidden.shape[0] == std::ssize(tokens));
      std::vector<float> logits(static_cast<std::size_t>(hidden.shape[0] * c.vocabulary));
      model.logits(hidden, {logits.data(), {hidden.shape[0], 1, c.vocabulary}}, 0);
      for (std::size_t row = 0; row < tokens.size(); ++row) {
        if (step % 5 != 0 && step < 30) continue;  // the reference is slow
        const auto all = t5.logits(inputs[input_of[row]], tokens[row]);
        const auto size = static_cast<std::size_t>(c.vocabulary);
        CHECK(std::memcmp(&all[all.size() - size], &logits[row * size], size * sizeof(float)) == 0);
      }
      std::vector<Index> parents;
      const auto rows = static_cast<Index>(tokens.size());
      for (Index i = 0; i < random.integer(1, 7); ++i) parents.push_back(random.integer(0, rows - 1));
      decoder.reorder(parents);
      const auto old_tokens = tokens;
      const auto old_inputs = input_of;
      tokens.clear();
      input_of.clear();
      for (const Index parent : parents) {
        tokens.push_back(old_tokens[static_cast<std::size_t>(parent)]);
        input_of.push_back(old_inputs[static_cast<std::size_t>(parent)]);
      }
    }
  }
}

TEST_CASE("an output layer that is the embedding is found so") {
  const Folder tied, untied;
  write_t5(tied, {});
  write_t5(untied, {.own_head = true, .more = R"(,"scale_decoder_outputs":true)"});
  CHECK_FALSE(
      same_bits(T5(tied.path()).logits(t5_inputs()[1], output), T5(untied.path()).logits(t5_inputs()[1], output)));
}

TEST_CASE("progress: told after each layer and step, and what it throws reaches the caller") {
  const Folder folder;
  write_t5(folder, {});
  const T5 t5(folder.path());
  const auto inputs = t5_inputs();
  std::vector<GenerateProgress> told;
  GenerateOptions options{.num_beams = 3,
                          .progress = [&](const GenerateProgress& progress) { told.push_back(progress); }};
  const auto outputs = t5.generate(inputs, options);
  REQUIRE(!told.empty());
  // Two layers of the encoder and one of the decoder, which reads memory first, before there is a
  // token; then one a step.
  const auto of_encoder = std::ranges::count(told, Index{0}, &GenerateProgress::tokens);
  CHECK(of_encoder == 4);
  CHECK(told[4].tokens == 5);
  for (const GenerateProgress& one : told) CHECK(one.sentences == 5);
  for (std::size_t i = 1; i < told.size(); ++i) {
    CHECK(told[i].tokens >= told[i - 1].tokens);
    CHECK(told[i].finished_sentences >= told[i - 1].finished_sentences);
  }
  CHECK(told.back().finished_sentences == 5);
  CHECK(told.back().sentences == 5);
  for (std::size_t last = 1; last <= told.size(); ++last) {  // wherever it is
    std::size_t calls = 0;
    options.progress = [&](const GenerateProgress&) {
      if (++calls == last) throw std::runtime_error("enough");
    };
    CHECK_THROWS_WITH(static_cast<void>(t5.generate(inputs, options)), "enough");
    CHECK(calls == last);
  }
  options.progress = {};
  CHECK(t5.generate(inputs, options) == outputs);
}

#if defined(HEADLANE_TEST_HAS_STATE)
TEST_CASE("the same logits and tokens whatever the floating-point state of the caller, which stays") {
  const auto inputs = t5_inputs();
  const Folder folder;
  write_t5(folder, T5Case{});
  std::vector<float> expected;
  std::vector<std::vector<Index>> expected_tokens;
  const State before = state();
  for (const State s : all_states) {
    set_state(s);
    const T5 t5(folder.path());
    const std::vector<float> logits = t5.logits(inputs[3], output, 2);
    const auto tokens = t5.generate(inputs, {.num_beams = 4, .max_length = 12});
    const State after = state();
    set_state(before);
    CHECK(after == s);
    if (expected.empty()) expected = logits, expected_tokens = tokens;
    CHECK_MESSAGE(same_bits(logits, expected), "state ", s);
    CHECK_MESSAGE(tokens == expected_tokens, "state ", s);
  }
}
#endif

TEST_CASE("several threads use one model") {
  const Folder folder;
  write_t5(folder, {.gated = true, .own_head = true});
  const T5 t5(folder.path());
  const auto inputs = t5_inputs();
  const auto expected = t5.generate(inputs, {.num_beams = 2});
  std::vector<int> right(4);
  std::vector<std::thread> threads;
  for (int& flag : right)
    threads.emplace_back([&] { flag = t5.generate(inputs, {.num_beams = 2}) == expected ? 1 : 0; });
  for (auto& thread : threads) thread.join();
  for (const int flag : right) CHECK(flag == 1);
}
