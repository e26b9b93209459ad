// Errors of Bert: folders that it refuses and calls that it refuses, with their messages.
#include "bert_calls.hpp"
#include "support/illegal.hpp"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace headlane::test {
namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE_MESSAGE(at != std::string::npos, from);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("settings that make no BERT") {
  BertCase given;
  given.make(1);
  const Folder folder;
  given.write(folder);
  const std::string good = given.config();
  struct Wrong {
    std::string from, to;
    std::vector<std::string> words;
  };
  const std::vector<Wrong> wrong{
      {R"("bert")", R"("roberta")", {"'model_type'", "'roberta'", "'bert'"}},
      {R"("bert")", R"("distilbert")", {"'model_type'", "'distilbert'"}},
      {R"("model_type": "bert", )", "", {"'model_type'", "missing"}},
      {R"("model_type")", R"("is_decoder": true, "model_type")", {"'is_decoder'", "true"}},
      {R"("model_type")", R"("is_causal": true, "model_type")", {"'is_causal'", "true"}},
      {R"("model_type")",
       R"("position_embedding_type": "relative_key", "model_type")",
       {"'position_embedding_type'", "'relative_key'", "'absolute'"}},
      {R"("bert")", R"("albert")", {"'model_type'", "'albert'", "'bert'"}},
      {R"("bert")", R"("roberta")", {"'model_type'", "'roberta'", "'bert'"}},
      {R"("gelu")", R"("mish")", {"'hidden_act'", "'mish'", "gelu_new"}},
      {R"("vocab_size": 50)", R"("vocab_size": 0)", {"'vocab_size'", "0"}},
      {R"("vocab_size": 50)", R"("vocab_size": 51)", {"word_embeddings", "51", "50"}},
      {R"("vocab_size": 50)", R"("vocab_size": "50")", {"'vocab_size'", "integer"}},
      {R"("hidden_size": 24, )", "", {"'hidden_size'", "missing"}},
      {R"("hidden_size": 24)", R"("hidden_size": -24)", {"'hidden_size'", "-24"}},
      {R"("num_attention_heads": 3)", R"("num_attention_heads": 5)", {"'num_attention_heads'", "5", "24"}},
      {R"("num_attention_heads": 3)", R"("num_attention_heads": 0)", {"'num_attention_heads'", "0"}},
      {R"("num_hidden_layers": 2)", R"("num_hidden_layers": 3)", {"encoder.layer.2."}},
      {R"("intermediate_size": 40)", R"("intermediate_size": 41)", {"intermediate.dense", "41", "40"}},
      {R"("max_position_embeddings": 36)", R"("max_position_embeddings": 37)", {"position_embeddings", "37"}},
      {R"("type_vocab_size": 2)", R"("type_vocab_size": 1)", {"token_type_embeddings", "2", "1"}},
      {R"(1e-12)", R"(-1)", {"'layer_norm_eps'", "-1"}},
  };
  for (const Wrong& one : wrong) {
    folder.write("config.json", replaced(good, one.from, one.to));
    check_says(message_of([&] { const Bert bert(folder.path()); }), one.words);
  }
  // Heads of more than 512.
  BertCase wide;
  wide.d = 520;
  wide.heads = 1;
  folder.write("config.json", wide.config());
  check_says(message_of([&] { const Bert bert(folder.path()); }),
             {"config.json", "'num_attention_heads'", "520", "512"});
  folder.remove("config.json");
  check_says(message_of([&] { const Bert bert(folder.path()); }), {"config.json"});
}

TEST_CASE("every tensor is needed") {
  BertCase given;
  given.layers = 1;
  given.make(1);
  const Folder folder;
  for (const auto& [name, weight] : given.weights) {
    given.write(folder, "", name);
    check_says(message_of([&] { const Bert bert(folder.path()); }), {name});
  }
}

namespace {

const std::string transformer = R"({"type": "sentence_transformers.models.Transformer", "path": ""})",
                  pooling = R"({"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"})",
                  normalize = R"({"type": "sentence_transformers.models.Normalize", "path": "2_Normalize"})",
                  dense = R"({"type": "sentence_transformers.models.Dense", "path": "2_Dense"})";
const std::string supported = "[" + transformer + "," + pooling + "]";

/// A folder of sentence-transformers with mean pooling, except for modules.json.
struct SentenceFolder {
  SentenceFolder() {
    given.make(1);
    given.write(folder);
    std::filesystem::create_directory(folder.path() / "1_Pooling");
    write_pooling(R"({"pooling_mode_mean_tokens": true})");
  }
  void write_pooling(const std::string& config) const { folder.write("1_Pooling/config.json", config); }
  void check_refused(const std::string& modules, const std::vector<std::string>& words) const {
    folder.write("modules.json", modules);
    check_says(message_of([&] { const Bert bert(folder.path()); }), words);
  }

  BertCase given;
  Folder folder;
};

}  // namespace

