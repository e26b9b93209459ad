// Bert against a reference in double; its bits depend only on the sentence.
#include "bert_calls.hpp"
#include "support/allocation_count.hpp"
#include "support/floating_point_state.hpp"
#include "support/scope.hpp"

#include <cmath>
#include <cstdio>
#include <latch>
#include <thread>

namespace headlane::test {
namespace {

std::vector<BertCase> cases() {
  std::vector<BertCase> all(6);
  all[1].activation = "gelu_new";
  all[2].activation = "relu";
  all[3].activation = "silu";
  all[3].types = 3;
  all[4].heads = 1;
  all[4].layers = 1;
  all[4].eps = 0.1;
  all[5].d = 32;
  all[5].heads = 8;
  all[5].inner = 70;
  for (std::size_t i = 0; i < all.size(); ++i) all[i].make(i + 1);
  return all;
}

const std::vector<Index> lengths{1, 7, 36, 2, 17, 16, 3, 33};

}  // namespace

TEST_CASE("states and embeddings of all sentences") {
  for (const BertCase& given : cases()) {
    CAPTURE(given.activation);
    const Loaded loaded(given);
    const Sentences ids = given.sentences(lengths, 7);
    Sentences types = given.sentences(lengths, 8);
    for (auto& sentence : types)
      for (Index& type : sentence) type %= given.types;
    const auto d = static_cast<std::size_t>(given.d);
    for (const bool typed : {false, true}) {
      const Sentences none;
      const Sentences& used = typed ? types : none;
      const std::vector<float> states = encoded(*loaded.bert, ids, {.token_type_ids = used});
      std::size_t row = 0;
      for (std::size_t s = 0; s < ids.size(); ++s) {
        const Rows wanted = given.states(ids[s], typed ? types[s] : std::vector<Index>());
        for (const auto& of_token : wanted) check_close(std::span(states).subspan(d * row++, d), of_token, s);
        for (const Pooling pooling : all_poolings) {
          for (const bool normalize : {false, true}) {
            const std::vector<float> rows =
                embedded(*loaded.bert, ids, {.pooling = pooling, .normalize = normalize, .token_type_ids = used});
            check_close(std::span(rows).subspan(d * s, d), BertCase::pooled(wanted, pooling, normalize), s);
          }
        }
      }
    }
  }
  std::printf("Bert: largest error %.2e\n", largest_error);
}

TEST_CASE("the same bits alone, among others, for any threads and instruction set") {
  BertCase given;
  given.make(2);
  const Loaded loaded(given);
  const Bert& bert = *loaded.bert;
  std::vector<Index> many;  // more than a round of the model takes
  Random random(5);
  for (int i = 0; i < 400; ++i) many.push_back(random.integer(1, 36));
  const Sentences ids = given.sentences(many, 6);
  const std::vector<float> all = embedded(bert, ids), states = encoded(bert, ids);
  Index row = 0;
  for (std::size_t s = 0; s < ids.size(); ++s) {
    const Sentences one{ids[s]};
    CHECK(same_bits(embedded(bert, one),
                    {all.begin() + static_cast<Index>(s) * 24, all.begin() + static_cast<Index>(s + 1) * 24}));
    const auto length = static_cast<Index>(ids[s].size());
    CHECK(same_bits(encoded(bert, one), {states.begin() + row * 24, states.begin() + (row + length) * 24}));
    row += length;
  }
  for (const int threads : {1, 2, 3}) {
    CHECK(same_bits(embedded(bert, ids, {.num_threads = threads}), all));
    CHECK(same_bits(encoded(bert, ids, {.num_threads = threads}), states));
  }
  for (const std::string_view name : available_isas()) {
    const IsaScope scope(name);
    CHECK_MESSAGE(same_bits(embedded(bert, ids), all), name);
  }
}

#if defined(HEADLANE_TEST_HAS_STATE)
TEST_CASE("the same bits whatever the floating-point state of the caller, which stays") {
  BertCase given;
  given.make(2);
  const Sentences ids = given.sentences(lengths, 6);
  std::vector<float> expected;
  const State before = state();
  for (const State s : all_states) {
    set_state(s);
    const Loaded loaded(given);
    const std::vector<float> actual = embedded(*loaded.bert, ids, {.normalize = true, .num_threads = 2});
    const State after = state();
    set_state(before);
    CHECK(after == s);
    if (expected.empty()) expected = actual;
    CHECK_MESSAGE(same_bits(actual, expected), "state ", s);
  }
}
#endif

TEST_CASE("many threads at once") {
  BertCase given;
  given.make(2);
  const Loaded loaded(given);
  const Sentences ids = given.sentences(lengths, 6), others = given.sentences({5, 30, 12}, 9);
  const std::vector<float> wanted = embedded(*loaded.bert, ids), wanted_of_others = embedded(*loaded.bert, others);
  constexpr int count = 4;
  std::atomic<int> wrong{0};
  std::latch all_there{count};
  {
    std::vector<std::thread> threads;
    for (int t = 0; t < count; ++t)
      threads.emplace_back([&, t] {
        all_there.arrive_and_wait();  // a short thread would be over before the next one begins
        for (int i = 0; i < 150; ++i) {
          const bool first = (i + t) % 2 == 0;
          const auto got = embedded(*loaded.bert, first ? ids : others, {.num_threads = 1 + i % 2});
          if (!same_bits(got, first ? wanted : wanted_of_others)) ++wrong;
        }
      });
    for (std::thread& thread : threads) thread.join();
  }
  CHECK(wrong == 0);
}

TEST_CASE("names with the prefix, and of the first BERT") {
  BertCase given;
  given.make(3);
  const Sentences ids = given.sentences(lengths, 6);
  const std::vector<float> wanted = embedded(*Loaded(given).bert, ids);
  CHECK(same_bits(embedded(*Loaded(given, "bert.").bert, ids), wanted));
  CHECK(same_bits(embedded(*Loaded(given, "bert.", true).bert, ids), wanted));
}

TEST_CASE("strides of the result") {
  BertCase given;
  given.make(3);
  const Loaded loaded(given);
  const Sentences ids = given.sentences({4, 6, 1}, 6);
  const std::vector<float> wanted = embedded(*loaded.bert, ids);
  for (const Layout& layout : layouts()) {
    CAPTURE(layout.name);
    const Tensor<2> out({3, 24}, layout);
    loaded.bert->embed(ids, out.view);
    CHECK(same_bits(elements(out.view), wanted));
    CHECK(out.surroundings_untouched());
  }
}

TEST_CASE("what config.json need not say") {
  BertCase given;
  given.make(3);
  const Loaded loaded(given);
  const Sentences ids = given.sentences(lengths, 6);
  const std::vector<float> wanted = embedded(*loaded.bert, ids);
  loaded.folder.write("config.json", R"({"model_type": "bert", "vocab_size": 50, "hidden_size": 24,
    "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40, "max_position_embeddings": 36})");
  const Bert bert(loaded.folder.path());
  CHECK(same_bits(embedded(bert, ids), wanted));
  const models::BertConfig& config = bert.config();
  CHECK(config.type_vocab_size == 2);
  CHECK(config.hidden_act == Activation::gelu);
  CHECK(config.layer_norm_eps == 1e-12f);
  CHECK(config.pooling == Poolings{Pooling::mean});
  CHECK_FALSE(config.normalize);
  CHECK(config.max_seq_length == 36);
  CHECK(config.truncate_dim == 0);
  CHECK(config.include_prompt);
  CHECK(config.prompts.size() == 2);
  CHECK(config.prompts.contains("query"));
  CHECK(config.prompts.contains("document"));
  CHECK(config.default_prompt_name.empty());
  CHECK_FALSE(config.do_lower_case);
}

TEST_CASE("activations by their names") {
  BertCase given;
  given.make(3);
  const Folder folder;
  const std::pair<const char*, Activation> names[]{
      {"gelu", Activation::gelu},           {"gelu_new", Activation::gelu_tanh},
      {"gelu_fast", Activation::gelu_tanh}, {"gelu_pytorch_tanh", Activation::gelu_tanh},
      {"relu", Activation::relu},           {"silu", Activation::silu},
      {"swish", Activation::silu}};
  for (const auto& [name, activation] : names) {
    given.activation = name;
    given.write(folder);
    CHECK(Bert(folder.path()).config().hidden_act == activation);
  }
}

TEST_CASE("a sentence of more tokens than a round of the model takes") {
  BertCase given;
  given.d = 8;
  given.heads = 1;
  given.inner = 8;
  given.layers = 1;
  given.positions = 4200;
  given.make(4);
  const Loaded loaded(given);
  const Sentences ids = given.sentences({4200, 3, 4100, 5}, 6);
  const std::vector<float> all = embedded(*loaded.bert, ids);
  for (std::size_t s = 0; s < ids.size(); ++s) {
    const auto at = all.begin() + static_cast<Index>(s) * 8;
    CHECK(same_bits(embedded(*loaded.bert, Sentences{ids[s]}), {at, at + 8}));
  }
}

TEST_CASE("heads of 512 are the largest") {
  BertCase given;
  given.d = 512;
  given.heads = 1;
  given.layers = 1;
  given.make(4);
  const Loaded loaded(given);
  const Sentences ids = given.sentences({3}, 6);
  check_close(embedded(*loaded.bert, ids), BertCase::pooled(given.states(ids[0]), Pooling::mean, false), 0);
}

TEST_CASE("truncation") {
  BertCase given;
  given.make(3);
  const Loaded loaded(given);
  loaded.folder.write("tokenizer_config.json", R"({"model_max_length": 10})");
  const Bert shorter(loaded.folder.path());
  CHECK(loaded.bert->config().max_seq_length == 36);
  CHECK(shorter.config().max_seq_length == 10);
  const Sentences ids = given.sentences({50, 8, 36}, 6);
  Sentences types = ids, cut = ids, cut_types;
  for (auto& sentence : types)
    for (Index& type : sentence) type %= 2;
  for (auto& sentence : cut) sentence.resize(std::min<std::size_t>(sentence.size(), 10));
  cut_types = types;
  for (auto& sentence : cut_types) sentence.resize(std::min<std::size_t>(sentence.size(), 10));
  CHECK(same_bits(embedded(shorter, ids, {.token_type_ids = types, .truncate = true}),
                  embedded(shorter, cut, {.token_type_ids = cut_types})));
  CHECK(same_bits(encoded(shorter, ids, {.token_type_ids = types, .truncate = true}),
                  encoded(shorter, cut, {.token_type_ids = cut_types})));
  // Without truncation the model's own limit counts.
  const Sentences longest = given.sentences({36}, 6);
  CHECK(same_bits(embedded(shorter, longest), embedded(*loaded.bert, longest)));
}

TEST_CASE("progress: told after each layer of each round, and what it throws reaches the caller") {
  BertCase given;
  given.make(3);
  const Loaded loaded(given);
  const Sentences ids = given.sentences(std::vector<Index>(300, 36), 6);  // three rounds of 113 sentences
  const std::vector<float> expected = embedded(*loaded.bert, ids);
  std::vector<Index> told;
  models::EmbedOptions options{.progress = [&](const models::EncodeProgress& progress) {
    CHECK(progress.sentences == 300);
    told.push_back(progress.finished_sentences);
  }};
  CHECK(same_bits(embedded(*loaded.bert, ids, options), expected));
  const auto layers = static_cast<std::size_t>(loaded.bert->config().num_hidden_layers);
  std::vector<Index> wanted;
  for (const Index finished : {0, 113, 226}) wanted.insert(wanted.end(), layers, finished);
  CHECK(told == wanted);
  const Index width = loaded.bert->config().hidden_size;
  for (std::size_t last = 1; last <= wanted.size(); ++last) {
    std::size_t calls = 0;
    const auto stop = [&](const models::EncodeProgress&) {
      if (++calls == last) throw std::runtime_error("enough");
    };
    std::vector<float> out(300 * static_cast<std::size_t>(width), nan);
    CHECK_THROWS_WITH(loaded.bert->embed(ids, {out.data(), {300, width}}, {.progress = stop}), "enough");
    const auto done = static_cast<std::size_t>(wanted[last - 1] * width);
    CHECK(std::memcmp(out.data(), expected.data(), done * sizeof(float)) == 0);
    CHECK(std::all_of(out.begin() + static_cast<std::ptrdiff_t>(done), out.end(), [](float y) { return y != y; }));
    CHECK_THROWS_WITH(loaded.bert->encode(ids, {nullptr, {0, width}}, {.progress = stop}), doctest::Contains("out"));
  }
}

#if !defined(HEADLANE_TEST_SANITIZED)
TEST_CASE("nothing is allocated once warm") {
  BertCase given;
  given.make(3);
  const Loaded loaded(given);
  const Sentences ids = given.sentences(lengths, 6);
  std::vector<float> out(ids.size() * 24);
  const View<float, 2> y(out.data(), {static_cast<Index>(ids.size()), 24});
  CHECK(allocates_nothing_once_warm([&] { loaded.bert->embed(ids, y, {.normalize = true}); }));
}
#endif

}  // namespace headlane::test