TEST_CASE("modules of sentence-transformers that are not supported") {
  const SentenceFolder given;
  const auto with_path = [](const char* path) {
    return "[" + replaced(transformer, R"("path": "")", R"("path": ")" + std::string(path) + R"(")") + "]";
  };
  given.check_refused("[" + transformer + "," + pooling + "," + dense + "]", {"modules.json", "module 2", "Dense"});
  given.check_refused("[" + pooling + "," + transformer + "]", {"modules.json", "module 0", "Pooling"});
  given.check_refused("[" + transformer + "," + pooling + "," + normalize + "," + normalize + "]",
                      {"modules.json", "module 3"});
  given.check_refused("[]", {"modules.json", "no modules"});
  given.check_refused("{}", {"modules.json", "list"});
  given.check_refused("[", {"modules.json"});
  given.check_refused("[1]", {"modules.json", "module 0", "object"});
  given.check_refused(R"([{"type": 1}])", {"modules.json", "module 0", "'type'"});
  given.check_refused(with_path("../x"), {"modules.json", "'../x'"});
  given.check_refused(with_path("/etc"), {"modules.json", "'/etc'"});
  given.check_refused("[" + replaced(transformer, "sentence_transformers.models", "mine") + "]",
                      {"modules.json", "module 0", "mine"});
}

TEST_CASE("settings of pooling that are not supported") {
  const SentenceFolder given;
  struct Wrong {
    std::string text;
    std::vector<std::string> words;
  };
  const std::vector<Wrong> wrong{
      {R"({"pooling_mode": "median"})", {"1_Pooling", "config.json", "'pooling_mode'", "'median'", "lasttoken"}},
      {R"({"pooling_mode": "none"})", {"1_Pooling", "'none'"}},
      {R"({"pooling_mode": []})", {"1_Pooling", "0 kinds"}},
      {R"({"pooling_mode": ["mean", "x"]})", {"1_Pooling", "'x'"}},
      {R"({"temperature": 2})", {"1_Pooling", "'temperature'"}},
      {R"({"pooling_mode_mean_tokens": 1})", {"1_Pooling", "'pooling_mode_mean_tokens'"}}};
  for (const Wrong& one : wrong) {
    given.write_pooling(one.text);
    given.check_refused(supported, one.words);
  }
}

TEST_CASE("the limit on tokens: of the sentences, else of the tokenizer, else of the model") {
  const SentenceFolder given;
  const Folder& folder = given.folder;
  const struct {
    const char *sentences, *tokenizer;
    Index wanted;
  } limits[]{{R"({"max_seq_length": 0})", "{}", 0},
             {"{}", R"({"model_max_length": 0.5})", 0},
             {"{}", "{}", 36},
             {R"({"max_seq_length": null})", R"({"model_max_length": null})", 36},
             {R"({"max_seq_length": 1000})", R"({"model_max_length": 5})", 36},
             {R"({"max_seq_length": null})", R"({"model_max_length": 1e30})", 36},
             {R"({"max_seq_length": null})", R"({"model_max_length": 37})", 36},
             {R"({"max_seq_length": null})", R"({"model_max_length": 35})", 35},
             {R"({"max_seq_length": 1})", R"({"model_max_length": 35})", 1},
             {R"({"do_lower_case": false})", R"({"max_len": 7})", 7},
             {"{}", R"({"model_max_length": 1, "max_len": 7})", 1}};
  folder.write("modules.json", supported);
  for (const auto& limit : limits) {
    INFO(limit.sentences, " ", limit.tokenizer);
    folder.write("sentence_bert_config.json", limit.sentences);
    folder.write("tokenizer_config.json", limit.tokenizer);
    if (limit.wanted > 0) CHECK(Bert(folder.path()).config().max_seq_length == limit.wanted);
    else check_says(message_of([&] { const Bert bert(folder.path()); }), {"_config.json", "_length' is 0"});
  }
}

TEST_CASE("without a pooling module, the result is a row per token") {
  const SentenceFolder given;
  given.folder.write("modules.json", "[" + transformer + "]");
  CHECK(Bert(given.folder.path()).config().pooling == std::vector{Pooling::none});
}

namespace {

/// Calls of a model that must be refused, and the results that they must leave alone.
struct RefusedCalls {
  explicit RefusedCalls(const Bert& model, Sentences sentences) : bert(model), good(std::move(sentences)) {}

  void add(const std::string& what, const std::function<void()>& call, const std::vector<std::string>& words) {
    calls.push_back({what, call, words});
  }
  void add_ids(const std::string& what, const Sentences& ids, std::vector<std::string> words) {
    words.emplace_back("embed");
    add(what, [this, ids] { bert.embed(ids, out.view); }, words);
    words.back() = "encode";
    add(what, [this, ids] { bert.encode(ids, states.view); }, words);
  }
  void add_types(const std::string& what, const Sentences& types, std::vector<std::string> words) {
    words.emplace_back("token_type_ids");
    add(what, [this, types] { bert.embed(good, out.view, {.token_type_ids = types}); }, words);
    add(what, [this, types] { bert.encode(good, states.view, {.token_type_ids = types}); }, words);
  }
  void add_out(const std::string& what, const View<float, 2>& view, std::vector<std::string> words) {
    words.emplace_back("out");
    add(what, [this, view] { bert.embed(good, view); }, words);
  }
  void check() const {
    check_illegal(calls, [&] { return all_sentinels(out.view) && all_sentinels(states.view); });
  }

  const Bert& bert;
  Sentences good;
  Tensor<2> out{{3, 24}}, states{{15, 24}};
  std::vector<Illegal> calls;
};

}  // namespace

TEST_CASE("refused ids and types leave the result alone") {
  BertCase given;
  given.make(1);
  const Loaded loaded(given);
  RefusedCalls refused(*loaded.bert, given.sentences({4, 9, 2}, 6));
  const auto with = [&](std::size_t s, std::size_t i, Index id) {
    Sentences ids = refused.good;
    ids[s][i] = id;
    return ids;
  };
  Sentences empty = refused.good, longer = refused.good;
  empty[1].clear();
  longer[0].assign(37, 1);
  refused.add_ids("no sentences", {}, {"no sentences"});
  refused.add_ids("a sentence without tokens", empty, {"ids[1]", "empty"});
  refused.add_ids("an id too large", with(1, 8, 50), {"ids[1][8]", "50", "49"});
  refused.add_ids("an id below 0", with(2, 1, -1), {"ids[2][1]", "-1", "49"});
  refused.add_ids("a huge id", with(0, 0, huge), {"ids[0][0]", std::to_string(huge)});
  refused.add_ids("too many tokens", longer, {"ids[0]", "37", "36", "truncate"});
  refused.add_types("types for fewer sentences", {{0, 0, 0, 0}}, {"1", "3"});
  refused.add_types("types for fewer tokens", {{0, 0, 0, 0}, {1, 1}, {0, 0}}, {"[1]", "2", "9"});
  refused.add_types("a type too large", {{0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0, 2}, {0, 0}}, {"[1][8]", "2", "1"});
  refused.check();
}

TEST_CASE("refused outputs and numbers leave the result alone") {
  BertCase given;
  given.make(1);
  const Loaded loaded(given);
  const Bert& bert = *loaded.bert;
  RefusedCalls refused(bert, given.sentences({4, 9, 2}, 6));
  const Sentences& good = refused.good;
  const View<float, 2>&out = refused.out.view, &states = refused.states.view;
  refused.add_out("fewer rows", with_size(out, 0, 2), {"[2, 24]", "[3, 24]"});
  refused.add_out("more columns", with_size(out, 1, 25), {"[3, 25]", "[3, 24]"});
  refused.add_out("null", {nullptr, {3, 24}}, {"null"});
  refused.add_out("misaligned",
                  {reinterpret_cast<float*>(reinterpret_cast<std::byte*>(out.data) + 1), out.shape, out.strides},
                  {"out is misaligned"});
  refused.add_out("equal rows", with_stride(out, 0, 0), {"overlap"});
  refused.add_out("equal columns", with_stride(out, 1, 0), {"overlap"});
  refused.add_out("rows that overlap", with_stride(out, 0, 23), {"overlap"});
  refused.add("a row per token instead of sentence", [&] { bert.embed(good, states); }, {"[15, 24]", "[3, 24]"});
  refused.add("a row per sentence instead of token", [&] { bert.embed(good, out, {.pooling = Pooling::none}); },
              {"[3, 24]", "[15, 24]"});
  refused.add("a prompt below 0", [&] { bert.embed(good, out, {.prompt_tokens = -1}); }, {"prompt_tokens", "-1"});
  refused.add("threads below 0", [&] { bert.embed(good, out, {.num_threads = -1}); }, {"num_threads", "-1"});
  refused.check();
}

TEST_CASE("a prompt that leaves nothing to pool is refused") {
  const SentenceFolder given;
  given.write_pooling(R"({"include_prompt": false})");
  given.folder.write("modules.json", supported);
  const Bert bert(given.folder.path());
  RefusedCalls refused(bert, given.given.sentences({4, 9, 2}, 6));
  Sentences longer = refused.good;
  longer[0].assign(37, 1);
  refused.add("all of a sentence", [&] { bert.embed(refused.good, refused.out.view, {.prompt_tokens = 2}); },
              {"ids[2]", "2 tokens", "prompt_tokens is 2"});
  refused.add("all that truncation leaves",
              [&] { bert.embed(longer, refused.out.view, {.truncate = true, .prompt_tokens = 36}); },
              {"ids[0]", "36 tokens", "prompt_tokens is 36"});
  refused.check();
}

}  // namespace headlane::test
